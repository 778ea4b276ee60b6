"""The cost of the network transports, compared with the SDK's low-level server on the same web server."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from bench.http_client import PersistentConnection, RunningServer, check, is_whole, listening
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


def _kept_connection(*, modern: bool) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        def one_round() -> Pair:
            with listening(_ours(scene)) as ours, listening(SDK) as theirs:
                return _calls_in_turn(ours, theirs, modern=modern)

        yield one_round

    return open_row


def _calls_in_turn(ours: RunningServer, theirs: RunningServer, *, modern: bool) -> Pair:
    """Alternate calls to our server and to the SDK's."""
    clients = [PersistentConnection(server, modern=modern) for server in (ours, theirs)]
    durations: list[list[float]] = [[], []]
    try:
        for number in range(WARMING + CALLS):
            # The servers take turns in going first, because the second call finds the processor awake.
            for side in (0, 1) if number % 2 else (1, 0):
                duration = clients[side].timed(clients[side].tool_request("hello", GREETING))
                if number >= WARMING:
                    durations[side].append(duration)
    finally:
        for client in clients:
            client.close()
    return Pair(statistics.median(durations[0]), statistics.median(durations[1]))


@contextmanager
def _many_clients(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with listening(_ours(scene)) as ours, listening(SDK) as theirs:
            own_times, sdk_times = asyncio.run(_concurrent_calls(ours)), asyncio.run(_concurrent_calls(theirs))
        medians = f"medians {statistics.median(own_times):.0f} : {statistics.median(sdk_times):.0f}"
        return Pair(_p99(own_times), _p99(sdk_times), medians)

    yield one_round


def _p99(durations: list[float]) -> float:
    return sorted(durations)[int(len(durations) * 0.99)]


async def _concurrent_calls(server: RunningServer) -> list[float]:
    """Return the milliseconds of each call of many concurrent clients with one session each."""
    with _clients(server, CLIENTS, modern=False) as clients:
        streams = [await _streams(client) for client in clients]
        durations = await asyncio.gather(*(_timed_calls(CALLS_OF_EACH, *connection) for connection in streams))
    return [duration for times in durations for duration in times]


def _throughput(*, modern: bool) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
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

    return open_row


async def _throughput_of(ours: RunningServer, theirs: RunningServer, *, modern: bool) -> Pair:
    """Return how many calls per second one process answers if each connection always has one call in flight."""
    rates: list[list[float]] = [[], []]
    with (
        _clients(ours, CONNECTIONS, modern=modern) as to_ours,
        _clients(theirs, CONNECTIONS, modern=modern) as to_theirs,
    ):
        sides = [[await _streams(client) for client in clients] for clients in (to_ours, to_theirs)]
        for number in range(THROUGHPUT_SLICES):
            for side in (0, 1) if number % 2 else (1, 0):
                start = time.perf_counter()
                await asyncio.gather(*(_timed_calls(THROUGHPUT_CALLS, *values) for values in sides[side]))
                seconds = time.perf_counter() - start
                rates[side].append(CONNECTIONS * THROUGHPUT_CALLS / seconds)
    own_rate, sdk_rate = (statistics.median(values[2:]) for values in rates)  # the first slices warm up
    return Pair(own_rate, sdk_rate)


@contextmanager
def _clients(server: RunningServer, count: int, *, modern: bool) -> Generator[list[PersistentConnection]]:
    """Open clients that have each made one call."""
    clients = [PersistentConnection(server, modern=modern) for _ in range(count)]
    try:
        for client in clients:
            client.exchange(client.tool_request("hello", GREETING))
        yield clients
    finally:
        for client in clients:
            client.close()


_Streams = tuple[PersistentConnection, asyncio.StreamReader, asyncio.StreamWriter]


async def _streams(client: PersistentConnection) -> _Streams:
    return client, *await asyncio.open_connection(sock=client.socket)


async def _timed_calls(
    count: int, client: PersistentConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> list[float]:
    """Return the milliseconds of each call."""
    durations: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        writer.write(client.tool_request("hello", GREETING))
        answer = b""
        while not is_whole(answer):
            data = await reader.read(1 << 16)
            if not data:
                raise RuntimeError("the server closed the connection")
            answer += data
        durations.append((time.perf_counter() - start) * 1000)
        check(answer)
    return durations


@contextmanager
def _abandoned_sessions(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with listening(_ours(scene)) as server:
            baseline = memory_of(server.pid, "VmRSS")
            _open_and_leave(server)
            first = memory_of(server.pid, "VmRSS")
            _open_and_leave(server)
            second = memory_of(server.pid, "VmRSS")
            client = PersistentConnection(server)
            client.exchange(client.tool_request("hello", GREETING))
            client.close()
        return Pair(second, first, f"{baseline:.0f} MB before")

    yield one_round


def _open_and_leave(server: RunningServer) -> None:
    for _ in range(SESSIONS):
        PersistentConnection(server).vanish()


ROWS = (
    Row("call over Streamable HTTP on a kept connection, of the SDK's", 1.1, _kept_connection(modern=False)),
    Row("the same in the 2026-07-28 revision, of the SDK's", 1.1, _kept_connection(modern=True)),
    Row(
        f"calls a second over {CONNECTIONS} connections, of the SDK's",
        1.3,
        _throughput(modern=False),
        unit="",
        at_least=True,
    ),
    Row("the same in 2026-07-28, of the SDK's", 1.3, _throughput(modern=True), unit="", at_least=True),
    Row(
        f"99 % of calls of {CLIENTS} clients at once, of the SDK's", 1.1, _many_clients, informative=True, most_rounds=3
    ),
    Row(
        f"memory after {2 * SESSIONS:,} abandoned sessions, of that after {SESSIONS:,}",
        1.05,
        _abandoned_sessions,
        unit="MB",
        most_rounds=1,
    ),
)
