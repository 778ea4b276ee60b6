"""What can go wrong: each fault begins, holds for some time, and is undone."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.chaos.load import UPSTREAMS, Caller
from tests.chaos.ways import LOST, LoneWay, SessionWay, SseWay, StdioWay
from tests.chaos.world import TOKEN, Server, World, until
from tests.interaction.network.wires import connection

NETWORK = frozenset({"http", "sse", "lone", "replicas"})
STDIO = frozenset({"stdio"})
EVERYWHERE = NETWORK | STDIO
REPLICAS = frozenset({"replicas"})

OURS = ("server", "watchdog", "broker", "supervisor", "keeper")
OTHERS = ("command", "language server", "pipe upstream", "web upstream", "old upstream")
CLIENTS = 100
FLOOD = 500
MEGABYTE = 1 << 20

Act = Callable[[World, int], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Args:
        act: Begins it, and undoes it.
        transports: Of the worlds that it may happen in.
    """

    act: Act
    transports: frozenset[str]


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, transports: frozenset[str] = EVERYWHERE
) -> Callable[[Callable[[World, int], AsyncGenerator[None]]], None]:
    def named(act: Callable[[World, int], AsyncGenerator[None]]) -> None:
        FAULTS[name] = Fault(asynccontextmanager(act), transports)

    return named


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


async def target(world: World, role: str, pick: int) -> int | None:
    """One of the processes that do something; one that is there for moments is waited for."""
    if role == "keeper":
        await until(lambda: world.pids(role), 1.0)
    found = world.pids(role)
    return found[pick % len(found)] if found else None


def server_of(world: World, pick: int) -> Server:
    return world.servers[pick % len(world.servers)]


async def _killed(role: str, world: World, pick: int) -> AsyncGenerator[None]:
    pid = await target(world, role, pick)
    for server in world.servers:
        server.may_end = server.may_end or (pid == server.pid and pid is not None)
    if pid is not None:
        send(pid, signal.SIGKILL)
        world.deaths[role] = world.deaths.get(role, 0) + 1
    yield
    if role in world.others and pid is not None:
        world.others[role].wait()
        await world.start_other(role)


async def _stopped(role: str, world: World, pick: int) -> AsyncGenerator[None]:
    pid = await target(world, role, pick)
    if pid is not None:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if pid is not None:
            send(pid, signal.SIGCONT)


for _role in (*OURS, *OTHERS):
    FAULTS[f"kill {_role}"] = Fault(asynccontextmanager(partial(_killed, _role)), EVERYWHERE)
    FAULTS[f"stop {_role}"] = Fault(asynccontextmanager(partial(_stopped, _role)), EVERYWHERE)
for _name, _act in (("kill", _killed), ("stop", _stopped)):
    FAULTS[f"{_name} store"] = Fault(asynccontextmanager(partial(_act, "store")), REPLICAS)


@fault("end server")
async def _end_server(world: World, pick: int) -> AsyncGenerator[None]:
    server = server_of(world, pick)
    server.may_end = True
    send(server.pid, signal.SIGTERM)
    yield


async def _leave(world: World, last_words: bytes) -> None:
    server = world.servers[0]
    server.may_end = True
    for way in world.ways:
        assert isinstance(way, StdioWay)
        if last_words and not way.is_lost:
            with suppress(OSError):
                os.write(way.writing, last_words)
        send(server.client, signal.SIGKILL)
        await way.close()


@fault("kill client", STDIO)
async def _kill_client(world: World, pick: int) -> AsyncGenerator[None]:
    await _leave(world, b"" if pick % 2 else b'{"jsonrpc": "2.0", "id": 1, "meth')
    yield


@fault("end of input", STDIO)
async def _end_of_input(world: World, _pick: int) -> AsyncGenerator[None]:
    world.servers[0].may_end = True
    for way in world.ways:
        assert isinstance(way, StdioWay)
        way.say_no_more()
    yield


@fault("deaf client", STDIO)
async def _deaf_client(world: World, _pick: int) -> AsyncGenerator[None]:
    way = world.ways[0]
    assert isinstance(way, StdioWay)
    way.may_read.clear()
    caller = Caller(way, world.root, random.Random(0), world.tally)
    async with asyncio.TaskGroup() as calls:
        for _ in range(30):
            calls.create_task(caller.once("large command"))
        try:
            yield
        finally:
            way.may_read.set()


@fault("deaf clients", NETWORK)
async def _deaf_clients(world: World, pick: int) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for number in range(10):
            way = SessionWay(f"d{number}", server_of(world, pick).url, TOKEN if world.has_store else "")
            with suppress(*LOST):
                if await way.begin():
                    wire = await stack.enter_async_context(connection(way.url))
                    await wire.send(way.raw("pipe__repeat", {"text": "deaf", "count": 500_000}))
        yield


