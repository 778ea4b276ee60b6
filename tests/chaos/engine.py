"""Carries out a plan, and checks everything after each burst and at the end."""

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
"""Longest pause of a caller between two calls, in seconds. It keeps the servers busy, but not the machine."""
LEFTOVER = re.compile(r"\.tmp$|\.new$|^\.coretools-|\.lock$|\.sock$")
LOG_ERRORS = re.compile(r"Traceback|was never (awaited|retrieved)|Exception ignored|ResourceWarning")
"""What no log may contain."""
STARVATION = re.compile(
    r"(?:Exception ignored in[^\n]*\n)?Traceback[^\n]*\n(?: [^\n]*\n)+(MemoryError|OSError: \[Errno 24\].*)$",
    re.MULTILINE,
)
"""What Python and the event loop log if memory or descriptors run out; they try again."""
WORLD_SECONDS = 1_800
"""Time limit of a world."""
MAY_FAIL = ("write shared", "edit shared")
"""The calls that are refused if another client has changed the file meanwhile."""
SLACK = 16
"""How far a count may grow: connections, upstream sessions and threads are kept once used, each up to a limit."""
GROWTHS = 5
"""A count that grows this many times in a row is taken to grow for ever."""
FIRST_SECONDS = 0.5
"""Seconds of load before the first fault can be over."""
CRASHES = 3
"""After this many crashes, the server waits longer before it starts an upstream again; calls then fail."""


@dataclass
class Report:
    """The outcome of a plan.

    Args:
        problems: Descriptions of what went wrong.
        pings: Durations of the pings, in milliseconds.
        calls: Numbers of successes, errors and lost calls.
        logs: The ends of the servers' logs.
    """

    problems: list[str] = field(default_factory=list[str])
    pings: list[float] = field(default_factory=list[float])
    calls: tuple[int, int, int] = (0, 0, 0)
    logs: str = ""


async def carry_out(plan: Plan, folder: Path) -> Report:
    """Create the world of a plan, and carry out its bursts."""
    world = World(folder, plan.setting, random.Random(plan.seed))
    problems = world.tally.problems
    number = 0
    try:
        async with asyncio.timeout(WORLD_SECONDS):
            await world.begin()
            await _warm_up(world)
            for burst in plan.bursts:
                number += 1
                await _burst(world, burst)
                await _check_world(world)
                if problems:
                    break
            await _end_servers(world)
    except (WorldError, TimeoutError) as error:
        problems.append(f"{type(error).__name__}: {error}")
    finally:
        if problems:
            problems.insert(0, f"after burst {number}:")
        await world.end()
    counts = world.tally.counts.values()
    successes, errors, lost_calls = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    logs = "\n".join(f"{server.name}: {server.log_text()[-3_000:]}" for server in world.servers)
    return Report(problems, world.tally.pings, (successes, errors, lost_calls), logs)


async def _warm_up(world: World) -> None:
    """Make every kind of call once, and take the counts of that moment as the baseline."""

    async def use(caller: Caller) -> None:
        for name in caller.kinds:
            is_good = await caller.once(name)
            if is_good is None and await caller.client.connect():  # its session was idle for too long
                is_good = await caller.once(name)
            if not is_good and name not in MAY_FAIL:
                world.tally.problems.append(f"{name} of {caller.client.name} fails before the first fault")

    await asyncio.gather(*map(use, world.callers))
    await _burst(world, ())
    await _finish_jobs(world)
    for server in world.servers:
        server.counts_at_rest = [server.counts() or {}]


async def _burst(world: World, burst: tuple[Event, ...]) -> None:
    is_over = asyncio.Event()

    async def carry_out_event(event: Event) -> None:
        await asyncio.sleep(event.at)
        async with FAULTS[event.fault].act(world, event.pick):
            await asyncio.sleep(event.hold)

    callers = [asyncio.create_task(caller.run(PAUSE, is_over)) for caller in world.callers]
    events = [asyncio.create_task(carry_out_event(event)) for event in burst]
    await asyncio.sleep(FIRST_SECONDS)
    unfinished = (await asyncio.wait(events, timeout=2 * CEILING))[1] if events else set[asyncio.Task[None]]()
    is_over.set()
    _, waiting = await asyncio.wait(callers, timeout=CEILING)
    open_requests = [request for client in world.clients for request in client.open_requests.values()]
    for task in (*unfinished, *waiting):
        task.cancel()
    if waiting or unfinished:
        await asyncio.wait([*waiting, *unfinished])
    if waiting or unfinished:
        world.tally.problems.append(f"calls stay without an answer: {open_requests}")
    for event, task in zip(burst, events, strict=True):
        if task in unfinished or task.exception() is not None:
            world.tally.problems.append(f"the fault {event.fault} could not be undone: {task}")


