"""Three replicas behind HAProxy: lost calls, answers that count twice, and the cost of the shared store."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.rows import NotRunError, Pair, Round, Row, Scene
from tests.interaction.network.lanes import open_lane
from tests.interaction.network.wires import Connection, connection
from tests.interaction.replicas.callers import Caller, has_succeeded, restart_under, result_over, with_answers
from tests.interaction.replicas.scene import HAPROXY, REDIS, TOKENS, Replicas, replicas

SESSIONS = 20
QUESTIONS = 10
RACES = 10_000
CLIENTS = 50
CALL_SECONDS = 1.0
WARMING = 100
TIMES = 500

AS_DEPLOYED = ("--appendonly", "yes")  # how deploy/compose.yaml starts the store

UNASKED: dict[str, Any] = {
    "shell": {"sandbox": "off", "maxConcurrent": 64},
    "confirmation": {"whenUnavailable": "client"},
    "http": {"drain": 5_000, "grace": 30_000},
}
TOOL: dict[str, Any] = {"name": "write_file", "arguments": {"file_path": "new.txt", "content": "new\n"}}
PLAIN: dict[str, Any] = {"name": "list_directory", "arguments": {"path": "."}}


@contextmanager
def _replicas(scene: Scene, name: str, *, shares: bool) -> Generator[tuple[Replicas, Path]]:
    if HAPROXY is None or REDIS is None:
        raise NotRunError("there is no haproxy or no redis-server on this machine")
    folder = scene.folder(name)
    root = folder / "workspace"
    root.mkdir()
    with replicas(folder, root, UNASKED, shares=shares, store_options=AS_DEPLOYED) as cluster:
        yield cluster, root


def _row_of(name: str, work: Callable[[Replicas, Path], Coroutine[Any, Any, Pair]]) -> Callable[[Scene], Any]:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        with _replicas(scene, name, shares=True) as (cluster, root):
            yield lambda: asyncio.run(work(cluster, root))

    return open_row


async def _sessions(cluster: Replicas, _root: Path) -> Pair:
    """Let all sessions make three calls each, at the same time."""
    is_ok = [True] * SESSIONS
    async with AsyncExitStack() as stack:
        lanes = [
            await stack.enter_async_context(
                open_lane("session", cluster.url, str(number), TOKENS["ada"], (), f"127.0.0.{number + 1}")
            )
            for number in range(SESSIONS)
        ]
        for _ in range(3):
            results = await asyncio.gather(*(session.call(PLAIN["name"], **PLAIN["arguments"]) for session in lanes))
            is_ok = [was_ok and has_succeeded(result) for was_ok, result in zip(is_ok, results, strict=True)]
    return Pair(sum(is_ok))


async def _questions(cluster: Replicas, root: Path) -> Pair:
    urls = list(cluster.urls.values())
    count = 0
    for number in range(QUESTIONS):
        (root / "new.txt").unlink(missing_ok=True)
        async with connection(urls[number % 3]) as first, connection(urls[(number + 1) % 3]) as second:
            count += has_succeeded(await result_over(second, with_answers(TOOL, await result_over(first, TOOL))))
    return Pair(count)


async def _races(cluster: Replicas, root: Path) -> Pair:
    """Send each answer to all replicas at once, and count the answers that were not accepted exactly once."""
    failures = 0
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connection(url)) for url in cluster.urls.values()]
        for number in range(RACES):
            (root / "new.txt").unlink(missing_ok=True)
            answer = with_answers(TOOL, await result_over(wires[number % 3], TOOL))
            results = await asyncio.gather(*(result_over(wire, answer) for wire in wires))
            failures += sum(map(has_succeeded, results)) != 1
    return Pair(failures)


async def _restart(cluster: Replicas, root: Path) -> Pair:
    """Count the calls during a rolling restart that were not answered, or not executed exactly once."""
    ledger = root / "ledger.txt"
    callers = [
        Caller(
            cluster.url,
            f"127.0.0.{number + 1}",
            f"caller{number}",
            ledger,
            CALL_SECONDS,
            has_sessions=number % 2 > 0,
        )
        for number in range(CLIENTS)
    ]
    await restart_under(callers, cluster)
    lost_calls = [call for caller in callers for call in caller.lost_calls]
    reported_calls = Counter(call for caller in callers for call in caller.completed_calls)
    executed_calls = Counter(ledger.read_text().split())
    # Calls that were reported but not executed, or executed but not reported, or executed twice
    mismatches = (reported_calls - executed_calls) + (executed_calls - reported_calls)
    reopened_sessions = sum(caller.session_count for caller in callers if caller.session_count) - CLIENTS // 2
    first_lost = f"; first lost: {lost_calls[0][:200]}" if lost_calls else ""
    note = f"{reported_calls.total():,} calls, {reopened_sessions} sessions begun again{first_lost}"
    return Pair(len(lost_calls) + mismatches.total(), note=note)


def _cost(
    times: int, call_once: Callable[[Connection], Awaitable[object]], *, is_difference: bool
) -> Callable[[Scene], Any]:
    """Alternate between a replica with a shared store and one without."""

    async def in_turn(urls: tuple[str, str]) -> Pair:
        durations: list[list[float]] = [[], []]
        async with connection(urls[0]) as shared_cluster, connection(urls[1]) as single_cluster:
            for number in range(WARMING + times):
                for side in (0, 1) if number % 2 else (1, 0):
                    start = time.perf_counter()
                    await call_once((shared_cluster, single_cluster)[side])
                    if number >= WARMING:
                        durations[side].append((time.perf_counter() - start) * 1000)
        own_median, other_median = map(statistics.median, durations)
        return (
            Pair(own_median - other_median, note=f"{own_median:.3f} : {other_median:.3f} ms")
            if is_difference
            else Pair(own_median, other_median)
        )

    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        with (
            _replicas(scene, "shared", shares=True) as (shared_cluster, _),
            _replicas(scene, "alone", shares=False) as (single_cluster, _),
        ):
            yield lambda: asyncio.run(in_turn((shared_cluster.urls["r1"], single_cluster.urls["r1"])))

    return open_row


async def _question(wire: Connection) -> None:
    """Answer a question with no: this does the same work as a yes, except for writing the file."""
    assert (await result_over(wire, with_answers(TOOL, await result_over(wire, TOOL), "deny")))["isError"]


async def _plain(wire: Connection) -> None:
    assert has_succeeded(await result_over(wire, PLAIN))


ROWS = (
    Row(
        f"sessions that work across three replicas, of {SESSIONS}",
        SESSIONS,
        _row_of("sessions", _sessions),
        unit="",
        at_least=True,
        most_rounds=1,
    ),
    Row(
        f"questions that were answered at another replica, of {QUESTIONS}",
        QUESTIONS,
        _row_of("questions", _questions),
        unit="",
        at_least=True,
        most_rounds=1,
    ),
    Row(
        f"answers that did not count once, of {RACES:,} sent to three replicas at a time",
        0,
        _row_of("races", _races),
        unit="",
        most_rounds=1,
    ),
    Row(
        f"calls lost or done twice in a rolling restart of three replicas under {CLIENTS} clients",
        0,
        _row_of("restart", _restart),
        unit="",
        most_rounds=1,
    ),
    Row(
        "a question at a replica with a store, more than at one without",
        0.3,
        _cost(TIMES, _question, is_difference=True),
    ),
    Row("a plain call at a replica with a store, of one without", 1.03, _cost(TIMES, _plain, is_difference=False)),
)
