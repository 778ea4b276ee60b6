"""A child process that works on files: nothing of ours in its environment, gone when its time is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from tools.filesystem.finding.deadline import Deadline

WATCH_SECONDS = 0.05
"""How often cancellation and the time limit are looked at while the child is silent."""

REAP_SECONDS = 0.0002
"""A process that has closed its output is gone within a few times this."""

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
        errors: Takes what it says on stderr; without it, `finish` tells.
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
        errors: int | IO[bytes] = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={name: os.environ[name] for name in _KEPT if name in os.environ} | dict(environment or {}),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ChildFailedError(f"the process does not start: {type(error).__name__}") from None
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
    def is_running(self) -> bool:
        """Whether it still runs."""
        return not self._is_gone()

    def read(self) -> bytes:
        """Some output; nothing at its end."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        return os.read(self._process.stdout.fileno(), 1 << 16)

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
        """After all output was read: the exit code, and what it said on stderr."""
        assert self._process.stderr is not None  # noqa: S101 - it was asked for
        said = self._process.stderr.read(1 << 14)
        self._reap()
        return self._process.returncode, said

    def kill(self) -> None:
        """End the process and those that it started; they are not waited for."""
        # The process number is ours until it is reaped, which needs the same lock.
        with self._lock:
            if self._is_reaped:
                return
            self.was_killed = True
            with suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process if it still runs, and wait until it is gone."""
        self.kill()
        self._reap()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _is_gone(self) -> bool:
        with self._lock:
            self._is_reaped = self._is_reaped or self._process.poll() is not None
            return self._is_reaped

    def _reap(self) -> None:
        pause = threading.Event()
        while not self._is_gone():
            pause.wait(REAP_SECONDS)


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
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="child-watcher", daemon=True)

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
            self._thread.start()
        except RuntimeError:
            raise ChildFailedError("no thread can be started to watch it") from None

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            if self._deadline.signal.aborted or self._deadline.is_over or self._is_too_much():
                self._child.kill()
                return
