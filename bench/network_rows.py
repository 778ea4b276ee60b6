"""What the network transports cost: ours beside the SDK's low-level server under the same web server."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from bench.http_client import KeptConnection, Listening, check, is_whole, listening
from bench.line_client import Start
from bench.rows import PYTHON, SERVERS, NotRunError, Opener, Pair, Round, Row, Scene, memory_of

SDK = Start([PYTHON, str(SERVERS / "sdk_streamable_http.py")])
GREETING = {"name": "x"}
WARMING = 150
CALLS = 1_000

CLIENTS = 200
CALLS_OF_EACH = 20

CONNECTIONS = 64
THROUGHPUT_CALLS = 10
THROUGHPUT_SLICES = 16

SESSIONS = 10_000


def _ours(scene: Scene) -> Start:
    return Start([PYTHON, str(SERVERS / "ours_with_noop.py"), str(scene.scratch), "http"])


def _kept(*, modern: bool) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        def one_round() -> Pair:
            with listening(_ours(scene)) as ours, listening(SDK) as theirs:
                return _calls_in_turn(ours, theirs, modern=modern)

        yield one_round

    return opened


def _calls_in_turn(ours: Listening, theirs: Listening, *, modern: bool) -> Pair:
    """Call after call, one of ours and one of theirs."""
    clients = [KeptConnection(server, modern=modern) for server in (ours, theirs)]
    taken: list[list[float]] = [[], []]
    try:
        for number in range(WARMING + CALLS):
            # Each goes first in turn, since the second finds the processor awake.
            for side in (0, 1) if number % 2 else (1, 0):
                one = clients[side].timed(clients[side].tool_request("hello", GREETING))
                if number >= WARMING:
                    taken[side].append(one)
    finally:
        for client in clients:
            client.close()
    return Pair(statistics.median(taken[0]), statistics.median(taken[1]))


@contextmanager
def _many(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with listening(_ours(scene)) as ours, listening(SDK) as theirs:
            mine, others = asyncio.run(_at_once(ours)), asyncio.run(_at_once(theirs))
        medians = f"medians {statistics.median(mine):.0f} : {statistics.median(others):.0f}"
        return Pair(_p99(mine), _p99(others), medians)

    yield one_round


def _p99(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.99)]


async def _at_once(server: Listening) -> list[float]:
    """Milliseconds of each call of many clients with a session each, all at once."""
    with _clients(server, CLIENTS, modern=False) as clients:
        streams = [await _streams(client) for client in clients]
        taken = await asyncio.gather(*(_timed_calls(CALLS_OF_EACH, *each) for each in streams))
    return [one for times in taken for one in times]


def _throughput(*, modern: bool) -> Opener:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        cores = sorted(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else []
        if len(cores) < 2:
            raise NotRunError("it needs Linux and two cores: one for the server, one for the clients")

        def one_round() -> Pair:
            with listening(_ours(scene)) as ours, listening(SDK) as theirs:
                for server in (ours, theirs):
                    for thread in os.listdir(f"/proc/{server.pid}/task"):
                        os.sched_setaffinity(int(thread), cores[:1])
                os.sched_setaffinity(0, cores[1:])
                try:
                    return asyncio.run(_throughput_of(ours, theirs, modern=modern))
                finally:
                    os.sched_setaffinity(0, cores)

        yield one_round

    return opened


async def _throughput_of(ours: Listening, theirs: Listening, *, modern: bool) -> Pair:
    """How many calls one process answers in a second when all connections have one under way."""
    rates: list[list[float]] = [[], []]
    with (
        _clients(ours, CONNECTIONS, modern=modern) as to_ours,
        _clients(theirs, CONNECTIONS, modern=modern) as to_theirs,
    ):
        sides = [[await _streams(client) for client in clients] for clients in (to_ours, to_theirs)]
        for number in range(THROUGHPUT_SLICES):
            for side in (0, 1) if number % 2 else (1, 0):
                started = time.perf_counter()
                await asyncio.gather(*(_timed_calls(THROUGHPUT_CALLS, *each) for each in sides[side]))
                seconds = time.perf_counter() - started
                rates[side].append(CONNECTIONS * THROUGHPUT_CALLS / seconds)
    mine, others = (statistics.median(each[2:]) for each in rates)  # the first slices warm up
    return Pair(mine, others)


@contextmanager
def _clients(server: Listening, count: int, *, modern: bool) -> Generator[list[KeptConnection]]:
    """Clients that have called once."""
    clients = [KeptConnection(server, modern=modern) for _ in range(count)]
    try:
        for client in clients:
            client.exchange(client.tool_request("hello", GREETING))
        yield clients
    finally:
        for client in clients:
            client.close()


_Streams = tuple[KeptConnection, asyncio.StreamReader, asyncio.StreamWriter]


async def _streams(client: KeptConnection) -> _Streams:
    return client, *await asyncio.open_connection(sock=client.socket)


async def _timed_calls(
    count: int, client: KeptConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> list[float]:
    """Milliseconds of each call."""
    taken: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        writer.write(client.tool_request("hello", GREETING))
        answer = b""
        while not is_whole(answer):
            data = await reader.read(1 << 16)
            if not data:
                raise RuntimeError("the server closed the connection")
            answer += data
        taken.append((time.perf_counter() - started) * 1000)
        check(answer)
    return taken


@contextmanager
def _abandoned(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with listening(_ours(scene)) as server:
            before = memory_of(server.pid, "VmRSS")
            _open_and_leave(server)
            first = memory_of(server.pid, "VmRSS")
            _open_and_leave(server)
            second = memory_of(server.pid, "VmRSS")
            client = KeptConnection(server)
            client.exchange(client.tool_request("hello", GREETING))
            client.close()
        return Pair(second, first, f"{before:.0f} MB before")

    yield one_round


def _open_and_leave(server: Listening) -> None:
    for _ in range(SESSIONS):
        KeptConnection(server).vanish()


ROWS = (
    Row("call over Streamable HTTP on a kept connection, of the SDK's", 1.1, _kept(modern=False)),
    Row("the same in the 2026-07-28 revision, of the SDK's", 1.1, _kept(modern=True)),
    Row(
        f"calls a second over {CONNECTIONS} connections, of the SDK's",
        1.3,
        _throughput(modern=False),
        unit="",
        at_least=True,
    ),
    Row("the same in 2026-07-28, of the SDK's", 1.3, _throughput(modern=True), unit="", at_least=True),
    Row(f"99 % of calls of {CLIENTS} clients at once, of the SDK's", 1.1, _many, informative=True, most_rounds=3),
    Row(
        f"memory after {2 * SESSIONS:,} abandoned sessions, of that after {SESSIONS:,}",
        1.05,
        _abandoned,
        unit="MB",
        most_rounds=1,
    ),
)