@fault("half requests", NETWORK)
async def _half_requests(world: World, pick: int) -> AsyncGenerator[None]:
    whole = SessionWay("h", "", TOKEN).raw("pipe__echo", {"text": "half"})
    async with AsyncExitStack() as stack:
        for number in range(20):
            with suppress(*LOST):
                wire = await stack.enter_async_context(connection(server_of(world, pick).url))
                await wire.send(whole[: len(whole) * number // 20])
                if number % 3 == 0:
                    wire.say_no_more()
                elif number % 3 == 1:
                    wire.reset()
        yield


@fault("many clients", NETWORK)
async def _many_clients(world: World, pick: int) -> AsyncGenerator[None]:
    """They come and go: some take leave, some go in the middle of a call, some just go."""
    rng = random.Random(pick)
    token, urls = TOKEN if world.has_store else "", [server.url for server in world.servers]

    async def visit(number: int) -> None:
        await asyncio.sleep(rng.random())
        url = urls[number % len(urls)]
        kinds = {"sse": SseWay} if world.setting.transport == "sse" else {"http": SessionWay, "lone": None}
        chosen = rng.choice(list(kinds.values()))
        way = LoneWay(f"c{number}", urls, token) if chosen is None else chosen(f"c{number}", url, token)
        caller = Caller(way, world.root, rng, world.tally)
        if await way.begin():
            await caller.once("ping")
            call = asyncio.create_task(caller.once(rng.choice(("upstream web", "upstream pipe", "search", "command"))))
            await asyncio.wait([call], timeout=rng.choice((0.05, 60)))
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
        if isinstance(way, SseWay) or rng.random() < 0.5:  # its stream is all that there is of the former
            await way.close()
        world.tally.wrong += way.crossed

    async with asyncio.TaskGroup() as visits:
        for number in range(CLIENTS):
            visits.create_task(visit(number))
        yield


@fault("clock")
async def _clock(world: World, pick: int) -> AsyncGenerator[None]:
    world.set_clock((-86_400, -3_600, 3_600, 86_400)[pick % 4])
    yield
    world.set_clock(0)


async def _full(disk: str, world: World, _pick: int) -> AsyncGenerator[None]:
    ballast = world.disks[disk] / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:  # it may be read-only already
        for size in (MEGABYTE, 4096):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    yield
    while ballast.exists():  # another such fault may have removed it, or the disk may be read-only for a while
        with suppress(OSError):
            ballast.unlink()
        await asyncio.sleep(0.02)


async def _read_only(disk: str, world: World, _pick: int) -> AsyncGenerator[None]:
    async def remount(how: str) -> bool:
        # Without the other options of the mount: some name users that a namespace does not know.
        command = ["mount", "--options-mode", "ignore", "-o", f"remount,{how}", "tmpfs", str(world.disks[disk])]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        return await process.wait() == 0

    for _ in range(20):  # not while anybody writes there
        if await remount("ro"):
            break
        await asyncio.sleep(0.02)
    yield
    for _ in range(1_000):
        if await remount("rw"):
            return
        await asyncio.sleep(0.02)
    raise OSError(f"{world.disks[disk]} stays read-only")


for _disk in ("workspace", "state", "tmp"):
    FAULTS[f"full {_disk}"] = Fault(asynccontextmanager(partial(_full, _disk)), EVERYWHERE)
    FAULTS[f"read-only {_disk}"] = Fault(asynccontextmanager(partial(_read_only, _disk)), EVERYWHERE)


async def _limited(what: int, room: Callable[[int], int], world: World, pick: int) -> AsyncGenerator[None]:
    server = server_of(world, pick)
    server.is_starved = server.is_starved or what == resource.RLIMIT_AS
    server.was_limited = True
    before: tuple[int, int] | None = None
    with suppress(OSError, ValueError):  # it may have been killed
        before = resource.prlimit(server.pid, what)
        resource.prlimit(server.pid, what, (room(server.pid), before[1]))
    yield
    with suppress(OSError):
        if before is not None:
            resource.prlimit(server.pid, what, before)


def _descriptors(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 3


def _address_space(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize() + 2 * MEGABYTE


FAULTS["few descriptors"] = Fault(
    asynccontextmanager(partial(_limited, resource.RLIMIT_NOFILE, _descriptors)), EVERYWHERE
)
FAULTS["little memory"] = Fault(asynccontextmanager(partial(_limited, resource.RLIMIT_AS, _address_space)), EVERYWHERE)


async def _flooded(kind: str, world: World, pick: int) -> AsyncGenerator[None]:
    caller = world.callers[pick % len(world.callers)]
    alias = UPSTREAMS[pick % len(UPSTREAMS)]
    async with asyncio.TaskGroup() as floods:
        for _ in range(3):
            nonce = caller.nonce()
            arguments = {"kind": kind, "count": FLOOD, "text": nonce}
            floods.create_task(caller.way.call(f"{alias}__flood", arguments, nonce))
        yield


for _kind in ("lists", "logs", "progress"):
    FAULTS[f"flood of {_kind}"] = Fault(asynccontextmanager(partial(_flooded, _kind)), EVERYWHERE)
