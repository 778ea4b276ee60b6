"""The supervisors of this server, and the broker that forks them.

Each runs one program at a time; a few are kept for the next ones. If the broker is lost, the next program starts
another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

import anyio

from tools.contract.exhaustion import usual_open_files
from tools.shell.broker import messages
from tools.shell.broker.messages import packed
from tools.shell.process import ExitStatus, Process, ProcessSpec, ResourceLimits, StartFailedError

if sys.platform == "win32":
    raise ImportError("nothing is launched on Windows")


class Launch:
    """Holds all that is needed to start a program, as long as the `with` lasts.

    Args:
        spec: What is to be started.

    Raises:
        ValueError: The operating system cannot take it, such as a text with NUL in it.
        OSError: There are no descriptors left.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.body = packed(spec)
        """Of the message RUN."""
        self.descriptors: list[int] = []
        """What goes with it: the write end of the output, that of the errors if told apart, the attachments, and what
        is handed on."""
        self._unread: list[int] = []
        self._held = ExitStack()
        self._held.callback(self._close_unread)
        try:
            self.output = self._open_output()
            self.errors = self._open_output() if spec.separates_errors else -1
            for content in spec.attachments.values():
                self.descriptors.append(self._hold(_attachment(content)))
            self.descriptors += spec.descriptors.values()
        except BaseException:
            self._held.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def take_outputs(self) -> tuple[int, int]:
        """The read ends of output and errors, -1 where there is none. From now on they belong to the caller."""
        self._unread.clear()
        return self.output, self.errors

    def _open_output(self) -> int:
        output, written = os.pipe()
        self._unread.append(output)
        self.descriptors.append(self._hold(written))
        os.set_blocking(output, False)
        return output

    def _close_unread(self) -> None:
        while self._unread:
            os.close(self._unread.pop())

    def _hold(self, descriptor: int) -> int:
        self._held.callback(os.close, descriptor)
        return descriptor


def _attachment(content: bytes) -> int:
    """A descriptor from which the content can be read, that belongs to no file in a folder."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("attachment")
    else:
        import tempfile  # noqa: PLC0415 - where it is needed

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


if sys.platform == "win32":
    raise ImportError("there is no broker on Windows")

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "broker", "broker.py")

BUSY_PAUSE_SECONDS = 0.005
"""Between two attempts to reach a broker that has hundreds of sockets to take."""

REAP_PAUSE_SECONDS = 0.002
"""A process that has closed its socket, or was killed, has ended within a few times this."""


class BrokerProcess:
    """A running broker.

    Args:
        by_group: Whether supervisors follow groups, not descendants.
        on_lost: Called when it is gone.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, *, by_group: bool, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self.pid = _spawn(theirs.fileno(), "group" if by_group else "descendants")
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._read)

    async def give(self, channel: socket.socket) -> None:
        """Have a supervisor forked for the other end of a socket.

        Raises:
            ConnectionError: The broker is gone.
            OSError: Too many descriptors are on their way.
        """
        while True:
            self._signal(signal.SIGCONT)  # a program may have stopped it
            try:
                socket.send_fds(self._socket, [b"\0"], [channel.fileno()])
            except BlockingIOError:
                await asyncio.sleep(BUSY_PAUSE_SECONDS)
            except ConnectionError:
                self._read()
                raise
            else:
                return

    async def close(self, seconds: float) -> None:
        """Let it go, and wait until it has ended: all supervisors have then. It is killed if it takes too long."""
        self._let_go()
        self._signal(signal.SIGCONT)
        kill_at = monotonic() + seconds
        while not self._is_reaped():
            if monotonic() >= kill_at:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(REAP_PAUSE_SECONDS)

    def _read(self) -> None:
        """It never says anything, so this is its end."""
        if self._socket.fileno() < 0:
            return
        self._let_go()
        self._on_lost()
        self._reap_soon()

    def _let_go(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _reap_soon(self) -> None:
        if not self._is_reaped():
            self._loop.call_later(REAP_PAUSE_SECONDS, self._reap_soon)

    def _is_reaped(self) -> bool:
        if self.pid:
            try:
                ended, _ = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                ended = self.pid  # where the server ignores SIGCHLD, the system reaps
            if ended:
                self.pid = 0
        return self.pid == 0

    def _signal(self, number: int) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _spawn(channel: int, followed: str) -> int:
    """Start the script, isolated from the environment and the import path of the server."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", SCRIPT, followed, str(usual_open_files())],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, channel, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        setsigmask=(),
        setsigdef=signal.valid_signals(),
    )


if sys.platform == "win32":
    raise ImportError("there are no supervisors on Windows")


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


if sys.platform == "win32":
    raise ImportError("there are no supervisors on Windows")


MOST_IDLE = 4
"""So many supervisors are kept for the next programs."""

ATTEMPTS = MOST_IDLE + 3
"""So many supervisors are asked to run a program, if they are gone before they read of it: all idle ones may be."""

CLOSE_GRACE_SECONDS = 0.2
"""How long programs have to end by themselves when the server ends."""

CLOSE_SECONDS = 1.0
"""How long their end is waited for then."""

BROKER_SECONDS = 0.5
"""After that, how long the broker has to end."""


class SupervisorPool:
    """Starts programs, in supervisors. To be closed in the event loop that it was used in.

    Args:
        by_group: Follow only the group of each program, as on systems without sub-reapers.
    """

    def __init__(self, *, by_group: bool) -> None:
        self._by_group = by_group
        self._broker: BrokerProcess | None = None
        self._connections: set[SupervisorConnection] = set()
        self._idle: list[SupervisorConnection] = []
        self._is_closed = False

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. If this is cancelled, nothing of it stays.

        Raises:
            StartFailedError: It cannot be started.
            OSError: The broker cannot, or there are no descriptors left.
            ValueError: A text cannot be passed to a program.
        """
        with Launch(spec) as launch:
            for _ in range(ATTEMPTS):
                if self._is_closed:
                    break
                with suppress(NotTakenError, ConnectionError):
                    connection = self._take_idle(spec.limits) or await self._connect(spec.limits)
                    return await connection.run(launch)
        raise StartFailedError(0)

    async def aclose(self) -> None:
        """End everything that runs, then the broker. Shielded from cancellation, and bounded."""
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            running = [connection.process for connection in self._connections if connection.process is not None]
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as group:
                    for process in running:
                        group.start_soon(process.end, CLOSE_GRACE_SECONDS)
            for connection in list(self._connections):
                connection.close()
            if self._broker is not None:
                await self._broker.close(BROKER_SECONDS)
                self._broker = None

    def _take_idle(self, limits: ResourceLimits) -> SupervisorConnection | None:
        """A supervisor with these limits; they cannot be widened once it has them."""
        for connection in reversed(self._idle):
            if connection.limits == limits:
                self._idle.remove(connection)
                return connection
        return None

    async def _connect(self, limits: ResourceLimits) -> SupervisorConnection:
        """A new supervisor, of a new broker if there is none."""
        if self._broker is None:
            self._broker = BrokerProcess(by_group=self._by_group, on_lost=self._forget_broker)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                await self._broker.give(theirs)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        connection = SupervisorConnection(ours, limits, self._keep, self._forget)
        self._connections.add(connection)
        return connection

    def _keep(self, connection: SupervisorConnection) -> None:
        """For the next program, unless there are enough."""
        if len(self._idle) < MOST_IDLE and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()

    def _forget(self, connection: SupervisorConnection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _forget_broker(self) -> None:
        """Its supervisors end what they run; those that run nothing end now."""
        self._broker = None
        for connection in list(self._idle):
            connection.close()
