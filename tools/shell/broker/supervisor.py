"""Runs one program at a time and looks after all that it starts: the processes that the broker forks.

Programs are started with `posix_spawn`, which copies nothing of the process that calls it. A supervisor takes the next
program when nothing is left of the last one, since a fork costs half as much as a shell.

It ends what is left when it is told to, and when the server or the broker is gone: then their ends of its descriptors
close.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("there are no supervisors on Windows")

if TYPE_CHECKING or __package__:
    from tools.shell.broker import descendants, messages
else:
    # By its path, as the broker is.
    import descendants
    import messages


LEAVE_GRACE_SECONDS = 0.2  # how long programs have to end by themselves once the server is gone
LEAVE_SECONDS = 30.0  # after so long without the server, what cannot be killed is left alone
LOOKS = 50  # how often to look for what runs if nothing is found: it may have been replaced by others meanwhile
KILL_PAUSE_SECONDS = 0.02  # between two attempts to kill what is left
_ALL_SIGNALS = tuple(map(int, signal.valid_signals()))  # once: it takes as long as a twelfth of a shell
GROUP_PAUSE_SECONDS = 0.05  # nobody tells when a group has become empty, so it is looked at this often


def spawn(body: bytes, descriptors: list[int]) -> int:
    """Start a program as RUN says, in a session of its own; an `OSError` if that cannot be.

    The caller closes the descriptors, of which some may have been replaced by copies.
    """
    import fcntl  # noqa: PLC0415 - not on every system; the broker has loaded both
    import resource  # noqa: PLC0415 - as above

    argv, folder, environment, (file_bytes, processes, core_bytes), group, numbers = messages.unpacked(body)
    if len(descriptors) != 1 + len(numbers):
        raise OSError(errno.EMFILE, "some descriptors did not arrive")
    # This process is limited, and with it all that it starts. A limit can only become lower.
    for what, most in (
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_CORE, core_bytes),
    ):
        if most >= 0:
            least = min([most, *(limit for limit in resource.getrlimit(what) if limit != resource.RLIM_INFINITY)])
            resource.setrlimit(what, (least, least))
    if group:
        _join(group)
    os.chdir(folder)
    # None may have a number that is to be given, so that none is overwritten before its turn.
    highest = max(numbers, default=-1)
    for at, descriptor in enumerate(descriptors):
        if descriptor <= highest:
            descriptors[at] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, highest + 1)
            os.close(descriptor)  # so that few are needed
    output, *attached = descriptors
    return os.posix_spawn(
        argv[0],
        argv,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, source, target)
            for source, target in ((output, 1), (output, 2), *zip(attached, numbers, strict=True))
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_ALL_SIGNALS,
    )


@cache
def _join(group: bytes) -> None:
    """Join a control group, and with this process all that it starts. Once: the kernel takes milliseconds for it."""
    descriptor = os.open(group, os.O_WRONLY)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


class Waiting:
    """Waits for descriptors, for the end of children and for a moment, whichever comes first."""

    def __init__(self, *descriptors: int) -> None:
        self._poll = select.poll()
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # without a handler no signal wakes anybody
        for descriptor in (self._pipe[0], *descriptors):
            self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)

    def wait(self, *moments: float | None) -> set[int]:
        """The descriptors that can be read; none when a child has ended or a moment of the monotonic clock has come."""
        until = min((moment for moment in moments if moment is not None), default=None)
        events = self._poll.poll(None if until is None else max(0.0, until - monotonic()) * 1000)
        ready = {descriptor for descriptor, _ in events}
        if self._pipe[0] in ready:
            ready.remove(self._pipe[0])
            os.read(self._pipe[0], 4096)
        return ready

    def close(self) -> None:
        for end in self._pipe:
            os.close(end)


class Supervisor:
    """Runs one program at a time and looks after all that it starts: its descendants, or with `by_group` its group.

    `broker` is a descriptor that can be read once the broker is gone.
    """

    def __init__(self, channel: socket.socket, broker: int, *, by_group: bool) -> None:
        self._channel = channel
        self._broker = broker
        self._by_group = by_group
        self._waiting = Waiting(channel.fileno(), broker)
        self._program = 0
        self._followed: descendants.Followed | None = None
        self._look_at: float | None = None
        self._kill_at: float | None = None
        self._leave_at: float | None = None

    def serve(self) -> bool:
        """Do what the server asks, until it or the broker is gone; whether nothing is left."""
        while self._leave_at is None or (self._followed is not None and monotonic() < self._leave_at):
            ready = self._waiting.wait(self._look_at, self._kill_at, self._leave_at)
            # A request that comes when the broker is gone stays unread; so the server knows that it was not taken.
            if self._broker in ready or (ready and not self._listen()):
                self._leave()
            self._reap()
            if self._followed is not None and self._kill_at is not None and monotonic() >= self._kill_at:
                self._followed.kill()
                self._kill_at = monotonic() + KILL_PAUSE_SECONDS
        with suppress(OSError):
            os.kill(os.getppid(), signal.SIGCONT)  # the program may have stopped the broker, which has to go on now
        return self._followed is None

    def _listen(self) -> bool:
        """Do what the server asks now; whether it is still there."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._channel, messages.FRAME.size, messages.MOST_DESCRIPTORS)
            if not head:
                return False
            kind, size = messages.FRAME.unpack(head + self._receive(messages.FRAME.size - len(head)))
            body = self._receive(size)
        except OSError:
            return False
        if kind == messages.RUN:
            self._run(body, descriptors)
        elif kind == messages.END:
            self._end(messages.NUMBER.unpack(body)[0] / 1000)
        else:
            self._tell(messages.LISTED, *self._list())
        return True

    def _list(self) -> list[int]:
        """What runs; never nothing if there is something, unlike a single look at processes that come and go."""
        for _ in range(LOOKS):
            self._reap()
            pids = self._followed.pids() if self._followed is not None else []
            if pids or self._followed is None:
                return pids
        return [self._program]

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._channel.recv(size - len(received))
            if not part:
                raise ConnectionResetError
            received += part
        return bytes(received)

    def _tell(self, kind: int, *numbers: int) -> None:
        # If nobody listens any more, the next look at the socket tells.
        with suppress(OSError):
            self._channel.sendall(messages.framed(kind, *numbers))

    def _run(self, body: bytes, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        try:
            self._program = spawn(body, descriptors)
        except OSError as error:
            self._tell(messages.FAILED, error.errno or 0)
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            os.chdir("/")  # so that no folder of the user's is kept busy
        self._followed = descendants.Group(self._program) if self._by_group else descendants.Descendants()
        self._tell(messages.STARTED, self._program, os.getpid())

    def _reap(self) -> None:
        told = b""
        while self._followed is not None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if self._followed.is_left():
                    self._look_at = monotonic() + GROUP_PAUSE_SECONDS
                    break
                told += messages.framed(messages.GONE)
                self._followed = self._look_at = self._kill_at = None
                break
            if pid == 0:
                break
            if pid == self._program:
                told += messages.framed(messages.EXITED, status)
        if told:
            with suppress(OSError):
                self._channel.sendall(told)

    def _end(self, grace: float) -> None:
        if self._followed is None:
            return
        kill_at = monotonic() + grace
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        if grace > 0:
            self._followed.ask_to_end()

    def _leave(self) -> None:
        """Begin to end everything, since nobody asks any more."""
        self._leave_at = monotonic() + LEAVE_SECONDS
        self._waiting.forget(self._channel.fileno())
        self._waiting.forget(self._broker)
        self._end(LEAVE_GRACE_SECONDS)
