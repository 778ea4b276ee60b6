"""The server's side of the broker: the broker process, its supervisors, and their programs.

Each supervisor runs one program at a time, and a few idle supervisors are kept. All supervisors of a pool may share one
process. If the broker dies, the pool starts a new broker for the next program.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

import anyio

from tools.machine.process_limits import usual_open_files
from tools.shell.broker import broker_messages
from tools.shell.process_spec import ExitStatus, MountStep, Process, ProcessSpec, ResourceLimits, StartFailedError

if sys.platform == "win32":
    raise ImportError("the broker is not available on Windows")

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "broker", "broker.py")
MAX_IDLE = 4  # idle supervisors kept for the next programs
ATTEMPTS = MAX_IDLE + 3  # supervisors to try per program, because all idle ones may be gone
BUSY_PAUSE_SECONDS = 0.005  # pause between attempts to reach a broker that has hundreds of sockets to accept
# Pause between checks of whether the broker has exited. Once the broker has closed its socket or been killed, it
# usually exits within a few of these pauses
REAP_PAUSE_SECONDS = 0.002
# How long to wait after the grace period for a program's processes to end. If some are left, its supervisor is killed,
# unless shared, and the broker then kills these processes
END_SECONDS = 3.0
CLOSE_GRACE_SECONDS = 0.2  # how long programs may take to exit on their own when the server shuts down
CLOSE_SECONDS = 1.0  # how long stopping all programs may take when the server shuts down, including the grace period
BROKER_SECONDS = 0.5  # how long the broker may take to exit when the programs have been stopped


class SupervisorPool:
    """Starts programs in supervisors. Close the pool in the event loop in which it was used."""

    def __init__(self, *, by_group: bool, is_shared: bool) -> None:
        self.by_group = by_group
        self.is_shared = is_shared
        self._broker: BrokerProcess | None = None
        self._supervisors: set[SupervisorHandle] = set()
        self._idle: list[SupervisorHandle] = []
        self._is_closed = False

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. Cancellation leaves no process behind.

        Raises a `StartFailedError`, an `OSError` if the broker failed or no descriptors are left, or a `ValueError` if
        the operating system cannot accept `spec`.
        """
        with launch_of(spec) as launch:
            for _ in range(ATTEMPTS):
                if self._is_closed:
                    break
                # Reuse the most recent supervisor with the same limits, because limits cannot be raised again.
                suitable = (supervisor for supervisor in reversed(self._idle) if supervisor.limits == spec.limits)
                with suppress(NotTakenError, ConnectionError):
                    if (idle := next(suitable, None)) is not None:
                        self._idle.remove(idle)
                    return await (idle or await self._fork(spec)).run(launch)
        raise StartFailedError(0)

    async def aclose(self) -> None:
        """Stop all running programs, then the broker. Shielded from cancellation, and bounded."""
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as group:
                    for supervisor in self._supervisors:
                        if supervisor.process is not None:
                            group.start_soon(partial(supervisor.process.end, CLOSE_GRACE_SECONDS, shield=False))
            for supervisor in list(self._supervisors):
                if supervisor.process is not None and not self.is_shared:
                    # The broker then kills the processes of the supervisor's program.
                    supervisor.signal(signal.SIGKILL)
                supervisor.close()
            if self._broker is not None:
                await self._broker.close(BROKER_SECONDS)
                self._broker = None

    async def _fork(self, spec: ProcessSpec) -> SupervisorHandle:
        """Return a new supervisor. Starts a new broker if there is no broker."""
        if self._broker is None:
            self._broker = BrokerProcess(self)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                await self._broker.attach_supervisor(theirs)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        supervisor = SupervisorHandle(ours, spec.limits, self)
        self._supervisors.add(supervisor)
        return supervisor

    def keep(self, supervisor: SupervisorHandle) -> None:
        """Keep a free supervisor for the next programs, or close it if enough are idle."""
        if len(self._idle) < MAX_IDLE and not self._is_closed:
            self._idle.append(supervisor)
        else:
            supervisor.close()

    def forget(self, supervisor: SupervisorHandle) -> None:
        self._supervisors.discard(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)

    def forget_broker(self) -> None:
        """Forget a lost broker, and close idle supervisors. Busy supervisors stop their programs on their own."""
        self._broker = None
        for supervisor in self._supervisors:
            if supervisor.process is not None:
                supervisor.process.is_lost = True
        for supervisor in list(self._idle):
            supervisor.close()


