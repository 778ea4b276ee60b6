"""Our own engine in a process that can be killed: for patterns that may run away, where there is no ripgrep.

Starting Python takes longer than most searches, so the process is kept for a while and used again. One search has it
at a time; another one at that time starts its own. It ends with its input, so it never outlives us for long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Generator
from typing import Any, NamedTuple

from tools.contract.resources import ExhaustedError
from tools.filesystem.child import WATCH_SECONDS, WATCHER, Child, Watch
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines import scan
from tools.filesystem.search.engines.engine import (
    Batch,
    EngineFailedError,
    Hits,
    Query,
    Runaway,
    Runaways,
    Tally,
)

IDLE_SECONDS = 60.0
"""How long a process waits for its next search."""

GRACE_SECONDS = 1.0
"""So long after the time limit a process ends itself, if by then we are not there to end it."""

STEP_SECONDS = 0.5
"""How long one step of a search may take, a hundred times what it takes usually; `MAX_RUNAWAYS` of that, and the
start of another process after each, are less than two seconds. A step is a block of lines, or one longer line."""

STEP_BYTES = 8_000_000
"""A longer line may take so much longer: a pattern that does not run away does some twenty megabytes in a second."""


class Workers:
    """The process that waits for its next search, if there is one."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle = _Idle(idle_seconds)
        # Also when the interpreter ends.
        weakref.finalize(self, self._idle.close)

    def take(self) -> Child:
        """The waiting process, or a new one.

        Raises:
            ChildFailedError: It does not start.
            EngineFailedError: There is nothing to start.
        """
        return self._idle.take() or self.start()

    def start(self) -> Child:
        """A new process; raises as `take`."""
        if not sys.executable:
            raise EngineFailedError("there is no Python to start")
        script = os.path.abspath(scan.__file__)
        return Child([sys.executable, "-P", "-S", script], os.path.dirname(script), given=subprocess.PIPE)

    def give_back(self, child: Child) -> None:
        """Let a process that has finished a search wait for the next."""
        self._idle.put(child)

    def close(self) -> None:
        """End the waiting process."""
        self._idle.close()


