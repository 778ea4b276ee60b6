"""Child processes that are stopped when the call's time is up: ripgrep, and the worker for untrusted documents.

Programs are started by their absolute path. They never come from the workspace, where anybody could have put them,
unless the settings name a path there.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Self, cast

from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ExhaustedError
from tools.files import html_and_pdf_worker
from tools.files.workspace import contains
from tools.machine.process_limits import start_thread

WATCH_SECONDS = 0.05  # how often cancellation and the time limit are checked while the child prints nothing
# Pause between checks of whether a process has exited; most processes exit soon after closing their output
REAP_SECONDS = 0.0002
FINISH_SECONDS = 2.0  # a process that still runs this long after closing its output is stuck
# Bytes that a process may write to stderr before it is killed; the first lines explain its failure
MAX_STDERR_BYTES = 1 << 20
# On Windows, Python needs the first variable to start, and the others to find the folder for temporary files
_WINDOWS_VARIABLES = ("SYSTEMROOT", "TEMP", "TMP")


class ChildFailedError(Exception):
    """The process cannot run here. The message is for the log."""


class Child:
    """A process in its own process group, for use by one thread.

    The process is killed at the end of the `with` block and, on Linux, if the server dies. A read kills the process if
    the deadline has passed, the call is cancelled, or stderr is longer than `MAX_STDERR_BYTES`. The constructor raises
    a `ChildFailedError` if the process does not start.
    """

    def __init__(
        self,
        arguments: Sequence[str | bytes],  # the program's absolute path, and its arguments
        folder: str,
        deadline: Deadline,
        *,
        stdin: IO[bytes] | None = None,  # the process's stdin
        errors: int | None = None,  # receives the process's stderr; if `None`, `finish` returns stderr
        environment: Mapping[str, str] | None = None,  # all environment variables, except those that Windows needs
    ) -> None:
        self.deadline = deadline
        self.was_killed = False
        self._is_reaped = False
        self._stderr: IO[bytes] | None = None
        reading = self._lifeline = -1
        try:
            self._stderr = unnamed_file() if errors is None else None
            if sys.platform == "linux":
                reading, self._lifeline = os.pipe()
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=self._stderr if errors is None else errors,
                env={name: os.environ[name] for name in _WINDOWS_VARIABLES if name in os.environ}
                | dict(environment or {}),
                start_new_session=True,
                bufsize=0,
                pass_fds=(reading,) if reading >= 0 else (),
            )
            self.pid = self._process.pid
            if sys.platform == "linux":
                import fcntl  # noqa: PLC0415 - exists only on POSIX

                # Only this process has the other end of the pipe. However this process exits, the kernel closes that
                # end and signals the pipe's owner, which is the child's process group.
                with suppress(OSError):
                    fcntl.fcntl(reading, fcntl.F_SETOWN, -self.pid)
                    fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
                    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._close()
            raise ChildFailedError(f"the process did not start: {type(error).__name__}") from error
        finally:
            if reading >= 0:
                os.close(reading)
        if sys.platform == "win32":
            try:
                start_thread(self._watch)
            except ExhaustedError as error:
                self.__exit__()
                raise ChildFailedError("the thread that watches the process could not start") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._reap(math.inf)
        self._close(self._process.stdout)

    def read(self) -> bytes:
        """Return some output, or nothing at its end. Does not wait for children of a process that has exited."""
        assert self._process.stdout is not None  # noqa: S101 - requested above
        descriptor = self._process.stdout.fileno()
        self._kill_if_due()
        while not _is_readable(descriptor, WATCH_SECONDS):
            self._kill_if_due()
            if self._is_gone() and not _is_readable(descriptor, 0):
                return b""
        return os.read(descriptor, 1 << 16)

    def finish(self) -> tuple[int, bytes]:
        """Return the exit code and stderr. Call this after all output has been read."""
        if not self._reap(FINISH_SECONDS):
            raise ChildFailedError(f"the process closed its output but is still running after {FINISH_SECONDS:g} s")
        if self._stderr is None:
            return self._process.returncode, b""
        # The child shares the file position, which is therefore now at the end of the child's output.
        self._stderr.seek(0)
        return self._process.returncode, self._stderr.read(MAX_STDERR_BYTES + 1)

    def _close(self, output: IO[bytes] | None = None) -> None:
        for stream in (output, self._stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)

    def _watch(self) -> None:
        """Kill the process in time on Windows, where a read blocks until the process writes something or exits."""
        while self._process.poll() is None:
            self._kill_if_due()
            time.sleep(WATCH_SECONDS)

    def _kill_if_due(self) -> None:
        is_late = self.deadline.signal.aborted or self.deadline.is_over
        if is_late or (self._stderr is not None and os.fstat(self._stderr.fileno()).st_size > MAX_STDERR_BYTES):
            self._kill()

    def _kill(self) -> None:
        """Kill the process and its children without waiting."""
        if not self._is_reaped:
            self.was_killed = True
            self._end_group()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self.pid, signal.SIGKILL)

    def _is_gone(self) -> bool:
        if not self._is_reaped:
            if sys.platform == "linux":
                with suppress(ChildProcessError):  # another thread has reaped the process
                    # Until the process is reaped, its id stays reserved, so it still identifies the children to kill.
                    if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                        self._end_group()
            self._is_reaped = self._process.poll() is not None
        return self._is_reaped

    def _reap(self, seconds: float) -> bool:
        """Wait up to `seconds` for the process to exit. Return True if it has."""
        end = time.monotonic() + seconds
        while not self._is_gone():
            if time.monotonic() >= end:
                return False
            time.sleep(REAP_SECONDS)
        return True


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Wait up to `seconds` for a pipe to have data or reach its end. Return False if the time ran out."""
    if sys.platform == "win32":
        return True  # Windows can poll only sockets, so the read itself waits
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1_000))