async def _check_world(world: World) -> None:
    """Check that each server answers or has ended, that nothing is left behind, and that no file is torn."""
    problems = world.tally.problems
    for server in world.servers:
        if server.may_end and not await until(lambda server=server: not server.is_running()):
            problems.append(f"{server.name} should have ended, but runs")
        elif not server.is_running():
            if not (server.may_end or (server.is_starved and server.end_code() == 1)):
                problems.append(f"{server.name} ended unexpectedly, with exit code {server.end_code()}")
            await _check_leftover_processes(world, server)
            await server.start()
    for client in world.clients:
        if client.is_lost and not await client.connect():
            problems.append(f"{client.name} cannot connect again")
    if problems:
        return
    await _finish_jobs(world)  # otherwise the next calls could exceed the limit of background jobs
    await _check_calls(world, world.callers[0])
    await _finish_jobs(world)
    for server in world.servers:
        await _check_counts(world, server)
    _check_files(world)
    for client in world.clients:
        problems += client.misrouted
        client.misrouted.clear()
    for server in world.servers:
        log = STARVATION.sub("", server.log_text()) if server.was_limited else server.log_text()
        if match := LOG_ERRORS.search(log):
            problems.append(f"{server.name} logged {match[0]}")


async def _check_leftover_processes(world: World, server: Server) -> None:
    """Check that all processes that a server started have ended with it."""

    def leftovers() -> list[str]:
        world.reap()
        roots = {process.pid for process in world.peers.values()} | {server.client_pid for server in world.servers}
        roots |= {server.pid for server in world.servers if server.is_running()}
        table = processes()
        return [
            f"{pid} {words}" for pid, (_, _, words) in table.items() if pid not in roots and not _is_below(pid, roots)
        ]

    if not await until(lambda: not leftovers()):
        world.tally.problems.append(f"{server.name} has left processes: {leftovers()}")


def _is_below(pid: int, roots: set[int]) -> bool:
    table = processes()
    while pid in table and pid not in roots:
        pid = table[pid][0]
    return pid in roots


async def _check_calls(world: World, caller: Caller) -> None:
    """Check that every kind of call works again, except calls to an upstream that crashed too often."""
    for name in caller.kinds:
        deadline = time.monotonic() + CEILING
        role = f"{name.removeprefix('upstream ')} upstream"
        while not await caller.once(name):
            if name in MAY_FAIL or world.deaths.get(role, 0) >= CRASHES:
                break
            if time.monotonic() > deadline:
                world.tally.problems.append(f"{name} does not work again")
                return
            if caller.client.is_lost:
                await caller.client.connect()
            await asyncio.sleep(0.2)


async def _finish_jobs(world: World) -> None:
    """Stop the background jobs, and wait until no command runs."""
    for client, jobs in world.tally.jobs.items():
        for job in jobs:
            if not client.is_lost:
                await client.call("stop_background_job", {"job_id": job})
    world.tally.jobs.clear()
    if not await until(lambda: not world.pids("command")):
        table = processes()
        commands = [table.get(pid) for pid in world.pids("command")]
        world.tally.problems.append(f"commands still run: {commands}")


async def _check_counts(world: World, server: Server) -> None:
    """Check that descriptors, threads and tasks have hardly grown since the warm-up, and do not grow each time."""
    growth: dict[str, tuple[int, int]] = {}
    deadline = time.monotonic() + CEILING
    while (now := server.counts()) is not None:
        baseline = server.counts_at_rest[0]
        growth = {
            name: (baseline.get(name, 0), count)
            for name, count in now.items()
            if count > baseline.get(name, 0) + (MAX_THREADS if name == "threads" else SLACK)
        }
        if not growth or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    if now is None:
        world.tally.problems.append(f"{server.name} does not write its counts")
        return
    if growth:
        world.tally.problems.append(f"{server.name} has grown: {growth}")
    server.counts_at_rest.append(now)
    for name in now:
        latest = [counts.get(name, 0) for counts in server.counts_at_rest[1:][-GROWTHS:]]
        if len(latest) == GROWTHS and all(count < next_count for count, next_count in itertools.pairwise(latest)):
            world.tally.problems.append(f"{server.name} grows each time: {name}, {latest}")


def _check_files(world: World) -> None:
    problems = world.tally.problems
    for path in world.root.iterdir():
        if path.name.startswith(("own-", "shared-")) and not is_whole(path.read_text()):
            problems.append(f"{path.name} is torn: {path.read_text()[:200]!r}")
    ledger = world.root / "ledger"
    lines = ledger.read_text().split() if ledger.exists() else []
    if len(lines) != len(set(lines)):
        problems.append("an action that a person allowed once was done twice")


async def _end_servers(world: World) -> None:
    """End all servers, and check that they leave neither processes nor files."""
    problems = world.tally.problems
    for client in world.clients:
        await client.close()
    for server in world.servers:
        if world.setting.transport != "stdio" and server.is_running():
            os.kill(server.pid, signal.SIGTERM)
        if not await until(lambda server=server: not server.is_running()):
            problems.append(f"{server.name} does not end")
        elif server.end_code() != 0:
            problems.append(f"{server.name} ends with exit code {server.end_code()}")
        await _check_leftover_processes(world, server)
    leftovers = [
        str(path.relative_to(world.folder))
        for disk in world.disks.values()
        for path in disk.rglob("*")
        if LEFTOVER.search(path.name)
    ]
    if leftovers:
        problems.append(f"files are left: {leftovers}")
