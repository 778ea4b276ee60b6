"""Chaos: servers, clients and upstreams are killed, stopped, starved and flooded at moments that a seed decides.

python -m tests.chaos [--seed N] [--worlds N | --minutes N] [--transport NAME] [--fault TEXT] [--brief]

Each seed makes one world. If something goes wrong in it, its plan is printed, and the command that repeats it. Linux
only, and only for users who may create namespaces and mount file systems in them.
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


def namespace_command() -> list[str] | None:
    """Return the command that creates the namespaces on this machine, or None if none can be created."""
    for words in (ALONE, [*ALONE[:1], "--user", "--map-root-user", *ALONE[1:]]):
        try:
            if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
                return words
        except OSError:
            return None
    return None


def in_namespaces(module: str, work: Callable[[], Coroutine[None, None, int]]) -> int:
    """Do the work as the first process of a new namespace. For this, the module is run again inside it."""
    if os.environ.get(INSIDE):
        return asyncio.run(work())
    words = namespace_command()
    if words is None:
        print("not run: namespaces cannot be created here")
        return NOT_RUN
    command = [*words, sys.executable, "-m", module, *sys.argv[1:]]
    return os.execvpe(words[0], command, {**os.environ, INSIDE: "1"})


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


async def run(options: argparse.Namespace) -> int:
    from tests.chaos.engine import carry_out
    from tests.chaos.plan import TRANSPORTS, plan_of

    start, number, pings, failures = time.monotonic(), 0, list[float](), list[str]()
    while time.monotonic() - start < options.minutes * 60 if options.minutes else number < options.worlds:
        in_turn = options.brief and not options.transport
        transport = TRANSPORTS[number % len(TRANSPORTS)] if in_turn else options.transport
        plan = plan_of(options.seed + number, transport, options.fault, is_brief=options.brief)
        number += 1
        world_start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
            report = await carry_out(plan, Path(name).resolve())
        pings += report.pings
        faults = ", ".join(event.fault for burst in plan.bursts for event in burst)
        seconds, (successes, errors, lost_calls) = time.monotonic() - world_start, report.calls
        calls = f"{successes} calls, {errors} errors, {lost_calls} lost"
        print(f"seed {plan.seed}: {plan.setting.transport}, {calls}, {seconds:.0f} s: {faults}", flush=True)
        if report.problems:
            failures.append(repeat_command(options, plan))
            print(plan, *report.problems, report.logs, sep="\n")
            print("repeat it with:", failures[-1], flush=True)
    if failures:
        print(f"{len(failures)} of {number} worlds went wrong:", *failures, sep="\n")
        return 1
    print(f"{number} worlds, nothing wrong; 99 % of {len(pings)} pings took at most {p99(pings):.0f} ms")
    return 0


def repeat_command(options: argparse.Namespace, plan: Plan) -> str:
    """Return the command that repeats a world."""
    words = [f"--transport {plan.setting.transport}"] if options.transport or options.brief else []
    words += [f"--fault '{options.fault}'"] if options.fault else []
    words += ["--brief"] if options.brief else []
    return " ".join([".venv/bin/python -m tests.chaos --seed", str(plan.seed), *words])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first world")
    parser.add_argument("--worlds", type=int, default=1, help="number of worlds")
    parser.add_argument("--minutes", type=float, default=0, help="keep starting worlds for this many minutes")
    parser.add_argument("--transport", help="only worlds with this transport")
    parser.add_argument("--brief", action="store_true", help="small worlds; the transports take turns")
    parser.add_argument("--fault", help="only faults whose name contains this text")
    options = parser.parse_args()
    return in_namespaces("tests.chaos", lambda: run(options))


if __name__ == "__main__":
    raise SystemExit(main())
