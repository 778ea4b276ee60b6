"""Three replicas behind HAProxy: what gets lost, what counts twice, and what it costs that they share a store."""

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
    with replicas(folder, root, UNASKED, shares=shares, store_options=AS_DEPLOYED) as all_of_them:
        yield all_of_them, root


def _row_of(name: str, work: Callable[[Replicas, Path], Coroutine[Any, Any, Pair]]) -> Callable[[Scene], Any]:
    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with _replicas(scene, name, shares=True) as (all_of_them, root):
            yield lambda: asyncio.run(work(all_of_them, root))

    return opened


async def _sessions(all_of_them: Replicas, _root: Path) -> Pair:
    """Each makes three calls, all at once with those of the others."""
    worked = [True] * SESSIONS
    async with AsyncExitStack() as stack:
        ways = [
            await stack.enter_async_context(
                open_lane("session", all_of_them.url, str(number), TOKENS["ada"], (), f"127.0.0.{number + 1}")
            )
            for number in range(SESSIONS)
        ]
        for _ in range(3):
            results = await asyncio.gather(*(way.call(PLAIN["name"], **PLAIN["arguments"]) for way in ways))
            worked = [before and has_succeeded(result) for before, result in zip(worked, results, strict=True)]
    return Pair(sum(worked))


async def _questions(all_of_them: Replicas, root: Path) -> Pair:
    urls = list(all_of_them.urls.values())
    done = 0
    for number in range(QUESTIONS):
        (root / "new.txt").unlink(missing_ok=True)
        async with connection(urls[number % 3]) as first, connection(urls[(number + 1) % 3]) as second:
            done += has_succeeded(await result_over(second, with_answers(TOOL, await result_over(first, TOOL))))
    return Pair(done)


async def _races(all_of_them: Replicas, root: Path) -> Pair:
    """How many answers did not count once, of those that all replicas are sent at the same time."""
    wrong = 0
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connection(url)) for url in all_of_them.urls.values()]
        for number in range(RACES):
            (root / "new.txt").unlink(missing_ok=True)
            again = with_answers(TOOL, await result_over(wires[number % 3], TOOL))
            results = await asyncio.gather(*(result_over(wire, again) for wire in wires))
            wrong += sum(map(has_succeeded, results)) != 1
    return Pair(wrong)


async def _restart(all_of_them: Replicas, root: Path) -> Pair:
    """How many calls of a rolling restart were not answered, or not done once."""
    ledger = root / "ledger.txt"
    callers = [
        Caller(
            all_of_them.url,
            f"127.0.0.{number + 1}",
            f"caller{number}",
            ledger,
            CALL_SECONDS,
            has_sessions=number % 2 > 0,
        )
        for number in range(CLIENTS)
    ]
    await restart_under(callers, all_of_them)
    lost = [each for caller in callers for each in caller.lost_calls]
    done = Counter(call for caller in callers for call in caller.completed_calls)
    deeds = Counter(ledger.read_text().split())
    wrong = (done - deeds) + (deeds - done)  # told and not done, or done and not told, or done twice
    begun = sum(caller.session_count for caller in callers if caller.session_count) - CLIENTS // 2
    note = f"{done.total():,} calls, {begun} sessions begun again{f'; first lost: {lost[0][:200]}' if lost else ''}"
    return Pair(len(lost) + wrong.total(), note=note)


def _cost(times: int, one: Callable[[Connection], Awaitable[object]], *, is_difference: bool) -> Callable[[Scene], Any]:
    """The same at a replica with a store and at one without, in turn."""

    async def in_turn(urls: tuple[str, str]) -> Pair:
        taken: list[list[float]] = [[], []]
        async with connection(urls[0]) as shared, connection(urls[1]) as alone:
            for number in range(WARMING + times):
                for side in (0, 1) if number % 2 else (1, 0):
                    started = time.perf_counter()
                    await one((shared, alone)[side])
                    if number >= WARMING:
                        taken[side].append((time.perf_counter() - started) * 1000)
        mine, theirs = map(statistics.median, taken)
        return Pair(mine - theirs, note=f"{mine:.3f} : {theirs:.3f} ms") if is_difference else Pair(mine, theirs)

    @contextmanager
    def opened(scene: Scene) -> Generator[Round]:
        with (
            _replicas(scene, "shared", shares=True) as (shared, _),
            _replicas(scene, "alone", shares=False) as (alone, _),
        ):
            yield lambda: asyncio.run(in_turn((shared.urls["r1"], alone.urls["r1"])))

    return opened


async def _question(wire: Connection) -> None:
    """A no does all that a yes does, but write a file."""
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
