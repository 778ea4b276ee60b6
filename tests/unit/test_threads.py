"""The threads for blocking work: how many there are, and what becomes of work that nobody waits for."""

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

from tests.waiting import until
from tools.contract.tool_errors import ExhaustedError, ToolErrorType
from tools.machine import threads
from tools.machine.threads import Threads

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """What work waits for; opened at the end, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.requirement("scarcity.bounded")
async def test_more_work_than_threads_is_done_one_after_the_other(gate: threading.Event) -> None:
    few, begun = Threads(2), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        gate.wait()
        return number

    futures = [few.begin(lambda number=number: work(number)) for number in range(20)]
    await until(lambda: len(begun) == 2)
    gate.set()
    assert [await future for future in futures] == list(range(20))
    assert begun[:2] == [0, 1]
    few.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_work_that_nobody_waits_for_takes_no_thread_from_others(gate: threading.Event) -> None:
    few, begun = Threads(2), list[None]()

    def hang() -> None:
        begun.append(None)
        gate.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(few.run, hang)
        group.start_soon(few.run, hang)
        await until(lambda: len(begun) == 2)
        group.cancel_scope.cancel()
    assert await few.run(lambda: "done") == "done"
    few.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_work_is_refused_once_all_threads_hang_and_nobody_waits_for_them(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MAX_STUCK", 0)
    monkeypatch.setattr(threads, "CHECK_SECONDS", 0.05)
    one, begun = Threads(1), list[None]()

    def hang() -> None:
        begun.append(None)
        gate.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(one.run, hang)
        await until(lambda: begun)
        group.cancel_scope.cancel()
    with pytest.raises(ExhaustedError) as refusal:
        await one.run(lambda: None)
    assert refusal.value.code is ToolErrorType.RESOURCES_EXHAUSTED
    gate.set()
    assert await one.run(lambda: "done") == "done"
    one.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_work_that_is_cancelled_before_its_turn_is_not_begun(gate: threading.Event) -> None:
    one, begun = Threads(1), list[str]()
    first = one.begin(gate.wait)
    async with anyio.create_task_group() as group:
        group.start_soon(one.run, lambda: begun.append("never"))
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    gate.set()
    await first
    assert await one.run(lambda: "done") == "done"
    assert begun == []
    one.close()


@pytest.mark.requirement("scarcity.bounded")
@pytest.mark.parametrize("failure", [MemoryError(), StopIteration(), ValueError("wrong")])
async def test_whatever_work_raises_reaches_the_one_who_waits_and_the_thread_stays(failure: BaseException) -> None:
    one = Threads(1)

    def fail() -> None:
        raise failure

    with pytest.raises((RuntimeError, type(failure))):
        await one.run(fail)
    assert await one.run(lambda: "done") == "done"
    one.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_what_failed_work_had_read_is_not_kept_until_garbage_is_collected() -> None:
    class Content:
        """Something large."""

    kept, one = weakref.WeakSet[Content](), Threads(1)

    def fail() -> None:
        content = Content()
        kept.add(content)
        raise ValueError

    gc.disable()
    try:
        for _ in range(5):
            with suppress(ValueError):
                await one.run(fail)
        assert len(kept) <= 1, "only what the thread did last"
    finally:
        gc.enable()
        one.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_quick_work_is_done_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "QUEUE_SECONDS", 60.0)
    many = Threads(8)
    assert len({await future for future in [many.begin(threading.get_ident) for _ in range(50)]}) == 1
    many.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_work_that_waits_behind_many_quick_pieces_gets_no_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "QUEUE_SECONDS", 0.2)
    monkeypatch.setattr(threads, "MAX_QUEUE_SECONDS", 60.0)
    many = Threads(8)

    def piece() -> int:
        time.sleep(0.01)
        return threading.get_ident()

    assert len({await future for future in [many.begin(piece) for _ in range(50)]}) == 1
    many.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_what_came_of_quick_work_does_not_wait_for_the_slow_work_behind_it(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "BATCH_SECONDS", 60.0)
    one = Threads(1)
    quick, slow = one.begin(lambda: "done"), one.begin(gate.wait)
    assert await quick == "done"
    assert not slow.done()
    gate.set()
    assert await slow
    one.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_work_behind_slow_work_gets_a_thread_of_its_own(gate: threading.Event) -> None:
    many = Threads(8)
    slow = [many.begin(gate.wait) for _ in range(3)]
    assert await many.run(lambda: "done") == "done"
    assert not any(future.done() for future in slow)
    gate.set()
    assert all([await future for future in slow])
    many.close()


@pytest.mark.requirement("scarcity.one_thread")
async def test_after_a_time_without_free_threads_no_work_waits_behind_slow_work(gate: threading.Event) -> None:
    two, full = Threads(2), threading.Event()
    busy = [two.begin(full.wait) for _ in range(3)]
    await anyio.sleep(4 * threads.QUEUE_SECONDS)  # by now it is known that there are no more
    full.set()
    assert all([await future for future in busy])
    slow = two.begin(gate.wait)
    with anyio.fail_after(threads.CHECK_SECONDS / 2):
        assert await two.run(lambda: "done") == "done"
    assert not slow.done()
    gate.set()
    await slow
    two.close()


@pytest.mark.requirement("scarcity.bounded")
async def test_what_came_of_work_is_told_once_there_is_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one, tell, failures = Threads(1), asyncio.get_running_loop().call_soon_threadsafe, [MemoryError(), MemoryError()]

    def scarce(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return tell(*arguments)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", scarce)
    assert await one.run(lambda: "done") == "done"
    assert not failures
    failures += [MemoryError(), MemoryError()]
    assert [await future for future in [one.begin(lambda: "done") for _ in range(5)]] == ["done"] * 5
    one.close()
