"""Chaos: servers, clients and upstreams are killed, stopped, starved and flooded at moments that a seed decides.

python -m tests.chaos [--seed N] [--worlds N | --minutes N] [--transport NAME] [--fault TEXT] [--brief]

Each seed is a world of its own. Of one that goes wrong, the plan is printed and the command that repeats it. Linux
only, with the right to make namespaces and to mount in them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.plan import Plan

ALONE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
INSIDE = "CHAOS_INSIDE"
NOT_RUN = 77


def alone() -> list[str] | None:
    """What makes namespaces here; nothing where nothing may."""
    for words in (ALONE, [*ALONE[:1], "--user", "--map-root-user", *ALONE[1:]]):
        try:
            if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
                return words
        except OSError:
            return None
    return None


def in_namespaces(module: str, work: Callable[[], Coroutine[None, None, int]]) -> int:
    """Do some work as the first process of a namespace; this module is started in it again."""
    if os.environ.get(INSIDE):
        return asyncio.run(work())
    words = alone()
    if words is None:
        print("not run: namespaces cannot be made here")
        return NOT_RUN
    command = [*words, sys.executable, "-m", module, *sys.argv[1:]]
    return os.execvpe(words[0], command, {**os.environ, INSIDE: "1"})


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


async def run(given: argparse.Namespace) -> int:
    from tests.chaos.engine import carry_out
    from tests.chaos.plan import TRANSPORTS, plan_of

    began, number, pings, failed = time.monotonic(), 0, list[float](), list[str]()
    while time.monotonic() - began < given.minutes * 60 if given.minutes else number < given.worlds:
        transport = TRANSPORTS[number % len(TRANSPORTS)] if given.brief and not given.transport else given.transport
        plan = plan_of(given.seed + number, transport, given.fault, is_brief=given.brief)
        number += 1
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
            report = await carry_out(plan, Path(name).resolve())
        pings += report.pings
        faults = ", ".join(event.fault for burst in plan.bursts for event in burst)
        taken, (successes, errors, lost) = time.monotonic() - started, report.calls
        calls = f"{successes} calls, {errors} errors, {lost} lost"
        print(f"seed {plan.seed}: {plan.setting.transport}, {calls}, {taken:.0f} s: {faults}", flush=True)
        if report.wrong:
            failed.append(again(given, plan))
            print(plan, *report.wrong, report.said, sep="\n")
            print("repeat it with:", failed[-1], flush=True)
    if failed:
        print(f"{len(failed)} of {number} worlds went wrong:", *failed, sep="\n")
        return 1
    print(f"{number} worlds, nothing wrong; of {len(pings)} pings 99 % took {p99(pings):.0f} ms at most")
    return 0


def again(given: argparse.Namespace, plan: Plan) -> str:
    """The command that repeats a world."""
    words = [f"--transport {plan.setting.transport}"] if given.transport or given.brief else []
    words += [f"--fault '{given.fault}'"] if given.fault else []
    words += ["--brief"] if given.brief else []
    return " ".join([".venv/bin/python -m tests.chaos --seed", str(plan.seed), *words])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the first world")
    parser.add_argument("--worlds", type=int, default=1, help="how many")
    parser.add_argument("--minutes", type=float, default=0, help="as many as fit into so many minutes")
    parser.add_argument("--transport", help="only worlds of this one")
    parser.add_argument("--brief", action="store_true", help="small worlds, of each transport in turn")
    parser.add_argument("--fault", help="only faults with this text in their name")
    given = parser.parse_args()
    return in_namespaces("tests.chaos", lambda: run(given))


if __name__ == "__main__":
    raise SystemExit(main())
