"""A child process that searches: nothing of ours in its environment, gone when its time is over or nobody waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines.engine import EngineFailedError

WATCH_SECONDS = 0.05
"""How often cancellation and the time limit are looked at while the child is silent."""

REAP_SECONDS = 0.001
"""A process that has closed its output is gone within this time."""

_KEPT = ("SYSTEMROOT", "TEMP", "TMP")
"""What a process on Windows does not start without."""


class Child:
    """A running process, in a group of its own.

    Args:
        process: With a pipe as stdout and stderr.
        deadline: When it has to be gone.
    """

    def __init__(self, process: subprocess.Popen[bytes], deadline: Deadline) -> None:
        self._process = process
        self._deadline = deadline
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.was_killed = False
        self._watcher = threading.Thread(target=self._watch, name="search-watcher", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def read(self) -> bytes:
        """Some output; nothing at its end."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        return os.read(self._process.stdout.fileno(), 1 << 16)

    def finish(self) -> tuple[int, bytes]:
        """After all output was read: the exit code, and what it said on stderr."""
        assert self._process.stderr is not None  # noqa: S101 - it was asked for
        said = self._process.stderr.read(1 << 14)
        self._reap()
        return self._process.returncode, said

    def close(self) -> None:
        """End the process if it still runs."""
        self._kill()
        self._reap()
        self._watcher.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            if self._deadline.signal.aborted or self._deadline.is_over:
                self._kill()
                return

    def _kill(self) -> None:
        # The process number is ours until it is reaped, which needs the same lock.
        with self._lock:
            if self._ended.is_set():
                return
            self.was_killed = True
            with suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                if self._process.poll() is not None:
                    self._ended.set()
                    return
            self._ended.wait(REAP_SECONDS)


@contextmanager
def running(arguments: Sequence[str | bytes], folder: str, deadline: Deadline, given: bytes = b"") -> Generator[Child]:
    """Start a process and end it.

    Args:
        arguments: The program by its absolute path, and its arguments.
        folder: Its working folder.
        deadline: It is killed when this is over or the call is cancelled.
        given: Its standard input, which it must read before it writes.

    Raises:
        EngineFailedError: It does not start.
    """
    try:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        raise EngineFailedError(f"the process does not start: {type(error).__name__}") from None
    child = Child(process, deadline)
    try:
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                _write_all(process.stdin.fileno(), given)
            process.stdin.close()
        yield child
    finally:
        child.close()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
