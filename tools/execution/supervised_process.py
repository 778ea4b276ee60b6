"""The server's side of a supervisor: the connection to it, and the program that it runs for us."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from tools.execution.process import ExitStatus, ResourceLimits, StartFailedError

if sys.platform == "win32":
    raise ImportError("there are no supervisors on Windows")

from tools.execution import messages
from tools.execution.launch import Launch

END_SECONDS = 3.0
"""After so long (and the grace) a supervisor that has not ended everything is killed: the broker does it then."""

_KILLED = ExitStatus(None, "SIGKILL")
"""What is said of a program whose supervisor was killed."""


class NotTakenError(Exception):
    """The supervisor ended before it read what it was to run, so it can be asked of another one."""


@dataclass(slots=True, eq=False)
class _Start:
    """One program that is being started.

    Args:
        launch: What is to be started.
        answer: Done when it is known whether it was.
    """

    launch: Launch
    answer: asyncio.Future[SupervisedProcess]

    @property
    def process(self) -> SupervisedProcess | None:
        """What it has led to, whether or not anybody has heard of it."""
        answer = self.answer
        return answer.result() if answer.done() and not answer.cancelled() and not answer.exception() else None


class SupervisorConnection:
    """A supervisor that runs one program at a time. Its end is the proof that nothing of that is left.

    Args:
        channel: The socket to it, non-blocking.
        limits: What limits it has taken, or will take with its first program.
        on_free: Called with it when the next program may come.
        on_lost: Called with it when it is gone.
    """

    def __init__(
        self,
        channel: socket.socket,
        limits: ResourceLimits,
        on_free: Callable[[SupervisorConnection], None],
        on_lost: Callable[[SupervisorConnection], None],
    ) -> None:
        self.limits = limits
        self.process: SupervisedProcess | None = None
        self._channel = channel
        self._on_free = on_free
        self._on_lost = on_lost
        self._received = bytearray()
        self._pid = 0
        self._start: _Start | None = None
        self._listings: deque[asyncio.Future[tuple[int, ...]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._read)

    async def run(self, launch: Launch) -> SupervisedProcess:
        """Have a program started. If this is cancelled, the program and this connection end.

        Raises:
            NotTakenError: The supervisor is gone, and the program was not started.
            StartFailedError: The program cannot be started, or may have been ended right after its start.
            OSError: It cannot be asked.
        """
        start = self._start = _Start(launch, self._loop.create_future())
        data = messages.FRAME.pack(messages.RUN, len(launch.body)) + launch.body
        try:
            try:
                sent = socket.send_fds(self._channel, [data], launch.descriptors)
                if sent < len(data):
                    await self._loop.sock_sendall(self._channel, memoryview(data)[sent:])
            except ConnectionError:
                # It may have said why before it ended.
                self._read(NotTakenError())
            return await start.answer
        except StartFailedError:
            raise
        except BaseException:
            process = start.process
            if process is not None:
                process.close()
            if self._start is start or (process is not None and self.process is process):
                self.close()
            raise
        finally:
            # A short program may be gone by now, and the supervisor be starting somebody else's.
            if self._start is start:
                self._start = None

    def ask(self, kind: int, *numbers: int) -> None:
        """Send it a small message. A program may have stopped it, so it is made to go on first."""
        self.signal(signal.SIGCONT)
        with suppress(OSError):
            self._channel.send(messages.framed(kind, *numbers))

    def list(self) -> asyncio.Future[tuple[int, ...]]:
        """What runs beneath it; nothing if it is gone."""
        listing = self._loop.create_future()
        self._listings.append(listing)
        self.ask(messages.LIST)
        return listing

    def signal(self, number: int) -> None:
        """Signal the supervisor itself."""
        with suppress(OSError):
            if self._pid and self._channel.fileno() >= 0:
                os.kill(self._pid, number)

    def close(self) -> None:
        """Let go of it: it ends all that is beneath it and then itself, which is not waited for."""
        self._lose(StartFailedError(0))

    def _read(self, why_ended: Exception | None = None) -> None:
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:
            # What we sent was never read, says the system.
            self._lose(NotTakenError())
            return
        if not data:
            self._lose(why_ended or StartFailedError(0))
            return
        self._received += data
        while len(self._received) >= messages.FRAME.size:
            kind, size = messages.FRAME.unpack_from(self._received)
            end = messages.FRAME.size + size
            if len(self._received) < end:
                return
            body = bytes(self._received[messages.FRAME.size : end])
            del self._received[:end]
            self._take(kind, [number for (number,) in messages.NUMBER.iter_unpack(body)])

    def _take(self, kind: int, numbers: list[int]) -> None:
        """Take note of a message."""
        start = self._start
        if kind == messages.STARTED and start is not None and not start.answer.done():
            program, self._pid = numbers
            self._start = None
            self.process = SupervisedProcess(self, program, *start.launch.take_outputs())
            start.answer.set_result(self.process)
        elif kind == messages.FAILED and start is not None and not start.answer.done():
            self._start = None
            start.answer.set_exception(StartFailedError(numbers[0]))
            self._on_free(self)
        elif kind == messages.LISTED:
            listing = self._listings.popleft()
            if not listing.done():
                listing.set_result(tuple(numbers))
        elif kind == messages.EXITED and self.process is not None:
            self.process.note_exit(_status_of(numbers[0]))
        elif kind == messages.GONE and self.process is not None:
            self.process.note_gone()
            self.process = None
            self._on_free(self)

    def _lose(self, why: Exception) -> None:
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        if self._start is not None and not self._start.answer.done():
            self._start.answer.set_exception(why)
            self._start.answer.exception()  # whoever waited may have been cancelled
        for listing in self._listings:
            if not listing.done():
                listing.set_result(())
        if self.process is not None:
            self.process.note_gone()
            self.process = None
        self._on_lost(self)


class SupervisedProcess:
    """A program beneath a supervisor: a `Process`.

    Args:
        connection: To its supervisor.
        pid: Its process id.
        output: The descriptor with its output.
        errors: The one with what comes on standard error, -1 where that is the same.
    """

    def __init__(self, connection: SupervisorConnection, pid: int, output: int, errors: int) -> None:
        self._connection = connection
        self._pid = pid
        self._output = output
        self._errors = errors
        self._status: ExitStatus | None = None
        self._has_exited = asyncio.Event()
        self._is_gone = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id of the program itself, also the id of its group."""
        return self._pid

    @property
    def output(self) -> int:
        """A non-blocking descriptor with what it and its children print; -1 after `close`."""
        return self._output

    @property
    def errors(self) -> int:
        """The same with what comes on standard error, where that is told apart; else, and after `close`, -1."""
        return self._errors

    async def wait(self) -> ExitStatus:
        """Wait for the program itself."""
        await self._has_exited.wait()
        return self._status or _KILLED

    async def left_running(self) -> tuple[int, ...]:
        """The ids of all processes that it started and that still run, itself included."""
        return () if self._is_gone.is_set() else await self._connection.list()

    async def end(self, grace_seconds: float) -> None:
        """End it and all it started; returns when nothing is left, or when that cannot be had in some seconds."""
        with anyio.CancelScope(shield=True):
            if not self._is_gone.is_set():
                self._connection.ask(messages.END, round(grace_seconds * 1000))
                await self._wait_gone_for(grace_seconds + END_SECONDS)
            if not self._is_gone.is_set():
                self._connection.signal(signal.SIGKILL)
                await self._wait_gone_for(END_SECONDS)
            if not self._is_gone.is_set():
                self._connection.close()

    async def wait_gone(self) -> None:
        """Wait until it and all it started have ended."""
        await self._is_gone.wait()

    def close(self) -> None:
        """Close `output` and `errors`. What still runs and prints then gets an error for it."""
        for descriptor in (self._output, self._errors):
            if descriptor >= 0:
                os.close(descriptor)
        self._output = self._errors = -1

    def note_exit(self, status: ExitStatus) -> None:
        """The program has ended. A later one with the same process id is another one."""
        self._status = self._status or status
        self._has_exited.set()

    def note_gone(self) -> None:
        """Nothing is left."""
        self._has_exited.set()
        self._is_gone.set()

    async def _wait_gone_for(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._is_gone.wait()


def _status_of(status: int) -> ExitStatus:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return ExitStatus(code, None)
    try:
        return ExitStatus(None, signal.Signals(-code).name)
    except ValueError:
        return ExitStatus(None, f"SIG{-code}")  # a real-time signal, which has no name of its own
