"""A supervisor runs programs and manages everything that they start. The broker forks supervisors.

Programs are started with `posix_spawn`, which copies nothing of the calling process, or with a fork if they must be
confined first. Each program has a channel, which is a socket to the server. When none of the program's processes is
left, the channel is reused for another program, because forking a supervisor costs half as much as starting a shell. A
supervisor has one channel; only the supervisor that services share receives further channels from the broker.

On Linux, which has subreapers, an orphan becomes a child of its supervisor, regardless of its session. A supervisor
therefore finds everything that its program ever started, and `waitpid` reports when nothing is left. On other systems,
only the program's process group is known, and processes that leave it are lost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from itertools import product
from time import monotonic
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("supervisors are not available on Windows")

if TYPE_CHECKING or __package__:
    from tools.shell.broker import broker_messages, confinement
else:
    # The broker runs as a script, and imports this module without its package.
    import broker_messages
    import confinement


LEAVE_GRACE_SECONDS = 0.2  # seconds that programs may take to exit on their own after the server's exit
LEAVE_SECONDS = 30.0  # seconds after the server's exit until processes that cannot be killed are abandoned
# Number of empty searches before giving up. A search is repeated because it may miss running processes that replace
# each other
MAX_SEARCHES = 50
KILL_PAUSE_SECONDS = 0.02  # pause between attempts to kill the remaining processes
# Computed once, because the computation takes a twelfth as long as starting a shell.
_ALL_SIGNALS = tuple(map(int, signal.valid_signals()))
SEARCH_PAUSE_SECONDS = 0.05  # pause between checks for remaining processes, because no event reports their exit
MAX_INCONCLUSIVE_SEARCHES = 20  # maximum repetitions of an inconclusive search; with the pauses, they take one second
MARK = b"CORETOOLS_MCP_PROGRAM"  # variable that shows which of several programs started a process
MARK_BYTES = 1 << 17  # bytes of an environment to search for the mark, which is at the beginning
STOP_ROUNDS = 20  # maximum number of searches for processes that started while others were being stopped
_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # not every kernel has these files
_library = ctypes.CDLL(None)


def spawn(body: bytes, descriptors: list[int], mark: bytes) -> int:
    """Start the program of a RUN message in its own session, with the mark (if any) in its environment.

    Raises an `OSError` on failure. The caller closes the descriptors, some of which may have been replaced by copies.
    """
    import fcntl  # noqa: PLC0415 - POSIX only; the broker has loaded it
    import resource  # noqa: PLC0415 - POSIX only; the broker has loaded it

    order = broker_messages.unpack_run(body)
    environment = {MARK: mark, **order.environment} if mark else order.environment
    numbers = order.numbers
    if len(descriptors) != 1 + len(numbers) + order.namespaces:
        raise OSError(errno.EMFILE, "some descriptors did not arrive")
    # This process limits itself, and thereby everything that it starts. Limits can only be lowered.
    for limited_resource, maximum in zip(
        (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE), order.limits, strict=True
    ):
        if maximum >= 0:
            new_limit = min(
                [maximum, *(limit for limit in resource.getrlimit(limited_resource) if limit != resource.RLIM_INFINITY)]
            )
            resource.setrlimit(limited_resource, (new_limit, new_limit))
    if order.group:
        _join(order.group)
    os.chdir(order.folder)
    # Move descriptors away from target numbers, so that none is overwritten before its turn.
    highest = max(numbers, default=-1)
    for index, descriptor in enumerate(descriptors):
        if descriptor <= highest:
            descriptors[index] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, highest + 1)
            os.close(descriptor)  # closed now, so that fewer descriptors are open at the same time
    output, *attachments = descriptors
    moves = [(output, 1), (output, 2), *zip(attachments, numbers, strict=False)]
    namespaces = attachments[len(numbers) :]
    if namespaces or order.rules is not None:
        ignored_signals = [number for number in _ALL_SIGNALS if signal.getsignal(number) is signal.SIG_IGN]

        def confine_and_execute() -> None:
            os.setsid()
            for number in ignored_signals:  # inherited otherwise; handled signals are reset automatically
                confinement.set_signal(number, None)  # no signal is ever blocked here
            for source, target in moves:
                os.dup2(source, target)
            for namespace in namespaces:
                confinement.join_namespace(namespace)
            if order.rules is not None:
                confinement.confine(*order.rules)
            os.execve(order.argv[0], order.argv, environment)  # noqa: S606 - no shell is involved

        # The fork's status pipe must be above all target numbers.
        return _fork(confine_and_execute, max(target for _, target in moves) + 1)
    return os.posix_spawn(
        order.argv[0],
        order.argv,
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, *move) for move in moves],
        setsid=True,
        setsigmask=(),
        setsigdef=_ALL_SIGNALS,
    )


def _fork(action: Callable[[], None], lowest_number: int = 0, *, becomes: bool = True) -> int:
    """Run `action` in a fork of this process, and return the fork's process id. Raises an `OSError` on failure.

    If `becomes` is true, `action` executes a program, and success is not reported. `lowest_number` is the lowest number
    that the status pipe may have in the fork.
    """
    import fcntl  # noqa: PLC0415 - POSIX only; the broker has loaded it

    read_end, write_end = os.pipe()
    try:
        try:
            status_end = fcntl.fcntl(write_end, fcntl.F_DUPFD_CLOEXEC, lowest_number)
        finally:
            os.close(write_end)
        try:
            pid = os.fork()
            if pid == 0:
                number = errno.EINVAL
                try:
                    action()
                    number = 0
                except OSError as error:
                    number = error.errno or number
                finally:  # the child never returns to the supervisor's code
                    os.write(status_end, str(number).encode())
                    os._exit(127)
        finally:
            os.close(status_end)
        failure = os.read(read_end, 16)
    finally:
        os.close(read_end)
    # Executing a program closes the pipe, so silence means success. Any other fork reports its result unless killed.
    silence = 0 if becomes else errno.ESRCH
    if number := int(failure or silence):
        os.waitpid(pid, 0)
        raise OSError(number, "the program could not be confined or started")
    return pid


def mount(body: bytes, descriptors: list[int], program: int) -> int:
    """Perform the mounts of a MOUNT message in the namespaces of the program's child. Return an error number, or 0."""
    try:
        mount = partial(confinement.mount_in, descriptors[0], program, broker_messages.unpack_mounts(body))
        _fork(mount, becomes=False)
    except IndexError:
        return errno.EMFILE
    except OSError as error:
        return error.errno or errno.EINVAL
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return 0


