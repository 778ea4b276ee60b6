"""Runs blocking work in threads to keep the event loop free. A cancellation abandons the work."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock
from typing import Any, Generic, TypeVar

from anyio import get_cancelled_exc_class

from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ExhaustedError, exhaustion_of
from tools.machine.process_limits import start_thread

OutcomeT = TypeVar("OutcomeT")

MAX_THREADS = 32  # maximum number of threads with work that is not abandoned
# Maximum number of extra threads. They replace threads that are busy with abandoned work, which may wait for a file
# system forever
MAX_STUCK = 64
# Bytes of address space per thread; they limit the number of threads if the address space is limited. A thread's stack
# takes an eighth of these bytes.
THREAD_SPACE_BYTES = 64 << 20
QUEUE_SECONDS = 0.005  # how long work waits before it gets its own thread
# The longest time that work waits for its own thread while other threads keep finishing work. More threads would only
# compete for the interpreter's lock, unless their work consists of waiting.
MAX_QUEUE_SECONDS = 0.05
# How long an outcome is held back in order to be delivered together with later ones. Each time the event loop wakes up,
# it and the thread pass the interpreter's lock back and forth at every system call.
BATCH_SECONDS = 0.002
# How long to wait before checking whether a thread has become free, once no more threads can be created
CHECK_SECONDS = 10.0
RETRY_SECONDS = 0.05  # pause before a thread that ran out of memory tries again


class _Inbox:
    """Outcomes waiting for the event loop, which is woken only once for several outcomes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.first_at = 0.0  # when the first of the stored outcomes arrived
        self._outcomes: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False

    def put(self, future: asyncio.Future[Any], outcome: Any, failure: BaseException | None) -> None:
        """Store an outcome until the event loop is woken. Called in a thread."""
        while True:
            try:
                if not self._outcomes:
                    self.first_at = self.loop.time()
                self._outcomes.append((future, outcome, failure))
            except MemoryError:
                time.sleep(RETRY_SECONDS)
            else:
                return

    def wake(self) -> None:
        """Wake the event loop, from a thread."""
        while True:
            try:
                self._wake()
            except MemoryError:
                time.sleep(RETRY_SECONDS)
            except RuntimeError:
                return  # the event loop is closed
            else:
                return

    def _wake(self) -> None:
        if self._is_woken:
            return
        self._is_woken = True
        try:
            self.loop.call_soon_threadsafe(self.deliver)
        except MemoryError:
            self._is_woken = False
            raise

    def deliver(self) -> None:
        """Deliver the stored outcomes, on the event loop."""
        self._is_woken = False  # reset first, so that later outcomes wake the event loop again
        try:
            while self._outcomes:
                future, outcome, failure = self._outcomes.popleft()
                if future.done():
                    continue
                if failure is None:
                    future.set_result(outcome)
                else:
                    future.set_exception(failure)
        finally:
            if self._outcomes:  # memory ran out; the remaining outcomes must not wait for a new one
                self._wake()


class _Job(Generic[OutcomeT]):
    """One piece of work. Its outcome goes into the inbox."""

    def __init__(self, work: Callable[[], OutcomeT], inbox: _Inbox) -> None:
        self._work = work
        self.inbox = inbox
        self._context = copy_context()
        self.future: asyncio.Future[OutcomeT] = inbox.loop.create_future()
        self.submitted_at = inbox.loop.time()
        self.has_started = self.is_over = self.is_abandoned = False

    def run(self) -> None:
        """Do the work and put its outcome into the inbox. Runs in a thread."""
        outcome: Any = None
        failure: BaseException | None = None
        try:
            outcome = self._context.run(self._work)
        except StopIteration:
            failure = RuntimeError("the work raised StopIteration")  # a future cannot hold StopIteration
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            failure = error
        self.inbox.put(self.future, outcome, failure)
        # An error's traceback refers to this frame, which must not refer to the error: this cycle would keep alive
        # everything that the work has read, until garbage is collected.
        del self, failure


