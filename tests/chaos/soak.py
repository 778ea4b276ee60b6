"""A soak: a hundred thousand mixed calls to one server with upstreams. Its use of resources must not grow.

python -m tests.chaos.soak [--calls N] [--transport NAME] [--seed N]

What the server uses after 5,000 calls is the baseline. From then on, its memory may grow by 5 %, and the numbers of
descriptors, tasks and processes not at all. Threads are kept once used, up to the limit of their pool. In every part
of the soak, 99 % of the pings take less than 50 ms. Time in which the server or this program waited for a processor
does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.__main__ import in_namespaces, p99
from tests.chaos.load import Tally
from tests.chaos.world import Setting, World, processes
from tools.machine.threads import MAX_THREADS

CALLS = 100_000
BASELINE_CALLS = 5_000
"""Number of calls after which nothing may grow; half of the calls in a short soak."""
PARTS = 5
GROWTH = 1.05
MAX_PING = 50.0
LEAST_PING = 10.0
SLOWER = 1.5
"""How many times longer the slowest pings may take in the last part. A machine's speed varies over minutes."""
CALLERS = 8
PING_SECONDS = 0.02
RARE = {"command": 0.01, "large command": 0.005, "question": 0.005, "language server": 0.1}
"""Weights of the kinds that start a program each time. All other kinds have a weight of 1."""
EXCLUDED = ("job", "ping")


@dataclass
class Usage:
    """The resources that a server uses while it is idle."""

    memory: int
    counts: dict[str, int]
    processes: Counter[str]  # by their command lines


def usage_of(world: World) -> Usage:
    (server,) = world.servers
    status = Path(f"/proc/{server.pid}/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return Usage(int(match[1]), server.counts() or {}, Counter(words for _, _, words in processes().values()))


def waiting_ms(pid: int) -> float:
    """Return for how many milliseconds the first thread of a process has waited for a processor."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1_000_000


async def settled_usage(world: World) -> Usage:
    """Return the usage once two counts in a row are equal, or the last one after 30 seconds."""
    previous = usage_of(world)
    for _ in range(30):
        await asyncio.sleep(1)
        now = usage_of(world)
        if now.counts == previous.counts:
            return now
        previous = now
    return previous


async def soak(world: World, calls: int) -> list[str]:
    """Make the calls, and return descriptions of what has grown."""
    kinds = [name for name in world.callers[0].kinds if name not in EXCLUDED]
    weights = [RARE.get(name, 1.0) for name in kinds]
    for name in kinds:  # all at once, so that pools of threads and processes reach their full size
        await asyncio.gather(*(caller.once(name) for caller in world.callers))
    parts: list[float] = []
    pings: list[float] = []
    baseline: Usage | None = None

    async def make(count: int) -> None:
        remaining = count

        async def call(number: int) -> None:
            nonlocal remaining
            rng, caller = random.Random(f"{world.rng.random()}"), world.callers[number]
            while remaining > 0:
                remaining -= 1
                if await caller.once(rng.choices(kinds, weights)[0]) is None:
                    raise RuntimeError(f"the connection is lost: {world.servers[0].log_text()[-2000:]}")

        async def ping() -> None:
            own_pid, server_pid = os.getpid(), world.servers[0].pid
            while remaining > 0:
                earlier_wait = waiting_ms(own_pid) + waiting_ms(server_pid)
                await world.callers[0].once("ping")
                wait = waiting_ms(own_pid) + waiting_ms(server_pid) - earlier_wait
                pings.append(world.tally.pings[-1] - wait)
                await asyncio.sleep(PING_SECONDS)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ping())
            for number in range(len(world.callers)):
                tasks.create_task(call(number))

    first = min(BASELINE_CALLS, calls // 2)
    for count in (first, *[(calls - first) // PARTS] * PARTS):
        start = time.monotonic()
        world.tally.pings.clear()
        pings.clear()
        await make(count)
        rate = count / (time.monotonic() - start)
        now = await settled_usage(world)
        baseline = baseline or now
        parts.append(p99(pings))
        ping_text = f"99 % of {len(pings)} pings in {parts[-1]:.1f} ms ({p99(world.tally.pings):.1f} with waits)"
        print(f"{count} calls, {rate:.0f} per second; {now.memory} kB; {ping_text}; {now.counts}", flush=True)
    assert baseline is not None
    return [
        *growth_problems(baseline, await settled_usage(world)),
        *slowdown_problems(parts[1:], is_whole=calls >= CALLS),
        *world.tally.problems,
    ]


def growth_problems(before: Usage, after: Usage) -> list[str]:
    problems: list[str] = []
    if after.memory > before.memory * GROWTH:
        problems.append(f"its memory has grown from {before.memory} to {after.memory} kB")
    if after.processes.total() > before.processes.total():
        problems.append(f"new processes: {after.processes - before.processes}")
    for name in before.counts.keys() | after.counts.keys():
        old_count, count = before.counts.get(name, 0), after.counts.get(name, 0)
        if count > (max(old_count, MAX_THREADS) if name == "threads" else old_count):
            problems.append(f"{name}: {old_count} before, {count} now")
    return problems


def slowdown_problems(parts: list[float], *, is_whole: bool) -> list[str]:
    """Describe pings that take too long. Only a whole soak on a quiet machine shows whether they become slower."""
    problems = [f"99 % of pings take {each:.0f} ms" for each in parts if each > MAX_PING]
    if is_whole and parts[-1] > SLOWER * max(parts[0], LEAST_PING):
        problems.append(f"pings become slower: 99 % of each part in {[round(duration, 1) for duration in parts]} ms")
    return problems


async def run(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as name:
        setting = Setting(options.transport, "off", "host", CALLERS)
        world = World(Path(name).resolve(), setting, random.Random(options.seed))
        world.tally = Tally()
        try:
            await world.begin()
            problems = await soak(world, options.calls)
        finally:
            await world.end()
    counts = {kind: tuple(numbers) for kind, numbers in world.tally.counts.items()}
    print(f"successes, errors and lost calls: {counts}")
    print(*(problems or ["nothing has grown"]), sep="\n")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=CALLS, help="total number of calls")
    parser.add_argument("--transport", choices=("stdio", "http", "sse", "lone"), default="stdio")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return in_namespaces("tests.chaos.soak", lambda: run(options))


if __name__ == "__main__":
    raise SystemExit(main())