class Launch(NamedTuple):
    """The message and descriptors that start a program."""

    body: bytes  # body of the RUN message
    descriptors: list[int]  # descriptors to send: write ends of the outputs, attachments, and those of the spec
    outputs: list[int]  # read ends of the output and, if separate, of standard error; the receiver takes them over


@contextmanager
def launch_of(spec: ProcessSpec) -> Generator[Launch]:
    """Yield the message and descriptors for starting a program.

    Afterwards, closes the descriptors that it created, except those that the receiver has taken over. Raises a
    `ValueError` if the operating system cannot accept the spec.
    """
    launch = Launch(broker_messages.pack_run(spec), [], [])
    with ExitStack() as stack:
        stack.callback(lambda: [os.close(descriptor) for descriptor in launch.outputs])
        for _ in range(1 + spec.separates_errors):
            read_end, write_end = os.pipe()
            stack.callback(os.close, write_end)
            launch.outputs.append(read_end)
            launch.descriptors.append(write_end)
            os.set_blocking(read_end, False)
        for content in spec.attachments.values():
            from tools.files.child_process import unnamed_file  # noqa: PLC0415 - not needed for most programs

            file = stack.enter_context(unnamed_file())
            launch.descriptors.append(file.fileno())
            with open(file.fileno(), "wb", closefd=False) as writer:
                writer.write(content)
            file.seek(0)
        launch.descriptors.extend((*spec.descriptors.values(), *spec.namespaces))
        yield launch


class BrokerProcess:
    """A running broker process, isolated from the server's environment and import path."""

    def __init__(self, pool: SupervisorPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        tracking = "group" if pool.by_group else "descendants"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self._pid = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-S", SCRIPT, tracking, str(usual_open_files())],
                    {},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    ],
                    setsigmask=(),
                    setsigdef=signal.valid_signals(),
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._on_end)

    async def attach_supervisor(self, channel: socket.socket) -> None:
        """Attach a supervisor, new or shared, to a socket. Raises a `ConnectionError` if there is no broker."""
        kind = broker_messages.SHARED if self._pool.is_shared else broker_messages.OWN
        while True:
            self._signal(signal.SIGCONT)  # a program may have stopped the broker
            try:
                socket.send_fds(self._socket, [kind], [channel.fileno()])
            except BlockingIOError:
                await asyncio.sleep(BUSY_PAUSE_SECONDS)
            except ConnectionError:
                self._on_end()
                raise
            else:
                return

    async def close(self, seconds: float) -> None:
        """Close the connection, and wait for the broker and its supervisors to exit.

        Kill the broker if this takes too long.
        """
        self._disconnect()
        self._signal(signal.SIGCONT)
        kill_at = monotonic() + seconds
        while not self._is_reaped():
            if monotonic() >= kill_at:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(REAP_PAUSE_SECONDS)

    def _on_end(self) -> None:
        """Handle the broker's exit, which is the only event on its socket."""
        if self._disconnect():
            self._pool.forget_broker()
            self._reap_soon()

    def _disconnect(self) -> bool:
        """Close the connection. Return True if it was open."""
        if self._socket.fileno() < 0:
            return False
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        return True

    def _reap_soon(self) -> None:
        if not self._is_reaped():
            self._loop.call_later(REAP_PAUSE_SECONDS, self._reap_soon)

    def _is_reaped(self) -> bool:
        if self._pid:
            try:
                reaped_pid, _ = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:
                reaped_pid = self._pid  # if the server ignores SIGCHLD, the system has reaped it
            if reaped_pid:
                self._pid = 0
        return self._pid == 0

    def _signal(self, number: int) -> None:
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)


