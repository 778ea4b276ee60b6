"""Blocking work: in a thread, so that the event loop goes on; after a cancellation nobody waits for it."""

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

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ExhaustedError, exhaustion_of
from tools.machine.process_limits import start_thread

OutcomeT = TypeVar("OutcomeT")

MOST = 32  # threads whose work somebody waits for
# Further threads, in place of those whose work nobody waits for any more: a file system may never answer
MOST_STUCK = 64
# Where the address space is limited, there is a thread for so much of it: an eighth of it goes into their stacks
SPACE_OF_A_THREAD = 64 << 20
TURN_SECONDS = 0.005  # how long work waits for a thread that is at one piece of work before it gets one of its own
# How long it waits at most where the threads at work finish one piece after another: more of them would only take the
# interpreter's lock from each other, unless what they do is to wait
LONGEST_TURN_SECONDS = 0.05
# How long what came of work is kept to be told together with what comes of the work behind it. Each time the event loop
# is woken, it and the thread hand the interpreter's lock to each other at every call of the system.
TOGETHER_SECONDS = 0.002
# How often it is looked whether work that waits for a thread can still hope for one, once there are no more
LOOK_SECONDS = 10.0
AGAIN_SECONDS = 0.05  # until a thread that lacked memory for its work's outcome tries again


