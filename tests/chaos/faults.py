"""The faults. Each one starts, lasts for some time, and is undone."""

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

from tests.chaos.clients import LOST, SessionClient, SseClient, StatelessClient, StdioClient
from tests.chaos.load import UPSTREAMS, Caller
from tests.chaos.world import TOKEN, Server, World, until
from tests.interaction.network.wires import connection

NETWORK = frozenset({"http", "sse", "lone", "replicas"})
STDIO = frozenset({"stdio"})
EVERYWHERE = NETWORK | STDIO
REPLICAS = frozenset({"replicas"})

OWN_ROLES = ("server", "watchdog", "broker", "supervisor", "keeper")
PEERS = ("command", "language server", "pipe upstream", "web upstream", "old upstream")
CLIENTS = 100
FLOOD = 500
MEGABYTE = 1 << 20

Act = Callable[[World, int], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Args:
        act: Causes the fault, and undoes it on exit.
        transports: The transports of the worlds in which it may happen.
    """

    act: Act
    transports: frozenset[str]


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, transports: frozenset[str] = EVERYWHERE
) -> Callable[[Callable[[World, int], AsyncGenerator[None]]], None]:
    def register(act: Callable[[World, int], AsyncGenerator[None]]) -> None:
        FAULTS[name] = Fault(asynccontextmanager(act), transports)

    return register


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


async def target(world: World, role: str, pick: int) -> int | None:
    """Return one of the processes with a role. For keepers, which live for moments only, it waits a second."""
    if role == "keeper":
        await until(lambda: world.pids(role), 1.0)
    pids = world.pids(role)
    return pids[pick % len(pids)] if pids else None


def server_of(world: World, pick: int) -> Server:
    return world.servers[pick % len(world.servers)]


async def _kill(role: str, world: World, pick: int) -> AsyncGenerator[None]:
    pid = await target(world, role, pick)
    for server in world.servers:
        server.may_end = server.may_end or (pid == server.pid and pid is not None)
    if pid is not None:
        send(pid, signal.SIGKILL)
        world.deaths[role] = world.deaths.get(role, 0) + 1
    yield
    if role in world.peers and pid is not None:
        world.peers[role].wait()
        await world.start_peer(role)


async def _stop(role: str, world: World, pick: int) -> AsyncGenerator[None]:
    pid = await target(world, role, pick)
    if pid is not None:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if pid is not None:
            send(pid, signal.SIGCONT)


for _role in (*OWN_ROLES, *PEERS):
    FAULTS[f"kill {_role}"] = Fault(asynccontextmanager(partial(_kill, _role)), EVERYWHERE)
    FAULTS[f"stop {_role}"] = Fault(asynccontextmanager(partial(_stop, _role)), EVERYWHERE)
for _name, _act in (("kill", _kill), ("stop", _stop)):
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
    for client in world.clients:
        assert isinstance(client, StdioClient)
        if last_words and not client.is_lost:
            with suppress(OSError):
                os.write(client.writing, last_words)
        send(server.client_pid, signal.SIGKILL)
        await client.close()


@fault("kill client", STDIO)
async def _kill_client(world: World, pick: int) -> AsyncGenerator[None]:
    await _leave(world, b"" if pick % 2 else b'{"jsonrpc": "2.0", "id": 1, "meth')
    yield


@fault("end of input", STDIO)
async def _end_of_input(world: World, _pick: int) -> AsyncGenerator[None]:
    world.servers[0].may_end = True
    for client in world.clients:
        assert isinstance(client, StdioClient)
        client.say_no_more()
    yield


@fault("deaf client", STDIO)
async def _deaf_client(world: World, _pick: int) -> AsyncGenerator[None]:
    client = world.clients[0]
    assert isinstance(client, StdioClient)
    client.may_read.clear()
    caller = Caller(client, world.root, random.Random(0), world.tally)
    async with asyncio.TaskGroup() as calls:
        for _ in range(30):
            calls.create_task(caller.once("large command"))
        try:
            yield
        finally:
            client.may_read.set()


@fault("deaf clients", NETWORK)
async def _deaf_clients(world: World, pick: int) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for number in range(10):
            client = SessionClient(f"d{number}", server_of(world, pick).url, TOKEN if world.has_store else "")
            with suppress(*LOST):
                if await client.connect():
                    wire = await stack.enter_async_context(connection(client.url))
                    await wire.send(client.raw("pipe__repeat", {"text": "deaf", "count": 500_000}))
        yield


@fault("half requests", NETWORK)
async def _half_requests(world: World, pick: int) -> AsyncGenerator[None]:
    request = SessionClient("h", "", TOKEN).raw("pipe__echo", {"text": "half"})
    async with AsyncExitStack() as stack:
        for number in range(20):
            with suppress(*LOST):
                wire = await stack.enter_async_context(connection(server_of(world, pick).url))
                await wire.send(request[: len(request) * number // 20])
                if number % 3 == 0:
                    wire.end_output()
                elif number % 3 == 1:
                    wire.reset()
        yield


@fault("many clients", NETWORK)
async def _many_clients(world: World, pick: int) -> AsyncGenerator[None]:
    """Clients come and go: some end their session, some leave in the middle of a call, some just vanish."""
    rng = random.Random(pick)
    token, urls = TOKEN if world.has_store else "", [server.url for server in world.servers]

    async def visit(number: int) -> None:
        await asyncio.sleep(rng.random())
        url = urls[number % len(urls)]
        kinds = {"sse": SseClient} if world.setting.transport == "sse" else {"http": SessionClient, "lone": None}
        client_class = rng.choice(list(kinds.values()))
        client = (
            StatelessClient(f"c{number}", urls, token)
            if client_class is None
            else client_class(f"c{number}", url, token)
        )
        caller = Caller(client, world.root, rng, world.tally)
        if await client.connect():
            await caller.once("ping")
            call = asyncio.create_task(caller.once(rng.choice(("upstream web", "upstream pipe", "search", "command"))))
            await asyncio.wait([call], timeout=rng.choice((0.05, 60)))
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
        if isinstance(client, SseClient) or rng.random() < 0.5:  # an SSE session lasts as long as its stream
            await client.close()
        world.tally.problems += client.misrouted

    async with asyncio.TaskGroup() as visits:
        for number in range(CLIENTS):
            visits.create_task(visit(number))
        yield


@fault("clock")
async def _clock(world: World, pick: int) -> AsyncGenerator[None]:
    world.set_clock((-86_400, -3_600, 3_600, 86_400)[pick % 4])
    yield
    world.set_clock(0)


async def _fill(disk: str, world: World, _pick: int) -> AsyncGenerator[None]:
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


async def _make_read_only(disk: str, world: World, _pick: int) -> AsyncGenerator[None]:
    async def remount(mode: str) -> bool:
        # The other mount options are ignored: some name users that the namespace does not know.
        command = ["mount", "--options-mode", "ignore", "-o", f"remount,{mode}", "tmpfs", str(world.disks[disk])]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        return await process.wait() == 0

    for _ in range(20):  # it fails while a file is open for writing
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
    FAULTS[f"full {_disk}"] = Fault(asynccontextmanager(partial(_fill, _disk)), EVERYWHERE)
    FAULTS[f"read-only {_disk}"] = Fault(asynccontextmanager(partial(_make_read_only, _disk)), EVERYWHERE)


async def _limit(limit: int, room: Callable[[int], int], world: World, pick: int) -> AsyncGenerator[None]:
    server = server_of(world, pick)
    server.is_starved = server.is_starved or limit == resource.RLIMIT_AS
    server.was_limited = True
    old_limits: tuple[int, int] | None = None
    with suppress(OSError, ValueError):  # it may have been killed
        old_limits = resource.prlimit(server.pid, limit)
        resource.prlimit(server.pid, limit, (room(server.pid), old_limits[1]))
    yield
    with suppress(OSError):
        if old_limits is not None:
            resource.prlimit(server.pid, limit, old_limits)


def _descriptors(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 3


def _address_space(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize() + 2 * MEGABYTE


FAULTS["few descriptors"] = Fault(
    asynccontextmanager(partial(_limit, resource.RLIMIT_NOFILE, _descriptors)), EVERYWHERE
)
FAULTS["little memory"] = Fault(asynccontextmanager(partial(_limit, resource.RLIMIT_AS, _address_space)), EVERYWHERE)


async def _flood(kind: str, world: World, pick: int) -> AsyncGenerator[None]:
    caller = world.callers[pick % len(world.callers)]
    alias = UPSTREAMS[pick % len(UPSTREAMS)]
    async with asyncio.TaskGroup() as floods:
        for _ in range(3):
            nonce = caller.nonce()
            arguments = {"kind": kind, "count": FLOOD, "text": nonce}
            floods.create_task(caller.client.call(f"{alias}__flood", arguments, nonce))
        yield


for _kind in ("lists", "logs", "progress"):
    FAULTS[f"flood of {_kind}"] = Fault(asynccontextmanager(partial(_flood, _kind)), EVERYWHERE)