class Threads:
    """A pool of threads for blocking work.

    While work is quick, one thread does all of it, because several threads would pass the interpreter's lock back and
    forth at every system call. Work that waits behind slow work gets its own thread. At most `max_threads` threads do
    work that is not abandoned; the default depends on the limit on address space.
    """

    def __init__(self, max_threads: int | None = None) -> None:
        self._max_threads = max_threads
        self._lock = Lock()
        self._waiting: deque[_Job[Any]] = deque()
        self._job_queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()  # work for idle threads
        self._inbox: _Inbox | None = None
        self._next_check: asyncio.TimerHandle | None = None  # the next check for work that has waited too long
        self._is_closed = False
        self._last_start = 0.0  # when a thread last started work
        self._count = 0
        self._busy = 0  # number of threads that are working
        self._stuck = 0  # number of threads that are busy with abandoned work

    def start(self) -> None:
        """Start the first thread if there is none. Raises an `ExhaustedError` if the system cannot create one."""
        with self._lock:
            if self._count == 0:
                self._add_thread()

    def close(self) -> None:
        """Accept no more work. Work already accepted is finished."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._count):
                self._job_queue.put(None)

    def begin(self, work: Callable[[], OutcomeT]) -> asyncio.Future[OutcomeT]:
        """Submit work that is never abandoned.

        Raises an `ExhaustedError` if there is no thread and the system cannot create one, and a `RuntimeError` if the
        pool is closed.
        """
        return self._submit(work).future

    async def run(self, work: Callable[[], OutcomeT]) -> OutcomeT:
        """Submit work and wait for it. A cancellation drops work that is queued and abandons work that has begun.

        Raises an `ExhaustedError` if there is no thread and the system cannot create one, or if all threads are stuck
        in abandoned work; a `RuntimeError` if the pool is closed.
        """
        job = self._submit(work)
        try:
            return await job.future
        finally:
            if job.future.cancelled():
                with self._lock:
                    if job.has_started and not job.is_over:
                        job.is_abandoned = True
                        self._stuck += 1
                        if self._waiting:
                            with suppress(ExhaustedError):
                                self._start_next()
            del job  # its future has the error, see `_Job.run`

    def _submit(self, work: Callable[[], OutcomeT]) -> _Job[OutcomeT]:
        loop = asyncio.get_running_loop()
        if self._inbox is None or self._inbox.loop is not loop:
            self._inbox, self._next_check = _Inbox(loop), None
        job = _Job(work, self._inbox)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this thread pool is closed")
            self._waiting.append(job)
            if self._busy == self._stuck:
                try:
                    self._start_next()
                except ExhaustedError:
                    if self._count == 0:
                        self._waiting.clear()
                        raise
            if self._waiting and (
                self._next_check is None or self._next_check.when() > job.submitted_at + QUEUE_SECONDS
            ):
                # The next check was scheduled for much later while all threads were busy, but a thread may be free now.
                if self._next_check is not None:
                    self._next_check.cancel()
                self._next_check = loop.call_at(job.submitted_at + QUEUE_SECONDS, self._check_waiting)
        return job

    def _start_next(self) -> bool:
        """Start the oldest waiting work if a thread is free or can be added. Return True if the work was started."""
        if self._busy == self._count:
            if self._max_threads is None:
                self._max_threads = MAX_THREADS
                if sys.platform != "win32":
                    import resource  # noqa: PLC0415 - POSIX only

                    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
                    if limit != resource.RLIM_INFINITY:
                        self._max_threads = max(2, min(MAX_THREADS, limit // THREAD_SPACE_BYTES))
            if self._count - self._stuck >= self._max_threads or self._count >= self._max_threads + MAX_STUCK:
                return False
            self._add_thread()
        self._busy += 1
        job = self._waiting.popleft()
        self._last_start = job.inbox.loop.time()
        self._job_queue.put(job)
        return True

    def _add_thread(self) -> None:
        start_thread(self._work)
        self._count += 1

    def _work(self) -> None:
        """Run the loop of a worker thread."""
        job: _Job[Any] | None = None
        while True:
            try:
                job = job or self._job_queue.get()
                if job is None:
                    return
                job.has_started = True
                if not job.future.done():
                    job.run()
            except BaseException:  # noqa: BLE001 - out of memory; the thread has to survive
                time.sleep(RETRY_SECONDS)
            if job is not None:
                job = self._next_after(job)

    def _next_after(self, job: _Job[Any]) -> _Job[Any] | None:
        """Return a thread's next work after `job`, or `None` if there is none yet. Runs in the thread."""
        next_job: _Job[Any] | None = None
        is_delivered_soon = False
        with self._lock:
            job.is_over = True
            self._stuck -= job.is_abandoned
            if self._waiting:
                next_job = self._waiting.popleft()
                self._last_start = next_job.inbox.loop.time()
                # The next work may take any amount of time, so the outcome of `job` is held back only if the event loop
                # will check for outcomes soon.
                soon = self._last_start + QUEUE_SECONDS
                is_delivered_soon = (
                    job.inbox is self._inbox and self._next_check is not None and self._next_check.when() <= soon
                )
            else:
                self._busy -= 1
        if not is_delivered_soon or self._last_start - job.inbox.first_at >= BATCH_SECONDS:
            job.inbox.wake()
        return next_job

    def _check_waiting(self) -> None:
        """Assign threads to work that has waited too long. It fails after `CHECK_SECONDS` if all threads are stuck."""
        if self._inbox is not None:
            self._inbox.deliver()
        with self._lock:
            self._next_check = None
            loop = asyncio.get_running_loop()
            now, seconds = loop.time(), QUEUE_SECONDS
            while self._waiting and (
                self._waiting[0].future.done() or now - self._waiting[0].submitted_at >= QUEUE_SECONDS
            ):
                if self._waiting[0].future.done():
                    self._waiting.popleft()
                    continue
                is_progressing = now - self._last_start < QUEUE_SECONDS
                if is_progressing and now - self._waiting[0].submitted_at < MAX_QUEUE_SECONDS:
                    break
                with suppress(ExhaustedError):
                    if self._start_next():
                        continue
                seconds = CHECK_SECONDS
                if self._stuck < self._count or now - self._waiting[0].submitted_at < CHECK_SECONDS:
                    break
                stuck = f"all {self._count} of its threads are" if self._count > 1 else "its only thread is"
                reason = f"{stuck} waiting for something unresponsive, such as a network drive"
                self._waiting.popleft().future.set_exception(ExhaustedError(reason))
            if self._waiting:
                self._next_check = loop.call_later(seconds, self._check_waiting)


THREADS = Threads()  # the threads of this process; for the blocking work of a call, use `run_blocking`


def lend_threads() -> None:
    """Let the event loop resolve host names in the threads of `THREADS`, for which it does not wait at shutdown."""
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415 - loaded on first use

    class SharedExecutor(ThreadPoolExecutor):
        """An executor for the event loop, without threads of its own."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future = Future[Any]()

            def work() -> None:
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(fn(*args, **kwargs))
                    except BaseException as error:  # noqa: BLE001 - passed on to the caller
                        future.set_exception(error)

            THREADS.begin(work)
            return future

    asyncio.get_running_loop().set_default_executor(SharedExecutor())


async def run_blocking(signal: AbortSignal, work: Callable[[], OutcomeT]) -> OutcomeT:
    """Run a call's blocking work in a thread. If the call is cancelled, the work is abandoned.

    The work should check `signal` between steps, so that it stops after a cancellation. Raises a `ToolError`:
    `cancelled` if the signal is already set, `resources_exhausted` if no thread is available.
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
