"""The threads for blocking work: how many there are, and what happens to work that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.tables import each_of
from tests.waiting import until
from tools.contract.tool_errors import ExhaustedError, ToolErrorType, exhaustion_of
from tools.machine import threads
from tools.machine.threads import Threads

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """An event that work waits for. It is set at the end, so that no thread is left over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.requirement("scarcity.bounded")
async def test_more_work_than_threads_is_queued(gate: threading.Event) -> None:
    pool, starts = Threads(2), list[int]()

    def work(number: int) -> int:
        starts.append(number)
        gate.wait()
        return number

    futures = [pool.begin(lambda number=number: work(number)) for number in range(20)]
    await until(lambda: len(starts) == 2)
    gate.set()
    assert [await future for future in futures] == list(range(20))
    assert starts[:2] == [0, 1]
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_work_that_nobody_waits_for_takes_no_thread_from_others(gate: threading.Event) -> None:
    pool, starts = Threads(2), list[None]()

    def hang() -> None:
        starts.append(None)
        gate.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, hang)
        group.start_soon(pool.run, hang)
        await until(lambda: len(starts) == 2)
        group.cancel_scope.cancel()
    assert await pool.run(lambda: "done") == "done"
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_work_is_refused_once_all_threads_hang_and_nobody_waits_for_them(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MAX_STUCK", 0)
    monkeypatch.setattr(threads, "CHECK_SECONDS", 0.05)
    pool, starts = Threads(1), list[None]()

    def hang() -> None:
        starts.append(None)
        gate.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, hang)
        await until(lambda: starts)
        group.cancel_scope.cancel()
    with pytest.raises(ExhaustedError) as refusal:
        await pool.run(lambda: None)
    assert refusal.value.code is ToolErrorType.RESOURCES_EXHAUSTED
    gate.set()
    assert await pool.run(lambda: "done") == "done"
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_work_that_is_cancelled_before_its_turn_is_never_started(gate: threading.Event) -> None:
    pool, starts = Threads(1), list[str]()
    first = pool.begin(gate.wait)
    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, lambda: starts.append("never"))
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    gate.set()
    await first
    assert await pool.run(lambda: "done") == "done"
    assert starts == []
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
@pytest.mark.parametrize("failure", [MemoryError(), StopIteration(), ValueError("wrong")])
async def test_exceptions_of_work_reach_the_caller_and_the_thread_survives(failure: BaseException) -> None:
    pool = Threads(1)

    def fail() -> None:
        raise failure

    with pytest.raises((RuntimeError, type(failure))):
        await pool.run(fail)
    assert await pool.run(lambda: "done") == "done"
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_objects_of_failed_work_are_freed_without_garbage_collection() -> None:
    class Content:
        """An object that failed work refers to."""

    contents, pool = weakref.WeakSet[Content](), Threads(1)

    def fail() -> None:
        content = Content()
        contents.add(content)
        raise ValueError

    gc.disable()
    try:
        for _ in range(5):
            with suppress(ValueError):
                await pool.run(fail)
        assert len(contents) <= 1, "more than the content of the last work is kept"
    finally:
        gc.enable()
        pool.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_quick_work_is_done_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "QUEUE_SECONDS", 60.0)
    pool = Threads(8)
    assert len({await future for future in [pool.begin(threading.get_ident) for _ in range(50)]}) == 1
    pool.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_work_behind_many_quick_pieces_gets_no_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "QUEUE_SECONDS", 0.2)
    monkeypatch.setattr(threads, "MAX_QUEUE_SECONDS", 60.0)
    pool = Threads(8)

    def piece() -> int:
        time.sleep(0.01)
        return threading.get_ident()

    assert len({await future for future in [pool.begin(piece) for _ in range(50)]}) == 1
    pool.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_the_result_of_quick_work_does_not_wait_for_slow_work_behind_it(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "BATCH_SECONDS", 60.0)
    pool = Threads(1)
    quick, slow = pool.begin(lambda: "done"), pool.begin(gate.wait)
    assert await quick == "done"
    assert not slow.done()
    gate.set()
    assert await slow
    pool.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_work_behind_slow_work_gets_its_own_thread(gate: threading.Event) -> None:
    pool = Threads(8)
    slow = [pool.begin(gate.wait) for _ in range(3)]
    assert await pool.run(lambda: "done") == "done"
    assert not any(future.done() for future in slow)
    gate.set()
    assert all([await future for future in slow])
    pool.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_after_a_time_without_free_threads_no_work_waits_behind_slow_work(gate: threading.Event) -> None:
    pool, release = Threads(2), threading.Event()
    busy = [pool.begin(release.wait) for _ in range(3)]
    await anyio.sleep(4 * threads.QUEUE_SECONDS)  # by now the pool knows that it cannot get another thread
    release.set()
    assert all([await future for future in busy])
    slow = pool.begin(gate.wait)
    with anyio.fail_after(threads.CHECK_SECONDS / 2):
        assert await pool.run(lambda: "done") == "done"
    assert not slow.done()
    gate.set()
    await slow
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_the_result_of_work_is_delivered_once_there_is_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, call_soon, failures = (
        Threads(1),
        asyncio.get_running_loop().call_soon_threadsafe,
        [MemoryError(), MemoryError()],
    )

    def failing_call(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return call_soon(*arguments)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", failing_call)
    assert await pool.run(lambda: "done") == "done"
    assert not failures
    failures += [MemoryError(), MemoryError()]
    assert [await future for future in [pool.begin(lambda: "done") for _ in range(5)]] == ["done"] * 5
    pool.close()


@pytest.mark.requirement("scarcity.bounded")
@each_of(
    ("message", "is_exhausted"),
    [
        ("_binding.abi3.so: failed to map segment from shared object", True),
        ("libx.so: cannot allocate memory in static TLS block", True),
        ("No module named 'missing'", False),
    ],
)
def test_a_module_that_cannot_be_loaded_for_want_of_memory_counts_as_exhaustion(
    message: str, is_exhausted: bool
) -> None:
    assert (exhaustion_of(ImportError(message)) is not None) is is_exhausted
