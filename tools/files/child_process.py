"""The process that takes the text out of documents which may be hostile (`document_worker.py`), from our side."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self, cast

from tools.contract.exhaustion import ExhaustedError, start_thread
from tools.contract.limits import AbortSignal, Deadline
from tools.files import document_worker

WATCH_SECONDS = 0.05
"""How often cancellation and the time limit are looked at while the child is silent."""

REAP_SECONDS = 0.0002
"""A process that has closed its output is gone within a few times this."""

FINISH_SECONDS = 2.0
"""A process that is still there so long after it has closed its output hangs."""

MAX_SAID_BYTES = 1 << 20
"""What a process may say on stderr before it is ended; of its failure, the first lines tell."""

_KEPT = ("SYSTEMROOT", "TEMP", "TMP")
"""What a process on Windows does not start without."""


class ChildFailedError(Exception):
    """The process cannot be run here. The text is for the log."""


class Child:
    """A running process, in a group of its own. To be closed by whoever started it.

    Args:
        arguments: The program by its absolute path, and its arguments.
        folder: Its working folder.
        given: What it reads: nothing, a file, or with `subprocess.PIPE` what `write` gives it.
        errors: Takes what it says on stderr; without it, `said` tells.
        environment: Its environment variables, but for what Windows needs.

    Raises:
        ChildFailedError: It does not start.
    """

    def __init__(
        self,
        arguments: Sequence[str | bytes],
        folder: str,
        *,
        given: int | IO[bytes] = subprocess.DEVNULL,
        errors: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._said: IO[bytes] | None = None
        try:
            self._said = unnamed_file() if errors is None else None
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=self._said if errors is None else errors,
                env={name: os.environ[name] for name in _KEPT if name in os.environ} | dict(environment or {}),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if self._said is not None:
                self._said.close()
            raise ChildFailedError(f"the process does not start: {type(error).__name__}") from error
        self._lock = threading.Lock()
        self._is_reaped = False
        self.was_killed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    @property
    def says_too_much(self) -> bool:
        """Whether it has said more on stderr than it may."""
        return self._said is not None and os.fstat(self._said.fileno()).st_size > MAX_SAID_BYTES

    def read(self) -> bytes:
        """Some output; nothing at its end. Once it is gone, nobody is waited for to whom it has left its pipe."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        descriptor = self._process.stdout.fileno()
        while not _is_readable(descriptor, WATCH_SECONDS):
            if self._is_gone() and not _is_readable(descriptor, 0):
                return b""
        return os.read(descriptor, 1 << 16)

    def lines(self, longest: int | None = None) -> Iterator[bytes]:
        """Its output by lines, without their endings; what follows the last ending is dropped.

        Args:
            longest: Bytes of a line; no more are taken after a longer one. `None` for any.
        """
        buffer = b""
        while chunk := self.read():
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from lines
            if longest is not None and len(buffer) > longest:
                return

    def write(self, data: bytes) -> None:
        """Give it something to read.

        Raises:
            BrokenPipeError: It reads no more.
        """
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        view = memoryview(data)
        while view:
            view = view[os.write(self._process.stdin.fileno(), view) :]

    def finish(self) -> tuple[int, bytes]:
        """After all output was read: the exit code, and what it said on stderr.

        Raises:
            ChildFailedError: It does not end.
        """
        if not self._reap(FINISH_SECONDS):
            raise ChildFailedError(f"the process has closed its output, but still runs after {FINISH_SECONDS:g} s")
        return self._process.returncode, self._told()

    def _told(self) -> bytes:
        if self._said is None:
            return b""
        # The child has the same position: it is at the end of what was said.
        self._said.seek(0)
        return self._said.read(MAX_SAID_BYTES + 1)

    def kill(self) -> None:
        """End the process and those that it started; they are not waited for."""
        # The process number is ours until it is reaped, which needs the same lock.
        with self._lock:
            if self._is_reaped:
                return
            self.was_killed = True
            self._end_group()

    def close(self) -> None:
        """End the process if it still runs, and wait until it is gone."""
        self.kill()
        self._reap()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _is_gone(self) -> bool:
        with self._lock:
            if not self._is_reaped:
                if self._has_ended():
                    self._end_group()  # what it has left behind
                self._is_reaped = self._process.poll() is not None
            return self._is_reaped

    def _has_ended(self) -> bool:
        """Whether it is known to have ended while its process number is still ours."""
        if sys.platform != "linux":
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False  # somebody else has reaped it

    def _reap(self, seconds: float = math.inf) -> bool:
        """Wait until it is gone, so long at most; whether it is."""
        pause = threading.Event()
        end = time.monotonic() + seconds
        while not self._is_gone():
            if time.monotonic() >= end:
                return False
            pause.wait(REAP_SECONDS)
        return True


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Whether a pipe has something to read, or is at its end; waits so long for it."""
    if sys.platform == "win32":
        return True  # only files of the network can be waited for; to read waits as well
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1_000))


def unnamed_file() -> IO[bytes]:
    """A file for what a process is given or says, in memory where that is possible.

    A pipe that nobody reads would hold it up, and a disk makes it dear that each word may be written by itself.
    """
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    return open(make("document"), "w+b", buffering=0) if make else tempfile.TemporaryFile(buffering=0)


class Watcher:
    """Looks at what is watched, from one thread for all of it."""

    def __init__(self) -> None:
        self._due: dict[Callable[[], float | None], float] = {}
        self._changed = threading.Condition()
        self._is_started = False

    def add(self, look: Callable[[], float | None], seconds: float) -> None:
        """Look after so many seconds, and again after as many as the look gives; it gives `None` for no more.

        Raises:
            ExhaustedError: The system gives no thread.
        """
        with self._changed:
            if not self._is_started:
                start_thread(self._run)
                self._is_started = True
            self._due[look] = time.monotonic() + seconds
            self._changed.notify()

    def discard(self, look: Callable[[], float | None]) -> None:
        """Look no more; one look may be at work still."""
        with self._changed:
            self._due.pop(look, None)

    def _run(self) -> None:
        while True:
            try:
                self._look_at_due()
            except Exception:  # noqa: BLE001 - above all, that there is no memory; the thread has to stay
                time.sleep(WATCH_SECONDS)

    def _look_at_due(self) -> None:
        with self._changed:
            first = min(self._due.values(), default=None)
            self._changed.wait(None if first is None else max(0.0, first - time.monotonic()))
            now = time.monotonic()
            due = [look for look, moment in self._due.items() if moment <= now]
        for look in due:
            self._look(look)

    def _look(self, look: Callable[[], float | None]) -> None:
        seconds = look()
        with self._changed:
            if look not in self._due:
                return
            if seconds is None:
                del self._due[look]
            else:
                self._due[look] = time.monotonic() + seconds


WATCHER = Watcher()
"""That of this process."""


class Watch:
    """Kills a child when a deadline is over or the call is cancelled, for as long as the `with` lasts.

    Args:
        child: Whom.
        deadline: When.
        is_too_much: Whether it has to be killed for another reason.
    """

    def __init__(self, child: Child, deadline: Deadline, is_too_much: Callable[[], bool] = lambda: False) -> None:
        self._child = child
        self._is_too_much = is_too_much
        self._deadline = deadline
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Watch from now on.

        Raises:
            ChildFailedError: The system gives no thread.
        """
        try:
            WATCHER.add(self._look, WATCH_SECONDS)
        except ExhaustedError as error:
            raise ChildFailedError("no thread can be started to watch it") from error

    def end(self) -> None:
        """Watch no more."""
        WATCHER.discard(self._look)
        with self._lock:
            self._is_over = True

    def _look(self) -> float | None:
        with self._lock:
            if self._is_over:
                return None
            is_late = self._deadline.signal.aborted or self._deadline.is_over
            if is_late or self._child.says_too_much or self._is_too_much():
                self._child.kill()
                return None
        return WATCH_SECONDS