@cache
def _join(group: bytes) -> None:
    """Add this process, and all that it starts, to a control group. Cached, because the kernel needs milliseconds."""
    with open(group, "r+b", buffering=0) as file:  # neither created nor emptied
        file.write(b"0")


class Poller:
    """Waits until a descriptor is readable, a child exits, or a given time is reached."""

    def __init__(self, *descriptors: int) -> None:
        self._poll = select.poll()
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # needed to interrupt a wait
        for descriptor in (self._pipe[0], *descriptors):
            self.add(descriptor)

    def add(self, descriptor: int) -> None:
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)

    def wait(self, *moments: float | None) -> set[int]:
        """Return the readable descriptors, or none if a child has exited or one of `moments` has passed."""
        deadline = min((moment for moment in moments if moment is not None), default=None)
        events = self._poll.poll(None if deadline is None else max(0.0, deadline - monotonic()) * 1000)
        ready = {descriptor for descriptor, _ in events}
        if self._pipe[0] in ready:
            ready.remove(self._pipe[0])
            os.read(self._pipe[0], 4096)
        return ready

    def close(self) -> None:
        for end in self._pipe:
            os.close(end)


def become_subreaper() -> bool:
    """Become the parent of all orphans below this process. Return True if the system supports this."""
    if sys.platform != "linux" or not os.path.exists("/proc/self/stat"):
        return False
    return _library.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def _read_children(pid: int) -> list[int]:
    """Return the children of a process, including zombies."""
    pids: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as children:
                pids += map(int, children.read().split())
    return pids