class NotTakenError(Exception):
    """The supervisor exited before it read the request, so another one can be tried."""


class SupervisorHandle:
    """The server's handle for a supervisor, which runs one program at a time, in its own process or in the shared one.

    If the other end of the connection is closed, none of the program's processes is left.
    """

    def __init__(self, channel: socket.socket, limits: ResourceLimits, pool: SupervisorPool) -> None:
        self.limits = limits  # set in the supervisor when its first program starts
        self.process: SupervisedProcess | None = None
        self.pool = pool
        self._channel = channel  # non-blocking
        self._received = bytearray()
        self._pid = 0
        # The program being started, and the future for the result.
        self._starting: tuple[Launch, asyncio.Future[SupervisedProcess]] | None = None
        self._answers: deque[asyncio.Future[tuple[int, ...]]] = deque()  # responses to LIST and MOUNT, in order
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._read)

    async def run(self, launch: Launch) -> SupervisedProcess:
        """Start a program. Cancellation stops the program and this supervisor.

        Raises a `NotTakenError` if the supervisor was gone and the program was not started. Even if it raises a
        `StartFailedError`, the program may have run for a moment.
        """
        answer: asyncio.Future[SupervisedProcess] = self._loop.create_future()
        starting = self._starting = (launch, answer)
        try:
            try:
                await self._send(broker_messages.RUN, launch.body, launch.descriptors)
            except ConnectionError:
                # The supervisor may have sent the reason before it exited.
                self._read(NotTakenError())
            return await answer
        except StartFailedError:
            raise
        except BaseException:
            process = None
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                process = answer.result()
                process.close()
            if self._starting is starting or (process is not None and self.process is process):
                self.close()
            raise
        finally:
            # A short-lived program may already be gone, and the supervisor may be starting another one.
            if self._starting is starting:
                self._starting = None

    async def _send(self, kind: int, body: bytes, descriptors: list[int]) -> None:
        data = broker_messages.FRAME.pack(kind, len(body)) + body
        sent_bytes = socket.send_fds(self._channel, [data], descriptors)
        if sent_bytes < len(data):
            await self._loop.sock_sendall(self._channel, memoryview(data)[sent_bytes:])

    def send_request(self, kind: int, *numbers: int) -> None:
        """Send the supervisor a small message. Resume it first, because a program may have stopped it."""
        self.signal(signal.SIGCONT)
        with suppress(OSError):
            self._channel.send(broker_messages.frame(kind, *numbers))

    async def list(self) -> tuple[int, ...]:
        """Return the ids of all running processes of the program; empty if the supervisor is gone."""
        answer = self._queue_answer()
        self.send_request(broker_messages.LIST)
        return await answer

    async def mount(self, pid_descriptor: int, steps: Iterable[MountStep]) -> None:
        body = broker_messages.pack_mounts(steps)
        answer = self._queue_answer()
        with anyio.CancelScope(shield=True):  # half a message would corrupt the stream
            await self._send(broker_messages.MOUNT, body, [pid_descriptor])
        (number,) = await answer or (errno.ESRCH,)
        if number:
            raise OSError(number, "the mount failed")

    def _queue_answer(self) -> asyncio.Future[tuple[int, ...]]:
        self._answers.append(answer := self._loop.create_future())
        return answer

    def signal(self, number: int) -> None:
        with suppress(OSError):
            if self._pid and self._channel.fileno() >= 0:
                os.kill(self._pid, number)

    def close(self) -> None:
        """Close the connection without waiting. The supervisor then stops its program's processes, and exits."""
        self._shut_down(StartFailedError(0))

    def _read(self, exit_error: Exception | None = None) -> None:
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:
            # This error means that the supervisor never read the request.
            self._shut_down(NotTakenError())
            return
        if not data:
            self._shut_down(exit_error or StartFailedError(0))
            return
        self._received += data
        while len(self._received) >= broker_messages.FRAME.size:
            kind, size = broker_messages.FRAME.unpack_from(self._received)
            end = broker_messages.FRAME.size + size
            if len(self._received) < end:
                return
            body = bytes(self._received[broker_messages.FRAME.size : end])
            del self._received[:end]
            self._handle(kind, [number for (number,) in broker_messages.NUMBER.iter_unpack(body)])

    def _handle(self, kind: int, numbers: list[int]) -> None:
        launch, answer = self._starting or (None, None)
        if kind == broker_messages.STARTED and launch is not None and answer is not None and not answer.done():
            program, self._pid = numbers
            self._starting = None
            self.process = SupervisedProcess(self, program, launch.outputs)
            answer.set_result(self.process)
        elif kind == broker_messages.FAILED and answer is not None and not answer.done():
            self._starting = None
            answer.set_exception(StartFailedError(numbers[0]))
            self.pool.keep(self)
        elif kind in (broker_messages.LISTED, broker_messages.MOUNTED):
            waiting = self._answers.popleft()
            if not waiting.done():
                waiting.set_result(tuple(numbers))
        elif kind == broker_messages.EXITED and self.process is not None:
            self.process.on_exit(numbers[0])
        elif kind == broker_messages.GONE and self.process is not None:
            self.process.on_gone()
            self.process = None
            self.pool.keep(self)

    def _shut_down(self, error: Exception) -> None:
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        if self._starting is not None and not self._starting[1].done():
            self._starting[1].set_exception(error)
            self._starting[1].exception()  # marks the error as retrieved, because the waiter may have been cancelled
        for waiting in self._answers:
            if not waiting.done():
                waiting.set_result(())
        if self.process is not None:
            self.process.on_gone()
            self.process = None
        self.pool.forget(self)


