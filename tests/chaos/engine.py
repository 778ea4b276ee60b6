"""Carries out a plan, and looks at everything after each burst and at the end."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.load import Caller, is_whole
from tests.chaos.plan import Event, Plan
from tests.chaos.world import Server, World, WorldError, processes, until
from tests.waiting import CEILING
from tools.machine.threads import MAX_THREADS

PAUSE = 0.15
"""Seconds between two calls of one caller, at most: servers are to be at work, not machines."""
LEFTOVER = re.compile(r"\.tmp$|\.new$|^\.coretools-|\.lock$|\.sock$")
WORDS = re.compile(r"Traceback|was never (awaited|retrieved)|Exception ignored|ResourceWarning")
"""What must not be in a log."""
WANTING = re.compile(
    r"(?:Exception ignored in[^\n]*\n)?Traceback[^\n]*\n(?: [^\n]*\n)+(MemoryError|OSError: \[Errno 24\].*)$",
    re.MULTILINE,
)
"""What Python and the event loop say of work without memory, or an accept without descriptors; it is tried again."""
WORLD_SECONDS = 1_800
MAY_FAIL = ("write shared", "edit shared")
"""What is refused where somebody else has changed the file meanwhile."""
SLACK = 16
"""Kept connections and sessions of servers behind this one come with use, and so do threads, up to a bound each."""
GROWTHS = 5
"""What grows so often in a row grows for ever."""
FIRST_SECONDS = 0.5
"""Of load, before anything happens."""
CRASHES = 3
"""After so many ends an upstream is left alone for longer, which is an answer too."""


@dataclass
class Report:
    """What has come of a plan.

    Args:
        wrong: What must not be, in words; nothing where all is well.
        pings: Milliseconds of each.
        calls: Successes, errors and lost calls.
    """

    wrong: list[str] = field(default_factory=list[str])
    pings: list[float] = field(default_factory=list[float])
    calls: tuple[int, int, int] = (0, 0, 0)
    said: str = ""


async def carry_out(plan: Plan, folder: Path) -> Report:
    """Make the world of a plan, and let it happen."""
    world = World(folder, plan.setting, random.Random(plan.seed))
    wrong = world.tally.wrong
    number = 0
    try:
        async with asyncio.timeout(WORLD_SECONDS):
            await world.begin()
            await _warm_up(world)
            for burst in plan.bursts:
                number += 1
                await _burst(world, burst)
                await _look(world)
                if wrong:
                    break
            await _end(world)
    except (WorldError, TimeoutError) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    finally:
        if wrong:
            wrong.insert(0, f"after burst {number}:")
        await world.end()
    counts = world.tally.counts.values()
    successes, errors, lost = (sum(each[at] for each in counts) for at in range(3))
    said = "\n".join(f"{server.name}: {server.text()[-3_000:]}" for server in world.servers)
    return Report(wrong, world.tally.pings, (successes, errors, lost), said)


async def _warm_up(world: World) -> None:
    """Use everything once, and count what is there then."""

    async def use(caller: Caller) -> None:
        for name in caller.kinds:
            done = await caller.once(name)
            if done is None and await caller.way.begin():  # its session was silent for too long
                done = await caller.once(name)
            if not done and name not in MAY_FAIL:
                world.tally.wrong.append(f"{name} of {caller.way.name} fails before anything has happened")

    await asyncio.gather(*map(use, world.callers))
    await _burst(world, ())
    await _rest(world)
    for server in world.servers:
        server.known = [server.counts() or {}]


async def _burst(world: World, burst: tuple[Event, ...]) -> None:
    over = asyncio.Event()

    async def happen(event: Event) -> None:
        await asyncio.sleep(event.at)
        async with FAULTS[event.fault].act(world, event.pick):
            await asyncio.sleep(event.hold)

    callers = [asyncio.create_task(caller.run(PAUSE, over)) for caller in world.callers]
    events = [asyncio.create_task(happen(event)) for event in burst]
    await asyncio.sleep(FIRST_SECONDS)
    late = (await asyncio.wait(events, timeout=2 * CEILING))[1] if events else set[asyncio.Task[None]]()
    over.set()
    _, waiting = await asyncio.wait(callers, timeout=CEILING)
    still_open = [each for way in world.ways for each in way.open.values()]
    for task in (*late, *waiting):
        task.cancel()
    if waiting or late:
        await asyncio.wait([*waiting, *late])
    if waiting or late:
        world.tally.wrong.append(f"calls stay without an answer: {still_open}")
    for event, task in zip(burst, events, strict=True):
        if task in late or task.exception() is not None:
            world.tally.wrong.append(f"the fault {event.fault} could not be undone: {task}")


async def _look(world: World) -> None:
    """The server answers or has ended; nothing is left; no file is torn."""
    wrong = world.tally.wrong
    for server in world.servers:
        if server.may_end and not await until(lambda server=server: not server.is_running()):
            wrong.append(f"{server.name} was to end, and has not")
        elif not server.is_running():
            if not (server.may_end or (server.is_starved and server.end_code() == 1)):
                wrong.append(f"{server.name} has ended by itself, with {server.end_code()}")
            await _until_nothing_below(world, server)
            await server.start()
    for way in world.ways:
        if way.is_lost and not await way.begin():
            wrong.append(f"{way.name} is not served any more")
    if wrong:
        return
    await _rest(world)  # as many jobs may run as a client may have
    await _answers(world, world.callers[0])
    await _rest(world)
    for server in world.servers:
        await _counts(world, server)
    _look_at_files(world)
    for way in world.ways:
        wrong += way.crossed
        way.crossed.clear()
    for server in world.servers:
        said = WANTING.sub("", server.text()) if server.was_limited else server.text()
        if found := WORDS.search(said):
            wrong.append(f"{server.name} says {found[0]}")


async def _until_nothing_below(world: World, server: Server) -> None:
    """What a server has started ends with it."""

    def left() -> list[str]:
        world.reap()
        others = {process.pid for process in world.others.values()}
        living = {each.pid for each in world.servers if each.is_running()} | {each.client for each in world.servers}
        table = processes()
        roots = others | living
        return [
            f"{pid} {words}" for pid, (_, _, words) in table.items() if pid not in roots and not _is_below(pid, roots)
        ]

    if not await until(lambda: not left()):
        world.tally.wrong.append(f"{server.name} has left processes: {left()}")


def _is_below(pid: int, roots: set[int]) -> bool:
    table = processes()
    while pid in table and pid not in roots:
        pid = table[pid][0]
    return pid in roots


async def _answers(world: World, caller: Caller) -> None:
    """Every kind of call works again; a server behind this one may be away for as long as it says."""
    for name in caller.kinds:
        deadline = time.monotonic() + CEILING
        role = f"{name.removeprefix('upstream ')} upstream"
        while not await caller.once(name):
            if name in MAY_FAIL or world.deaths.get(role, 0) >= CRASHES:
                break
            if time.monotonic() > deadline:
                world.tally.wrong.append(f"{name} does not work again")
                return
            if caller.way.is_lost:
                await caller.way.begin()
            await asyncio.sleep(0.2)


async def _rest(world: World) -> None:
    """End the jobs, and wait until no command runs."""
    for way, jobs in world.tally.jobs.items():
        for job in jobs:
            if not way.is_lost:
                await way.call("stop_background_job", {"job_id": job})
    world.tally.jobs.clear()
    if not await until(lambda: not world.pids("command")):
        table = processes()
        left = [table.get(pid) for pid in world.pids("command")]
        world.tally.wrong.append(f"commands are left: {left}")


async def _counts(world: World, server: Server) -> None:
    """Little more descriptors, threads and tasks than before, and not more each time."""
    more: dict[str, tuple[int, int]] = {}
    deadline = time.monotonic() + CEILING
    while (now := server.counts()) is not None:
        before = server.known[0]
        more = {
            name: (before.get(name, 0), count)
            for name, count in now.items()
            if count > before.get(name, 0) + (MAX_THREADS if name == "threads" else SLACK)
        }
        if not more or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    if now is None:
        world.tally.wrong.append(f"{server.name} does not tell what it has")
        return
    if more:
        world.tally.wrong.append(f"{server.name} has more than before: {more}")
    server.known.append(now)
    for name in now:
        last = [each.get(name, 0) for each in server.known[1:][-GROWTHS:]]
        if len(last) == GROWTHS and all(one < after for one, after in itertools.pairwise(last)):
            world.tally.wrong.append(f"{server.name} has more each time: {name}, {last}")


def _look_at_files(world: World) -> None:
    wrong = world.tally.wrong
    for path in world.root.iterdir():
        if path.name.startswith(("own-", "shared-")) and not is_whole(path.read_text()):
            wrong.append(f"{path.name} is torn: {path.read_text()[:200]!r}")
    ledger = world.root / "ledger"
    lines = ledger.read_text().split() if ledger.exists() else []
    if len(lines) != len(set(lines)):
        wrong.append("something that a person has allowed once was done twice")


async def _end(world: World) -> None:
    """All servers end; the next one finds everything free, and leaves nothing."""
    wrong = world.tally.wrong
    for way in world.ways:
        await way.close()
    for server in world.servers:
        if world.setting.transport != "stdio" and server.is_running():
            os.kill(server.pid, signal.SIGTERM)
        if not await until(lambda server=server: not server.is_running()):
            wrong.append(f"{server.name} does not end")
        elif server.end_code() != 0:
            wrong.append(f"{server.name} ends with {server.end_code()}")
        await _until_nothing_below(world, server)
    found = [
        str(path.relative_to(world.folder))
        for disk in world.disks.values()
        for path in disk.rglob("*")
        if LEFTOVER.search(path.name)
    ]
    if found:
        wrong.append(f"files are left: {found}")