def unnamed_file() -> IO[bytes]:
    """Create a file for a process to read or write: in memory if possible, because many small disk writes are slow."""
    # It is not a pipe, because a write to a pipe may block until the other side reads.
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    return open(make("document"), "w+b", buffering=0) if make else tempfile.TemporaryFile(buffering=0)


class DocumentWorker(Child):
    """Extracts text from an open document (`html_and_pdf_worker.py`), in at most `memory` bytes of address space."""

    def __init__(
        self, kind: str, *arguments: str, document: IO[bytes], memory: int, seconds: float, signal: AbortSignal
    ) -> None:
        script = os.path.abspath(html_and_pdf_worker.__file__)
        super().__init__(
            [sys.executable, "-P", script, kind, str(memory), str(max(1, round(seconds))), *arguments],
            os.path.dirname(script),
            Deadline(signal, seconds),
            stdin=document,
            errors=subprocess.DEVNULL,
            # The PDF library must not find programs that decode images.
            environment={"PATH": ""},
        )

    def messages(self, max_bytes: int) -> Iterator[dict[str, Any]]:
        """Yield messages until the output ends or one is too long. The last one has `end` if the worker finished."""
        buffer = b""
        while chunk := self.read():
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield cast("dict[str, Any]", json.loads(line))
            if len(buffer) > max_bytes:
                return


def find_program(name: str, search_path: str, roots: Sequence[str]) -> str | None:
    """Return the first program of this name in an absolute folder on the search path, outside `roots` (real paths)."""
    for folder in search_path.split(os.pathsep):
        program = os.path.join(folder, name)
        if os.path.isabs(folder) and is_program(program) and is_outside(program, roots):
            return program
    return None


def find_configured(name: str, search_path: str, folder: str | None, roots: Sequence[str]) -> str | None:
    """Return the absolute path of a program named in the settings, or `None` if it cannot be run.

    A name without a folder is looked up outside the workspace. A path means exactly that file, wherever it is; `~` is
    the home folder. A relative path is resolved against `folder`, which the operator chose. If `folder` is `None`,
    relative paths are rejected: if clients chose the folder, the same path would mean a different program for each
    client.
    """
    if os.path.basename(name) == name:
        return find_program(name, search_path, roots)
    path = os.path.expanduser(name)
    if folder is None and not os.path.isabs(path):
        return None
    program = os.path.abspath(os.path.join(folder or "", path))
    return program if is_program(program) else None


def is_outside(program: str, roots: Sequence[str]) -> bool:
    """Return True if a program is outside the workspace. If its path is a symlink, the symlink must be outside too."""
    real = (os.path.realpath(os.path.dirname(program)), os.path.realpath(program))
    return not any(contains(root, path) for root in roots for path in real)


def is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