class _Inbox:
    """What came of work, on its way to the event loop: woken once for all that is there by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.since = 0.0  # when the first of what is there came
        self._outcomes: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False

    def put(self, future: asyncio.Future[Any], outcome: Any, failure: BaseException | None) -> None:
        """Keep it, in a thread, until the event loop is woken."""
        while True:
            try:
                if not self._outcomes:
                    self.since = self.loop.time()
                self._outcomes.append((future, outcome, failure))
            except MemoryError:
                time.sleep(AGAIN_SECONDS)
            else:
                return

    def wake(self) -> None:
        """Have the event loop told, from a thread."""
        while True:
            try:
                self._wake()
            except MemoryError:
                time.sleep(AGAIN_SECONDS)
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
        """Tell what is there to those who wait for it, on the event loop."""
        self._is_woken = False  # before it is emptied: what comes from now on wakes it again
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
            if self._outcomes:  # there was no memory to tell one of them; the others wait for nothing else
                self._wake()


class _Job(Generic[OutcomeT]):
    """One piece of work; what came of it goes into the inbox."""

    def __init__(self, work: Callable[[], OutcomeT], inbox: _Inbox) -> None:
        self._work = work
        self.inbox = inbox
        self._context = copy_context()
        self.future: asyncio.Future[OutcomeT] = inbox.loop.create_future()
        self.since = inbox.loop.time()  # when it came
        self.is_begun = self.is_over = self.is_abandoned = False

    def do(self) -> None:
        """Do it, in a thread, and put what came of it into the inbox."""
        outcome: Any = None
        failure: BaseException | None = None
        try:
            outcome = self._context.run(self._work)
        except StopIteration:
            failure = RuntimeError("the work raised StopIteration")  # which no future can hold
        except BaseException as error:  # noqa: BLE001 - for the one who waits
            failure = error
        self.inbox.put(self.future, outcome, failure)


class Threads:
    """Does blocking work.

    One thread does all of it as long as it is quick: several would hand the interpreter's lock to each other at every
    call of the system. Work behind slow work gets a thread of its own, up to `most` threads whose work somebody waits
    for; by default as many as make sense here.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lock = Lock()
        self._waiting: deque[_Job[Any]] = deque()
        self._begun: SimpleQueue[_Job[Any] | None] = SimpleQueue()  # work for threads that have none
        self._inbox: _Inbox | None = None
        self._turn: asyncio.TimerHandle | None = None  # when it is looked next whether work has waited too long
        self._is_closed = False
        self._last_begun = 0.0  # when a thread last took work
        self._count = 0
        self._busy = 0  # of them, those that work
        self._stuck = 0  # of these, those whose work nobody waits for any more

    def start(self) -> None:
        """Start the first thread, if there is none; an `ExhaustedError` if the system gives none."""
        with self._lock:
            if self._count == 0:
                self._add()

    def close(self) -> None:
        """Take no more work. What was taken is done."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._count):
                self._begun.put(None)

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
        loop = asyncio.get_running_loop()
        if self._inbox is None or self._inbox.loop is not loop:
            self._inbox, self._turn = _Inbox(loop), None
        job = _Job(work, self._inbox)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("these threads are closed")
            self._waiting.append(job)
            if self._busy == self._stuck:
                try:
                    self._begin_next()
                except ExhaustedError:
                    if self._count == 0:
                        self._waiting.clear()
                        raise
            if self._waiting and (self._turn is None or self._turn.when() > job.since + TURN_SECONDS):
                # Where there were no more threads it was to be looked much later; by now some may be free.
                if self._turn is not None:
                    self._turn.cancel()
                self._turn = loop.call_at(job.since + TURN_SECONDS, self._look)
        return job

    def _begin_next(self) -> bool:
        """Have a thread begin with what has waited longest, if one is free or may be added, and can be."""
        if self._busy == self._count:
            if not self._may_grow():
                return False
            self._add()
        self._busy += 1
        self._begun.put(self._take_next())
        return True

    def _take_next(self) -> _Job[Any]:
        job = self._waiting.popleft()
        self._last_begun = job.inbox.loop.time()
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

    def _work(self) -> None:
        """In a thread: work, for ever."""
        job: _Job[Any] | None = None
        while True:
            try:
                job = job or self._begun.get()
                if job is None:
                    return
                job.is_begun = True
                if not job.future.done():
                    job.do()
            except BaseException:  # noqa: BLE001 - there is no memory; the thread has to stay
                time.sleep(AGAIN_SECONDS)
            if job is not None:
                job = self._next_after(job)

    def _next_after(self, job: _Job[Any]) -> _Job[Any] | None:
        """In a thread whose work is done: what it does next."""
        following: _Job[Any] | None = None
        is_told_soon = False
        with self._lock:
            job.is_over = True
            self._stuck -= job.is_abandoned
            if self._waiting:
                following = self._take_next()
                # What follows may take any time; then the event loop looks by itself.
                soon = self._last_begun + TURN_SECONDS
                is_told_soon = job.inbox is self._inbox and self._turn is not None and self._turn.when() <= soon
            else:
                self._busy -= 1
        if not is_told_soon or self._last_begun - job.inbox.since >= TOGETHER_SECONDS:
            job.inbox.wake()
        return following

    def _abandon(self, job: _Job[Any]) -> None:
        with self._lock:
            if job.is_begun and not job.is_over:
                job.is_abandoned = True
                self._stuck += 1
                if self._waiting:
                    with suppress(ExhaustedError):
                        self._begin_next()

    def _look(self) -> None:
        """Give what has waited too long a thread; give it up, if no thread does anything that somebody waits for."""
        if self._inbox is not None:
            self._inbox.deliver()
        with self._lock:
            self._turn = None
            loop = asyncio.get_running_loop()
            now, seconds = loop.time(), TURN_SECONDS
            while self._waiting and (self._waiting[0].future.done() or now - self._waiting[0].since >= TURN_SECONDS):
                if self._waiting[0].future.done():
                    self._waiting.popleft()
                    continue
                is_going_on = now - self._last_begun < TURN_SECONDS
                if is_going_on and now - self._waiting[0].since < LONGEST_TURN_SECONDS:
                    break
                with suppress(ExhaustedError):
                    if self._begin_next():
                        continue
                seconds = LOOK_SECONDS
                if self._stuck < self._count or now - self._waiting[0].since < LOOK_SECONDS:
                    break
                why = (
                    f"all of its {self._count} threads wait for something that does not answer, such as a network drive"
                )
                self._waiting.popleft().future.set_exception(ExhaustedError(why))
            if self._waiting:
                self._turn = loop.call_later(seconds, self._look)


THREADS = Threads()  # those of this process. The blocking work of a call goes through `run_blocking`.


def lend_threads() -> None:
    """Have the event loop look up names in these threads: those of its own it would wait for, each in its turn."""
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415 - only where names are looked up

    class Lent(ThreadPoolExecutor):
        """Takes work as the event loop gives it, and has no threads."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future = Future[Any]()

            def work() -> None:
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(fn(*args, **kwargs))
                    except BaseException as error:  # noqa: BLE001 - for the one who waits
                        future.set_exception(error)

            THREADS.begin(work)
            return future

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
