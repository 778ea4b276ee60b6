"""A child process that ends when a call's time is over: ripgrep, and the worker for documents that may be hostile.

Programs are found by their absolute path, never in the workspace, where anybody may have put one.
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

from tools.contract.limits import AbortSignal, Deadline
from tools.contract.tool_errors import ExhaustedError
from tools.files import html_and_pdf_worker
from tools.files.workspace import contains
from tools.machine.process_limits import start_thread

WATCH_SECONDS = 0.05  # how often cancellation and the time limit are looked at while the child is silent
REAP_SECONDS = 0.0002  # a process that has closed its output is gone within a few times this
FINISH_SECONDS = 2.0  # a process that is still there so long after it has closed its output hangs
# What a process may write to stderr before it is ended; of its failure, the first lines tell
MAX_STDERR_BYTES = 1 << 20
_WINDOWS_VARIABLES = ("SYSTEMROOT", "TEMP", "TMP")  # what a process on Windows does not start without


class ChildFailedError(Exception):
    """The process cannot be run here. The text is for the log."""


class Child:
    """A running process, in a group of its own; gone at the end of its `with`, on Linux also when we are killed.

    Used by one thread. Anyone who reads from it ends it when the deadline is over or the call is cancelled. A
    `ChildFailedError` says that it does not start.
    """

    def __init__(
        self,
        arguments: Sequence[str | bytes],  # the program by its absolute path, and its arguments
        folder: str,
        deadline: Deadline,
        *,
        given: int | IO[bytes] = subprocess.DEVNULL,  # the file that it reads
        errors: int | None = None,  # takes its stderr; without it, `finish` gives that
        environment: Mapping[str, str] | None = None,  # all of it, but for what Windows needs
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
                stdin=given,
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
                import fcntl  # noqa: PLC0415 - not on every system

                # However we end, the kernel then sends the signal to the owner of the pipe that only we could write to.
                with suppress(OSError):
                    fcntl.fcntl(reading, fcntl.F_SETOWN, -self.pid)
                    fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
                    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._close()
            raise ChildFailedError(f"the process does not start: {type(error).__name__}") from error
        finally:
            if reading >= 0:
                os.close(reading)
        if sys.platform == "win32":
            try:
                start_thread(self._watch)
            except ExhaustedError as error:
                self.__exit__()
                raise ChildFailedError("no thread can be started to watch it") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._reap(math.inf)
        self._close(self._process.stdout)

    def read(self) -> bytes:
        """Some output; nothing at its end. Once it is gone, nobody is waited for to whom it has left its pipe."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        descriptor = self._process.stdout.fileno()
        self._kill_if_due()
        while not _is_readable(descriptor, WATCH_SECONDS):
            self._kill_if_due()
            if self._is_gone() and not _is_readable(descriptor, 0):
                return b""
        return os.read(descriptor, 1 << 16)

    def finish(self) -> tuple[int, bytes]:
        """After all output was read: the exit code, and its stderr."""
        if not self._reap(FINISH_SECONDS):
            raise ChildFailedError(f"the process has closed its output, but still runs after {FINISH_SECONDS:g} s")
        if self._stderr is None:
            return self._process.returncode, b""
        # The child has the same position: it is at the end of what was written.
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
        """In a thread, on Windows, where a pipe cannot be waited for: a reader is stuck until the child ends."""
        while self._process.poll() is None:
            self._kill_if_due()
            time.sleep(WATCH_SECONDS)

    def _kill_if_due(self) -> None:
        is_late = self.deadline.signal.aborted or self.deadline.is_over
        if is_late or (self._stderr is not None and os.fstat(self._stderr.fileno()).st_size > MAX_STDERR_BYTES):
            self._kill()

    def _kill(self) -> None:
        """End the process and those that it started; they are not waited for."""
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
                with suppress(ChildProcessError):  # somebody else has reaped it
                    # Its number is ours until it is reaped, so what it has left behind can be ended by it.
                    if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                        self._end_group()
            self._is_reaped = self._process.poll() is not None
        return self._is_reaped

    def _reap(self, seconds: float) -> bool:
        """Wait until it is gone, so long at most; whether it is."""
        end = time.monotonic() + seconds
        while not self._is_gone():
            if time.monotonic() >= end:
                return False
            time.sleep(REAP_SECONDS)
        return True


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Whether a pipe has something to read, or is at its end; waits so long for it."""
    if sys.platform == "win32":
        return True  # only sockets can be waited for; to read waits as well
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1_000))


def unnamed_file() -> IO[bytes]:
    """A file for what a process reads or writes, in memory where that is possible.

    A pipe that nobody reads would hold it up, and a disk makes it dear that each word may be written by itself.
    """
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    return open(make("document"), "w+b", buffering=0) if make else tempfile.TemporaryFile(buffering=0)


class DocumentWorker(Child):
    """The process that takes the text out of a document (`html_and_pdf_worker.py`).

    It reads the open document from its position on; no path is handed over. `memory` is bytes of address space.
    """

    def __init__(
        self, kind: str, *arguments: str, document: IO[bytes], memory: int, seconds: float, signal: AbortSignal
    ) -> None:
        script = os.path.abspath(html_and_pdf_worker.__file__)
        super().__init__(
            [sys.executable, "-P", script, kind, str(memory), str(max(1, round(seconds))), *arguments],
            os.path.dirname(script),
            Deadline(signal, seconds),
            given=document,
            errors=subprocess.DEVNULL,
            # The PDF library looks for programs that decode pictures, and none of them is wanted.
            environment={"PATH": ""},
        )

    def messages(self, longest: int) -> Iterator[dict[str, Any]]:
        """What it says, up to one that is too long; the last has `end`, unless it was killed or ended by itself."""
        buffer = b""
        while chunk := self.read():
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield cast("dict[str, Any]", json.loads(line))
            if len(buffer) > longest:
                return


def find_program(name: str, search_path: str, roots: Sequence[str]) -> str | None:
    """The first program of this name that lies outside the workspace, whose roots are given as real paths.

    The search path lists folders as `PATH` does; relative ones are passed over.
    """
    for folder in search_path.split(os.pathsep):
        program = os.path.join(folder, name)
        if os.path.isabs(folder) and is_program(program) and is_outside(program, roots):
            return program
    return None


def find_configured(name: str, search_path: str, folder: str | None, roots: Sequence[str]) -> str | None:
    """The absolute path of a program as an operator names it in the settings; `None` if it cannot be run.

    A name without a folder is looked for outside the workspace. Anyone who gives a path means that one file, wherever
    it lies; `~` is the home folder. A relative path starts from a folder that the operator has chosen; where clients
    choose the folder, it would be another program for each of them, so none is taken (`folder` is `None`).
    """
    if os.path.basename(name) == name:
        return find_program(name, search_path, roots)
    path = os.path.expanduser(name)
    if folder is None and not os.path.isabs(path):
        return None
    program = os.path.abspath(os.path.join(folder or "", path))
    return program if is_program(program) else None


def is_outside(program: str, roots: Sequence[str]) -> bool:
    """Whether a program lies outside the workspace, and a link to it does, too."""
    real = (os.path.realpath(os.path.dirname(program)), os.path.realpath(program))
    return not any(contains(root, path) for root in roots for path in real)


def is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