_NO_PROGRAMS = {"PATH": ""}
"""The PDF library looks for programs that decode pictures, and none of them is wanted."""


@dataclass(frozen=True, slots=True)
class DocumentWorker:
    """A running worker.

    Args:
        child: Its process.
        deadline: When it is killed.
    """

    child: Child
    deadline: Deadline

    def messages(self, longest: int) -> Iterator[dict[str, Any]]:
        """What it says; the last one has `end`, unless it was killed or came to an end by itself.

        Args:
            longest: Bytes of one message; none are taken after a longer one.
        """
        for line in self.child.lines(longest):
            yield cast("dict[str, Any]", json.loads(line))


@contextmanager
def document_worker_for(
    kind: str, *arguments: str, document: IO[bytes], memory: int, seconds: float, signal: AbortSignal
) -> Generator[DocumentWorker]:
    """Start a worker; it is gone when the `with` ends. Blocking: call it in a worker thread.

    Args:
        kind: The kind of document.
        arguments: What the kind takes.
        document: The open file that it reads, from its position on; no path is handed over.
        memory: Bytes of address space that it may take.
        seconds: How long it may run.
        signal: It is killed as soon as this is set.

    Raises:
        ChildFailedError: It does not start.
    """
    script = os.path.abspath(document_worker.__file__)
    limits = (str(memory), str(max(1, round(seconds))))
    deadline = Deadline(signal, seconds)
    with (
        Child(
            [sys.executable, "-P", script, kind, *limits, *arguments],
            os.path.dirname(script),
            given=document,
            errors=subprocess.DEVNULL,
            environment=_NO_PROGRAMS,
        ) as child,
        Watch(child, deadline),
    ):
        yield DocumentWorker(child, deadline)