class _Idle:
    """Holds a waiting process for a bounded time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: Child | None = None

    def take(self) -> Child | None:
        """The waiting process, if it still runs."""
        with self._lock:
            child, self._child = self._child, None
            WATCHER.discard(self._expire)
        if child is not None and not child.is_running:
            child.close()
            return None
        return child

    def put(self, child: Child) -> None:
        """Keep a process, unless one waits already."""
        with self._lock:
            is_kept = self._child is None
            if is_kept:
                try:
                    WATCHER.add(self._expire, self._seconds)
                    self._child = child
                except ExhaustedError:
                    is_kept = False  # the system gives no thread, so nobody would end it
        if not is_kept:
            child.close()

    def close(self) -> None:
        """End the waiting process."""
        child = self.take()
        if child is not None:
            child.close()

    def _expire(self) -> None:
        self.close()


class WorkerEngine:
    """Gives each batch to `scan.py`, run by its absolute path and without anything from the environment.

    Args:
        workers: The processes.
        runaways: Where the files are told of on which a pattern ran away.
    """

    name = "worker"
    at_once = 1

    def __init__(self, workers: Workers, runaways: Runaways | None = None) -> None:
        self._workers = workers
        self._runaways = runaways or Runaways()

    def start(self, batch: Batch, query: Query, deadline: Deadline) -> WorkerRun:
        """Give a process the batch."""
        run = WorkerRun(self._workers, batch, query, deadline, self._runaways)
        try:
            run.give()
        except BaseException:
            run.close()
            raise
        return run


class _Step(NamedTuple):
    """What the process has begun to search.

    Args:
        file: Its number among those it was given.
        size: Bytes of the text.
        searched: Files searched before.
        huge: Files too large before.
    """

    file: int
    size: int
    searched: int
    huge: int


class WorkerRun:
    """One search, by a process for as long as the pattern does not run away in it; then by another one.

    A process that has ended by itself, or by somebody else's hand, is replaced once.

    Args:
        workers: Where the processes come from.
        batch: What is searched.
        query: What is searched for.
        deadline: When it has to be done.
        runaways: Where files are told of.
    """

    def __init__(self, workers: Workers, batch: Batch, query: Query, deadline: Deadline, runaways: Runaways) -> None:
        self.tally = Tally()
        self._workers = workers
        self._batch = batch
        self._query = query
        self._deadline = deadline
        self._runaways = runaways
        self._paths = [prefix + name for prefix, names, _ in batch.groups for name in names]
        self._running: tuple[Child, Watch] | None = None
        self._is_done = False
        self._step: _Step | None = None
        self._begun: _Step | None = None
        """The last step, whether or not it is done."""
        self._next = 0
        """The first of the paths that is not known to be done."""
        self._looked_at: _Step | None = None
        self._looks = 0
        self._runaway: _Step | None = None
        self._was_replaced = False

    def give(self) -> None:
        """Begin with the paths that are left.

        Raises:
            ChildFailedError: The process does not start, or cannot be watched.
            EngineFailedError: It does not take them.
        """
        while not self._is_given():
            self._replace()

    def _is_given(self) -> bool:
        """Give the paths that are left to a process; whether it takes them."""
        given = b"".join(os.fsencode(path) + b"\0" for path in self._paths)
        query = self._query
        request: dict[str, Any] = {
            "expression": query.pattern.written(),
            "tolerant": query.pattern.written(tolerant=True),
            "ignore_case": query.ignore_case,
            "needle": query.needle,
            "most": query.most,
            "folder": self._batch.folder.path,
            "size": len(given),
            "seconds": self._deadline.left + GRACE_SECONDS,
        }
        child = self._workers.start() if self._was_replaced else self._workers.take()
        watch = Watch(child, self._deadline, self._runs_away)
        self._running = child, watch
        watch.start()
        try:
            child.write(json.dumps(request).encode() + b"\n" + given)
        except OSError:
            return child.was_killed  # by its watch, which whoever asks for hits will see
        return True

    def _replace(self) -> None:
        """Leave a process that has ended to itself; another one shall do what is left.

        Raises:
            EngineFailedError: That was the second one.
        """
        if self._was_replaced and self._running:
            code, said = self._running[0].finish()
            raise EngineFailedError(f"the worker ended with {code}: {said[-500:]!r}")
        self._was_replaced = True
        self.close()

    def hits(self) -> Generator[Hits]:
        """The files with matches, in the order of the batch."""
        while self._running and not self._is_done:
            child, _ = self._running
            yield from self._told(child)
            if self._is_done or self._deadline.check():
                return
            if self._runaway is None:
                self._replace()
            self._go_on()
            if self._runaways.are_too_many or not self._paths:
                return
            self.give()

    def close(self) -> None:
        """Keep the process if it has finished, else end it."""
        if self._running is None:
            return
        child, watch = self._running
        self._running = None
        watch.end()
        if self._is_done and not child.was_killed:
            self._workers.give_back(child)
        else:
            child.close()

    def _told(self, child: Child) -> Generator[Hits]:
        """What the process tells, until it has finished, ends or the time is over."""
        for line in child.lines():
            if self._deadline.check():
                return
            try:
                hits = self._understood(line)
            except (ValueError, LookupError, TypeError):
                raise EngineFailedError(f"the worker tells what is not understood: {line[:500]!r}") from None
            if hits is not None:
                yield hits
            if self._is_done:
                return

    def _understood(self, line: bytes) -> Hits | None:
        """Note what a line tells; a file with matches, if that is what it tells of.

        Raises:
            LookupError: It is not understood; also `ValueError` and `TypeError`.
        """
        index, is_hit, numbers = line.partition(b":")
        if line.startswith(b"{"):
            told = json.loads(line)
            self._count(int(told["searched"]), int(told["huge"]))
            self._is_done = True
        elif is_hit:
            path = self._path(int(index))
            self._next, self._step = int(index) + 1, None
            return Hits(path, [int(number) for number in numbers.split(b",")])
        elif line:
            step = _Step(*map(int, line.split()))
            self._path(step.file)
            self._next, self._step, self._begun = step.file, step, step
        elif self._step:
            self._next, self._step = self._step.file + 1, None
        return None

    def _path(self, number: int) -> str:
        """One of the paths that are not known to be done."""
        if not self._next <= number < len(self._paths):
            raise LookupError
        return self._paths[number]

    def _runs_away(self) -> bool:
        """Whether the process has searched the same text for too long. Asked now and then by who watches it.

        What counts is how often it was asked: while the system lets nobody run, nobody asks.
        """
        step = self._step
        self._looks = self._looks + 1 if step is self._looked_at else 0
        self._looked_at = step
        if step is None or self._looks * WATCH_SECONDS < STEP_SECONDS * max(1.0, step.size / STEP_BYTES):
            return False
        self._runaway = step
        return True

    def _go_on(self) -> None:
        """After the process has ended: leave the paths that are done behind, and note where the pattern ran away."""
        self.close()
        step, begun = self._step, self._begun
        if step is not None and step is self._runaway:
            self._runaways.files.append(Runaway(self._batch.folder, self._paths[step.file], self._query))
            self._next = step.file + 1
        # Otherwise the process was done with it just before it was killed, or has ended for another reason.
        if begun is not None:
            self._count(begun.searched + (step is None), begun.huge)
        self._paths = self._paths[self._next :]
        self._next = 0
        self._step = self._begun = self._looked_at = self._runaway = None

    def _count(self, searched: int, huge: int) -> None:
        self.tally.searched += searched
        self.tally.huge += huge