class SupervisedProcess:
    """A `Process` that a supervisor runs. It takes ownership of the descriptors in `outputs`."""

    def __init__(self, supervisor: SupervisorHandle, pid: int, outputs: list[int]) -> None:
        self.pid = pid
        self.output = outputs.pop(0)
        self.errors = outputs.pop() if outputs else -1
        self._supervisor = supervisor
        self.mount = supervisor.mount
        self.is_lost = False  # whether the broker was lost, in which case the supervisor stops the program
        self._status = ExitStatus(None, "SIGKILL")  # returned if the supervisor was killed and reported no status
        self._has_exited = asyncio.Event()
        self._is_gone = asyncio.Event()

    async def wait(self) -> ExitStatus:
        await self._has_exited.wait()
        return replace(self._status, is_lost=self.is_lost and self._status.signal is not None)

    async def left_running(self) -> tuple[int, ...]:
        return () if self._is_gone.is_set() else await self._supervisor.list()

    async def end(self, grace_seconds: float, *, shield: bool = True) -> None:
        """Stop all the program's processes. Returns when none is left, or after a few seconds if some are left."""
        with anyio.CancelScope(shield=shield):
            if not self._is_gone.is_set():
                self._supervisor.send_request(broker_messages.END, round(grace_seconds * 1000))
                with anyio.move_on_after(grace_seconds + END_SECONDS):
                    await self._is_gone.wait()
            if not self._is_gone.is_set() and not self._supervisor.pool.is_shared:
                self._supervisor.signal(signal.SIGKILL)
                with anyio.move_on_after(END_SECONDS):
                    await self._is_gone.wait()
            if not self._is_gone.is_set():
                self._supervisor.close()

    async def wait_gone(self) -> None:
        await self._is_gone.wait()

    def close(self) -> None:
        for descriptor in {self.output, self.errors} - {-1}:
            os.close(descriptor)
        self.output = self.errors = -1

    def on_exit(self, status: int) -> None:
        """Record the program's exit with its `waitpid` status. The process id may be reused from now on."""
        if not self._has_exited.is_set():
            code = os.waitstatus_to_exitcode(status)
            # Most real-time signals have no name.
            name = next((member.name for member in signal.Signals if member == -code), f"SIG{-code}")
            self._status = ExitStatus(code, None) if code >= 0 else ExitStatus(None, name)
            self._has_exited.set()

    def on_gone(self) -> None:
        self._has_exited.set()
        self._is_gone.set()
