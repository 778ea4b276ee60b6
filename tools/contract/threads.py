"""Blocking work: in a thread, so that the event loop goes on; after a cancellation nobody waits for it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock
from typing import Any, Generic, TypeVar

from anyio import get_cancelled_exc_class

from tools.contract.limits import AbortSignal
from tools.contract.resource_exhaustion import ExhaustedError, exhaustion_of, start_thread

OutcomeT = TypeVar("OutcomeT")

MOST = 32
"""Threads whose work somebody waits for."""

MOST_STUCK = 64
"""Further threads, in place of those whose work nobody waits for any more: a file system may never answer."""

SPACE_OF_A_THREAD = 64 << 20
"""Where the address space is limited, there is a thread for so much of it: an eighth of it goes into their stacks."""

LOOK_SECONDS = 10.0
"""How often it is looked whether work that waits for a thread can still hope for one."""

AGAIN_SECONDS = 0.05
"""Where there is no memory to tell the event loop what came of some work, it is told so much later."""


class _Job(Generic[OutcomeT]):
    """One piece of work.

    Args:
        work: What is to be done.
    """

    def __init__(self, work: Callable[[], OutcomeT]) -> None:
        self._work = work
        self._context = copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[OutcomeT] = self.loop.create_future()
        self.look: asyncio.TimerHandle | None = None
        self.is_begun = self.is_over = self.is_abandoned = False

    def do(self) -> None:
        """Do it, in a thread, and tell the event loop what came of it."""
        outcome: Any = None
        failure: BaseException | None = None
        try:
            outcome = self._context.run(self._work)
        except StopIteration:
            failure = RuntimeError("the work raised StopIteration")  # which no future can hold
        except BaseException as error:  # noqa: BLE001 - for the one who waits
            failure = error
        while True:
            try:
                self.loop.call_soon_threadsafe(self._tell, outcome, failure)
            except MemoryError:
                time.sleep(AGAIN_SECONDS)
            except RuntimeError:
                return  # the event loop is closed
            else:
                return

    def _tell(self, outcome: OutcomeT, failure: BaseException | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(outcome)
        else:
            self.future.set_exception(failure)


class Threads:
    """Does blocking work.

    Args:
        most: So many threads whose work somebody waits for; by default as many as make sense here.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lock = Lock()
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._is_closed = False
        self._count = 0
        self._stuck = 0
        """Of them, those whose work nobody waits for any more."""
        self._free = 0
        """Those that wait for work; below zero, work waits for them."""

    def start(self) -> None:
        """Start the first thread, if there is none.

        Raises:
            ExhaustedError: The system gives none.
        """
        with self._lock:
            if self._count == 0:
                self._add()

    def close(self) -> None:
        """Take no more work. What was taken is done."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._count):
                self._jobs.put(None)

    def begin(self, work: Callable[[], OutcomeT]) -> asyncio.Future[OutcomeT]:
        """Have work done that is not given up.

        Raises:
            ExhaustedError: There is no thread, and the system gives none.
            RuntimeError: They are closed.
        """
        return self._take(work).future

    async def run(self, work: Callable[[], OutcomeT]) -> OutcomeT:
        """Have work done, and wait for it. After a cancellation nobody waits for what is begun; the rest is not begun.

        Raises:
            ExhaustedError: There is no thread: the system gives none, or each does what nobody waits for any more.
        """
        job = self._take(work)
        try:
            return await job.future
        finally:
            if job.future.cancelled():
                self._abandon(job)

    def _take(self, work: Callable[[], OutcomeT]) -> _Job[OutcomeT]:
        job = _Job(work)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("these threads are closed")
            if self._free <= 0 and self._may_grow():
                try:
                    self._add()
                except ExhaustedError:
                    if self._count == 0:
                        raise
            self._free -= 1
            has_to_wait = self._free < 0
        if has_to_wait:
            job.look = job.loop.call_later(LOOK_SECONDS, self._look, job)
            job.future.add_done_callback(lambda _: job.look and job.look.cancel())
        self._jobs.put(job)
        return job

    def _may_grow(self) -> bool:
        if self._most is None:
            self._most = MOST
            if sys.platform != "win32":
                import resource  # noqa: PLC0415 - not on every system

                limit, _ = resource.getrlimit(resource.RLIMIT_AS)
                if limit != resource.RLIM_INFINITY:
                    self._most = max(2, min(MOST, limit // SPACE_OF_A_THREAD))
        return self._count - self._stuck < self._most and self._count < self._most + MOST_STUCK

    def _add(self) -> None:
        start_thread(self._work)
        self._count += 1
        self._free += 1

    def _work(self) -> None:
        """In a thread: work, for ever."""
        while True:
            job: _Job[Any] | None = None
            try:
                job = self._jobs.get()
                if job is None:
                    return
                job.is_begun = True
                if not job.future.done():
                    job.do()
            except BaseException:  # noqa: BLE001 - there is no memory; the thread has to stay
                time.sleep(AGAIN_SECONDS)
            if job is None:
                continue
            with self._lock:
                self._free += 1
                self._stuck -= job.is_abandoned
                job.is_over = True

    def _abandon(self, job: _Job[Any]) -> None:
        with self._lock:
            if job.is_begun and not job.is_over:
                job.is_abandoned = True
                self._stuck += 1

    def _look(self, job: _Job[Any]) -> None:
        """Give work up that waits, if no thread does anything that somebody waits for."""
        if self._stuck >= self._count:
            why = f"all of its {self._count} threads wait for something that does not answer, such as a network drive"
            job.future.set_exception(ExhaustedError(why))
        else:
            job.look = job.loop.call_later(LOOK_SECONDS, self._look, job)


THREADS = Threads()
"""Those of this process. The blocking work of a call goes through `run_blocking`."""


def lend_threads() -> None:
    """Have the event loop look up names in these threads: those of its own it would wait for, each in its turn."""
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415 - only where names are looked up

    class Lent(ThreadPoolExecutor):
        """Takes work as the event loop gives it, and has no threads."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            told = Future[Any]()

            def work() -> None:
                if told.set_running_or_notify_cancel():
                    try:
                        told.set_result(fn(*args, **kwargs))
                    except BaseException as error:  # noqa: BLE001 - for the one who waits
                        told.set_exception(error)

            THREADS.begin(work)
            return told

    asyncio.get_running_loop().set_default_executor(Lent())


async def run_blocking(signal: AbortSignal, work: Callable[[], OutcomeT]) -> OutcomeT:
    """Run blocking work of a call in a thread that is abandoned on cancellation.

    The work should look at `signal` between steps: after a cancellation nobody waits for it any more.

    Raises:
        ToolError: `cancelled`, if the signal is set already; `resources_exhausted`, if there is too little of
            something for it.
    """
    signal.raise_if_aborted()
    try:
        return await THREADS.run(work)
    except get_cancelled_exc_class():
        signal.abort()
        raise
    except (MemoryError, OSError, RuntimeError) as error:
        exhaustion = exhaustion_of(error)
        if exhaustion is None:
            raise
        raise exhaustion from None
