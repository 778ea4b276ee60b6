"""A soak: a hundred thousand mixed calls of one server with upstreams; what it holds stays what it was.

python -m tests.chaos.soak [--calls N] [--transport NAME] [--seed N]

After 5,000 calls the server is as it has to stay: memory within 5 %, as many descriptors, tasks and processes. Threads
come with use, up to the bound of their pool.
99 % of the pings meanwhile take less than 50 ms, in the last part of the calls as in the first. The time in which the
server or this program could run, and others had the processors, does not count.
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
SETTLED = 5_000
"""Calls after which nothing may grow; half of a short soak."""
PARTS = 5
GROWTH = 1.05
MAX_PING = 50.0
LEAST_PING = 10.0
SLOWER = 1.5
"""How much longer the slowest pings may take in the end: a machine is never quite the same for minutes."""
CALLERS = 8
PING_SECONDS = 0.02
RARE = {"command": 0.01, "large command": 0.005, "question": 0.005, "language server": 0.1}
"""Shares of what costs a program each time, beside one for each other kind."""
LEFT_OUT = ("job", "ping")


@dataclass
class Held:
    """What a server has at rest."""

    memory: int
    counts: dict[str, int]
    processes: Counter[str]  # by their command lines


def held(world: World) -> Held:
    (server,) = world.servers
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return Held(int(found[1]), server.counts() or {}, Counter(words for _, _, words in processes().values()))


def delay(pid: int) -> float:
    """Milliseconds in which the first thread of a process could run and had no processor."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1_000_000


async def at_rest(world: World) -> Held:
    """What it has once several looks see the same, or the last one."""
    last = held(world)
    for _ in range(30):
        await asyncio.sleep(1)
        now = held(world)
        if now.counts == last.counts:
            return now
        last = now
    return last


async def soak(world: World, calls: int) -> list[str]:
    """Make the calls; what has grown."""
    kinds = [name for name in world.callers[0].kinds if name not in LEFT_OUT]
    weights = [RARE.get(name, 1.0) for name in kinds]
    for name in kinds:  # all at once: pools of threads and processes become as large as they get
        await asyncio.gather(*(caller.once(name) for caller in world.callers))
    parts: list[float] = []
    pings: list[float] = []
    settled: Held | None = None

    async def make(count: int) -> None:
        left = count

        async def call(number: int) -> None:
            nonlocal left
            rng, caller = random.Random(f"{world.rng.random()}"), world.callers[number]
            while left > 0:
                left -= 1
                if await caller.once(rng.choices(kinds, weights)[0]) is None:
                    raise RuntimeError(f"the connection is lost: {world.servers[0].text()[-2000:]}")

        async def ping() -> None:
            ours, theirs = os.getpid(), world.servers[0].pid
            while left > 0:
                delayed = delay(ours) + delay(theirs)
                await world.callers[0].once("ping")
                pings.append(world.tally.pings[-1] - (delay(ours) + delay(theirs) - delayed))
                await asyncio.sleep(PING_SECONDS)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ping())
            for number in range(len(world.callers)):
                tasks.create_task(call(number))

    first = min(SETTLED, calls // 2)
    for count in (first, *[(calls - first) // PARTS] * PARTS):
        began = time.monotonic()
        world.tally.pings.clear()
        pings.clear()
        await make(count)
        rate = count / (time.monotonic() - began)
        now = await at_rest(world)
        settled = settled or now
        parts.append(p99(pings))
        told = f"99 % of {len(pings)} pings in {parts[-1]:.1f} ms ({p99(world.tally.pings):.1f} with others)"
        print(f"{count} calls, {rate:.0f} a second; {now.memory} kB; {told}; {now.counts}", flush=True)
    assert settled is not None
    return [*grown(settled, await at_rest(world)), *slower(parts[1:], is_whole=calls >= CALLS), *world.tally.wrong]


def grown(before: Held, after: Held) -> list[str]:
    wrong: list[str] = []
    if after.memory > before.memory * GROWTH:
        wrong.append(f"its memory has grown from {before.memory} to {after.memory} kB")
    if after.processes.total() > before.processes.total():
        wrong.append(f"processes that were not there before: {after.processes - before.processes}")
    for name in before.counts.keys() | after.counts.keys():
        had, has = before.counts.get(name, 0), after.counts.get(name, 0)
        if has > (max(had, MAX_THREADS) if name == "threads" else had):
            wrong.append(f"{name}: {had} before, {has} now")
    return wrong


def slower(parts: list[float], *, is_whole: bool) -> list[str]:
    """Which pings take too long. Whether they take longer and longer shows only in a whole soak, on a quiet machine."""
    wrong = [f"99 % of pings take {each:.0f} ms" for each in parts if each > MAX_PING]
    if is_whole and parts[-1] > SLOWER * max(parts[0], LEAST_PING):
        wrong.append(f"pings take longer and longer: 99 % of each part in {[round(each, 1) for each in parts]} ms")
    return wrong


async def run(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as name:
        setting = Setting(given.transport, "off", "host", CALLERS)
        world = World(Path(name).resolve(), setting, random.Random(given.seed))
        world.tally = Tally()
        try:
            await world.begin()
            wrong = await soak(world, given.calls)
        finally:
            await world.end()
    counts = {kind: tuple(each) for kind, each in world.tally.counts.items()}
    print(f"successes, errors and lost calls: {counts}")
    print(*(wrong or ["nothing has grown"]), sep="\n")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=CALLS, help="how many in all")
    parser.add_argument("--transport", choices=("stdio", "http", "sse", "lone"), default="stdio")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return in_namespaces("tests.chaos.soak", lambda: run(given))


if __name__ == "__main__":
    raise SystemExit(main())
