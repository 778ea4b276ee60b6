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
from typing import Any

from tools.filesystem.child import Child, Watch
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines import scan
from tools.filesystem.search.engines.engine import Batch, EngineFailedError, Hits, Query, Tally

IDLE_SECONDS = 60.0
"""How long a process waits for its next search."""

GRACE_SECONDS = 1.0
"""So long after the time limit a process ends itself, if by then we are not there to end it."""


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
        waiting = self._idle.take()
        if waiting is not None:
            return waiting
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
        self._timer: threading.Timer | None = None

    def take(self) -> Child | None:
        """The waiting process, if it still runs."""
        with self._lock:
            child, self._child = self._child, None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if child is not None and not child.is_running:
            child.close()
            return None
        return child

    def put(self, child: Child) -> None:
        """Keep a process, unless one waits already."""
        timer = threading.Timer(self._seconds, self._expire, [child])
        timer.daemon = True
        with self._lock:
            is_kept = self._child is None
            if is_kept:
                try:
                    timer.start()
                    self._child, self._timer = child, timer
                except RuntimeError:
                    is_kept = False  # the system gives no thread, so nobody would end it
        if not is_kept:
            child.close()

    def close(self) -> None:
        """End the waiting process."""
        child = self.take()
        if child is not None:
            child.close()

    def _expire(self, child: Child) -> None:
        with self._lock:
            if self._child is not child:
                return
            self._child = self._timer = None
        child.close()


class WorkerEngine:
    """Gives each batch to `scan.py`, run by its absolute path and without anything from the environment.

    Args:
        workers: The processes.
    """

    name = "worker"
    at_once = 1

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def start(self, batch: Batch, query: Query, deadline: Deadline) -> WorkerRun:
        """Give a process the batch."""
        paths = [prefix + name for prefix, names, _ in batch.groups for name in names]
        given = b"".join(os.fsencode(path) + b"\0" for path in paths)
        request: dict[str, Any] = {
            "expression": query.pattern.written(),
            "tolerant": query.pattern.written(tolerant=True),
            "ignore_case": query.ignore_case,
            "needle": query.needle,
            "most": query.most,
            "folder": batch.folder.path,
            "size": len(given),
            "seconds": deadline.left + GRACE_SECONDS,
        }
        run = WorkerRun(self._workers, paths, deadline)
        try:
            run.give(json.dumps(request).encode() + b"\n" + given)
        except BaseException:
            run.close()
            raise
        return run


class WorkerRun:
    """One search of a process.

    Args:
        workers: Where it comes from.
        paths: What is searched.
        deadline: When it has to be done.
    """

    def __init__(self, workers: Workers, paths: list[str], deadline: Deadline) -> None:
        self.tally = Tally()
        self._workers = workers
        self._paths = paths
        self._deadline = deadline
        self._child = workers.take()
        self._watch = Watch(self._child, deadline)
        self._is_done = False

    def give(self, request: bytes) -> None:
        """Begin.

        Raises:
            ChildFailedError: It cannot be watched.
            EngineFailedError: It does not take it.
        """
        self._watch.start()
        try:
            self._child.write(request)
        except OSError:
            if not self._child.was_killed:
                raise EngineFailedError("the worker takes no request") from None

    def hits(self) -> Generator[Hits]:
        """The files with matches, in the order of the batch."""
        for line in self._child.lines():
            if self._deadline.check():
                return
            if line.startswith(b"{"):
                told = json.loads(line)
                self.tally = Tally(told["searched"], told["huge"])
                self._is_done = True
                return
            index, _, numbers = line.partition(b":")
            yield Hits(self._paths[int(index)], [int(number) for number in numbers.split(b",")])
        self._deadline.check()
        if not self._child.was_killed:
            code, said = self._child.finish()
            raise EngineFailedError(f"the worker ended with {code}: {said[-500:]!r}")

    def close(self) -> None:
        """Keep the process if it has finished, else end it."""
        self._watch.end()
        if self._is_done and not self._child.was_killed:
            self._workers.give_back(self._child)
        else:
            self._child.close()