def _stat(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat`, starting with the state. The list is empty if there is no such process."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
        return stat.read(1024).rpartition(b")")[2].split()
    return []


def _runs(pid: int) -> bool:
    # A process whose main thread has exited looks like a zombie, but has more than one thread.
    return bool(fields := _stat(pid)) and (fields[0] not in b"ZX" or int(fields[17]) > 1)


def send_signals(pids: Iterable[int], *numbers: int) -> None:
    """Signal processes. Skip those that are gone or may not be signalled."""
    for pid, number in product(pids, numbers):
        with suppress(OSError):
            os.kill(pid, number)


class Descendants:
    """All processes below this subreaper, except the children in `excluded_pids` and everything below them."""

    is_conclusive = True  # whether the last search could assign each child to a program

    def __init__(self, excluded_pids: Iterable[int] = ()) -> None:
        self._excluded_pids = excluded_pids

    def pids(self) -> list[int]:
        """Return the ids of these processes, without zombies.

        Processes come and go during the search, so some may be missing. If every child of this process exits during
        the search, all may be missing.
        """
        return sorted(filter(_runs, self._search()))

    def _search(self, *numbers: int) -> set[int]:
        """Find these processes, including zombies, and send the signals in `numbers` to each.

        A process is signalled before the search for its children, because a stopped process starts no more children.
        """
        children = _read_children
        if not _HAS_CHILDREN_FILES:
            children_by_parent = defaultdict[int, list[int]](list)
            for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
                if fields := _stat(pid):
                    children_by_parent[int(fields[1])].append(pid)
            children = children_by_parent.__getitem__
        descendants, level = set[int](), {pid for pid in children(os.getpid()) if self._is_own(pid)}
        while level:
            send_signals(level, *numbers)
            descendants |= level
            level = {child for pid in level for child in children(pid)} - descendants
        return descendants

    def _is_own(self, pid: int) -> bool:
        """Return True if a child of the current process is one of the processes to find."""
        return pid not in self._excluded_pids

    def terminate(self) -> None:
        """Send SIGTERM, and SIGCONT so that stopped processes react to it."""
        send_signals(self.pids(), signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes. Each is stopped as soon as it is found, so that it starts no others."""
        stopped_pids = set[int]()
        for _ in range(STOP_ROUNDS):
            new_pids = self._search(signal.SIGSTOP) - stopped_pids
            if not new_pids:
                break
            stopped_pids |= new_pids
        send_signals(stopped_pids, signal.SIGKILL)

    def is_left(self, has_children: bool) -> bool:
        """Return True if any process is left after the program has exited."""
        return has_children


class ProgramDescendants(Descendants):
    """The processes of one of several programs below this subreaper, including the program itself.

    Orphans are recognised by their session or by the mark in their environment. An orphan that matches neither is
    assigned to no program, and is killed when this process exits.
    """

    def __init__(self, program: int, mark: bytes) -> None:
        super().__init__()
        self._program = program
        self._mark = MARK + b"=" + mark

    def _is_own(self, pid: int) -> bool:
        with suppress(OSError):
            if os.getsid(pid) == self._program:
                return True
            environment = b""
            with suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                environment = file.read(MARK_BYTES)
            if not environment and _runs(pid):  # the child is in the middle of executing another program
                self.is_conclusive = False
            return self._mark in environment.split(b"\0")
        return False

    def is_left(self, has_children: bool) -> bool:
        self.is_conclusive = True
        return has_children and bool(self.pids())


class Group:
    """A program's process group. Only the leader's id is known."""

    is_conclusive = True

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def pids(self) -> list[int]:
        return [self._leader] if self.is_left(has_children=True) else []

    def terminate(self) -> None:
        send_signals([-self._leader], signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        send_signals([-self._leader], signal.SIGKILL)

    def is_left(self, has_children: bool) -> bool:
        del has_children  # children outside the group may belong to other programs
        try:
            os.killpg(self._leader, 0)
        except OSError as error:
            return error.errno == errno.EPERM
        return True


TrackedProcesses = Descendants | Group  # the running processes of a program, including the program


class SupervisorChannel:
    """The connection to the server for one program at a time, and the program's state."""

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket
        self.program = 0
        self.has_exited = False
        self.processes: TrackedProcesses | None = None
        self.search_at: float | None = None  # when to check for remaining processes
        self.inconclusive_searches = 0
        self.kill_at: float | None = None
        self.leave_at: float | None = None  # when to abandon running processes after the server has closed the channel
        self._queued = b""

    def queue(self, kind: int, *numbers: int) -> None:
        self._queued += broker_messages.frame(kind, *numbers)

    def send(self, *message: int) -> None:
        """Send the queued messages and, if given, `message`."""
        if message:
            self.queue(*message)
        if self._queued:
            data, self._queued = self._queued, b""
            # If the server has closed its end, the next read from the socket shows it.
            with suppress(OSError):
                self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def end(self, grace: float) -> None:
        """Stop the running processes, immediately if the grace period is 0."""
        if self.processes is None:
            return
        kill_at = monotonic() + grace
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)
        if grace > 0:
            self.processes.terminate()


class Supervisor:
    """Runs a program for each of its channels, and manages everything that these programs start.

    `broker` is a descriptor that becomes readable when the broker is gone. `link` is a socket on which the broker sends
    further channels; without it, all processes below this one belong to the single program. If `by_group` is true, only
    each program's process group is tracked.
    """

    def __init__(self, channel: socket.socket, broker: int, link: socket.socket | None, *, by_group: bool) -> None:
        self._broker = broker
        self._link = link
        self._is_shared = link is not None
        self._by_group = by_group
        self._poller = Poller(broker, *([link.fileno()] if link is not None else []))
        self._channels: dict[int, SupervisorChannel] = {}
        self._has_children = False
        self._add(channel)

    def serve(self) -> bool:
        """Serve until the server or the broker is gone. Return True if no process is left."""
        while self._link is not None or self._channels:
            channels = self._channels.values()
            ready = self._poller.wait(
                *(at for channel in channels for at in (channel.search_at, channel.kill_at, channel.leave_at))
            )
            # A request that arrives after the broker is gone stays unread, so that the server knows that it was not
            # accepted.
            if self._broker in ready:
                self._poller.forget(self._broker)
                self._close_link()
                for channel in self._channels.values():
                    self._stop_serving(channel)
            elif self._link is not None and self._link.fileno() in ready:
                descriptors: list[int] = []
                with suppress(OSError):
                    _, descriptors, _, _ = socket.recv_fds(self._link, 1, 1)
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, False)
                    self._add(socket.socket(fileno=descriptor))
                if not descriptors:  # there will be no more channels
                    self._close_link()
            else:
                for number in ready:
                    if not self._handle_request(channel := self._channels[number]):
                        self._stop_serving(channel)
            self._reap()
            for channel in list(self._channels.values()):
                if channel.processes is not None and channel.kill_at is not None and monotonic() >= channel.kill_at:
                    channel.processes.kill()
                    channel.kill_at = monotonic() + KILL_PAUSE_SECONDS
                if channel.leave_at is not None and (channel.processes is None or monotonic() >= channel.leave_at):
                    self._channels.pop(channel.socket.fileno()).socket.close()
        if self._has_children and not self._by_group:
            Descendants().kill()  # the remaining processes, whose program is unknown
        with suppress(OSError):
            os.kill(os.getppid(), signal.SIGCONT)  # resume the broker, which a program may have suspended
        return not self._has_children

    def _add(self, channel: socket.socket) -> None:
        self._channels[channel.fileno()] = SupervisorChannel(channel)
        self._poller.add(channel.fileno())

    def _handle_request(self, channel: SupervisorChannel) -> bool:
        """Handle a request from the server. Return False if the server is gone."""
        try:
            head, descriptors, _, _ = socket.recv_fds(
                channel.socket, broker_messages.FRAME.size, broker_messages.MAX_DESCRIPTORS
            )
            if not head:
                return False
            kind, size = broker_messages.FRAME.unpack(head + channel.receive(broker_messages.FRAME.size - len(head)))
            body = channel.receive(size)
        except OSError:
            return False
        if kind == broker_messages.RUN:
            self._run(channel, body, descriptors)
        elif kind == broker_messages.MOUNT:
            channel.send(broker_messages.MOUNTED, mount(body, descriptors, channel.program))
        elif kind == broker_messages.END:
            channel.end(broker_messages.NUMBER.unpack(body)[0] / 1000)
        else:
            channel.send(broker_messages.LISTED, *self._list(channel))
        return True

    def _list(self, channel: SupervisorChannel) -> list[int]:
        """Return the ids of the running processes; never empty while one is running, though a search may miss some."""
        for _ in range(MAX_SEARCHES):
            self._reap()
            pids = channel.processes.pids() if channel.processes is not None else []
            if pids or channel.processes is None:
                return pids
        return [channel.program]

    def _run(self, channel: SupervisorChannel, body: bytes, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        mark = os.urandom(8).hex().encode() if self._is_shared else b""
        try:
            program = spawn(body, descriptors, mark)
        except OSError as error:
            channel.send(broker_messages.FAILED, error.errno or 0)
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            os.chdir("/")  # so that none of the user's folders stays busy
        channel.program, channel.has_exited, channel.inconclusive_searches, self._has_children = program, False, 0, True
        if self._by_group:
            channel.processes = Group(program)
        elif self._is_shared:
            channel.processes = ProgramDescendants(program, mark)
        else:
            channel.processes = Descendants()
        channel.send(broker_messages.STARTED, program, os.getpid())

    def _reap(self) -> None:
        self._wait_for_children()
        gone_channels = [channel for channel in self._channels.values() if self._is_gone(channel)]
        # If a process starts another and exits during the search, both may be missed. In that case, there is an exited
        # child to reap.
        is_conclusive = not gone_channels or not self._wait_for_children()
        for channel in gone_channels:
            # The reaped child may have belonged to another program. That program's children could exit one after the
            # other forever, so the number of inconclusive searches is limited.
            is_known = is_conclusive and channel.processes is not None and channel.processes.is_conclusive
            if not is_known and channel.inconclusive_searches < MAX_INCONCLUSIVE_SEARCHES:
                channel.inconclusive_searches += 1
                channel.search_at = monotonic() + SEARCH_PAUSE_SECONDS
            else:
                channel.queue(broker_messages.GONE)
                channel.processes = channel.kill_at = channel.search_at = None
        for channel in self._channels.values():
            channel.send()

    def _wait_for_children(self) -> bool:
        """Reap exited children. Return True if there were any."""
        has_reaped = False
        programs = {channel.program: channel for channel in self._channels.values() if channel.processes is not None}
        with suppress(ChildProcessError):
            while self._has_children:
                self._has_children = False  # stays False if `waitpid` raises an error
                pid, status = os.waitpid(-1, os.WNOHANG)
                self._has_children = True
                if pid == 0:
                    break
                has_reaped = True
                if pid in programs:
                    programs[pid].has_exited = True
                    programs[pid].queue(broker_messages.EXITED, status)
        return has_reaped

    def _is_gone(self, channel: SupervisorChannel) -> bool:
        if channel.processes is None or not channel.has_exited:
            return False
        if channel.search_at is not None and monotonic() < channel.search_at:
            return False
        if not channel.processes.is_left(self._has_children):
            return True
        if self._by_group or self._is_shared:
            channel.search_at = monotonic() + SEARCH_PAUSE_SECONDS
        return False

    def _close_link(self) -> None:
        if self._link is not None:
            self._poller.forget(self._link.fileno())
            self._link.close()
            self._link = None

    def _stop_serving(self, channel: SupervisorChannel) -> None:
        """Stop reading a channel, and begin to stop its processes. `serve` closes the channel later."""
        if channel.leave_at is None:
            channel.leave_at = monotonic() + LEAVE_SECONDS
            self._poller.forget(channel.socket.fileno())
            channel.end(LEAVE_GRACE_SECONDS)
