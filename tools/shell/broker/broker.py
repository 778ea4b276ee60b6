"""Forks supervisors for the server, and kills the processes that dead supervisors leave behind.

    server -- broker -- supervisor -- program -- whatever it starts
               `- supervisor ...
               `- supervisor -- service
                            `-- service ...

For each supervisor, the server creates a pair of sockets and passes one end to the broker, which forks. Server and
supervisor then talk directly. The broker only keeps a copy of the supervisor's end, and closes it once the supervisor
and all its descendants have exited. When the server reads end of file, none of these processes is left.
Long-running services share one supervisor, to which the broker passes their sockets.

No program outlives the server, however the server exits: all its sockets close, and the supervisors stop their
programs. Supervisors also stop their programs if the broker is killed. The processes of a killed supervisor become
children of the broker, because on Linux the broker and the supervisors are subreapers. A program can escape only by
killing the broker and its supervisor at the same moment, or by switching to a user whose processes they may not signal.
On systems without subreapers, a program can also escape by leaving its process group or killing its supervisor.

This script runs without the server's import path, so the only modules of this project that it can import are the other
three in this folder. Standard input is the socket to the server. The arguments are what supervisors track
(`descendants` or `group`), and the limit on open files for programs.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING or __name__ != "__main__":
    from tools.shell.broker import broker_messages, confinement, supervisor
else:
    # With -I, the script's folder is not on the import path. Append it, so that the modules in it do not shadow
    # standard modules.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import broker_messages
    import confinement
    import supervisor

if sys.platform == "win32":
    raise ImportError("the broker is not available on Windows")

# Seconds after the server's exit until processes that cannot be killed are abandoned. Supervisors abandon theirs one
# second earlier.
LEAVE_SECONDS = supervisor.LEAVE_SECONDS + 1.0


class Broker:
    """The parent of all supervisors. Each byte from the server comes with a socket for a supervisor."""

    def __init__(self, server: socket.socket, is_subreaper: bool, most_files: int) -> None:
        self._server = server
        self._is_subreaper = is_subreaper
        self._most_files = most_files
        self._lifeline = os.pipe()  # never written to; supervisors read end of file when this process dies
        self._poller = supervisor.Poller(server.fileno())
        self._channels: dict[int, list[socket.socket]] = {}  # copies of each supervisor's sockets, keyed by pid
        self._shared: tuple[int, socket.socket] | None = None  # process id of the shared supervisor, and the link to it
        self._orphaned_channels: list[socket.socket] = []  # sockets of dead supervisors, until their processes are gone
        self._kill_orphans_at: float | None = None
        self._leave_at: float | None = None

    def serve(self) -> None:
        """Fork supervisors until the server is gone and all supervisors have exited."""
        while self._leave_at is None or ((self._channels or self._orphaned_channels) and monotonic() < self._leave_at):
            if self._poller.wait(self._kill_orphans_at, self._leave_at) and not self._receive_channel():
                self._leave_at = monotonic() + LEAVE_SECONDS
                self._poller.forget(self._server.fileno())
                self._close_link()
            self._reap()
            if self._orphaned_channels:
                self._kill_orphans()

    def _receive_channel(self) -> bool:
        """Find or fork a supervisor for a socket from the server. Return False if the server is gone."""
        try:
            kind, descriptors, _, _ = socket.recv_fds(self._server, 1, 1)
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            channel = socket.socket(fileno=descriptor)
            if kind != broker_messages.SHARED or not self._pass_to_shared(channel):
                self._fork(channel, is_shared=kind == broker_messages.SHARED)
        return bool(kind)

    def _pass_to_shared(self, channel: socket.socket) -> bool:
        """Pass a socket to the shared supervisor. Return False if there is none, or if it cannot be reached."""
        if self._shared is None:
            return False
        pid, link = self._shared
        try:
            socket.send_fds(link, [broker_messages.SHARED], [channel.fileno()])
        except OSError:
            self._close_link()
            return False
        # Close the copies of sockets that the server has closed.
        poll = select.poll()
        copies = {copy.fileno(): copy for copy in self._channels[pid]}
        for number in copies:
            poll.register(number, 0)
        for number, _ in poll.poll(0):
            copies.pop(number).close()
        self._channels[pid] = [*copies.values(), channel]
        return True

    def _close_link(self) -> None:
        if self._shared is not None:
            self._shared[1].close()
            self._shared = None

    def _fork(self, channel: socket.socket, *, is_shared: bool) -> None:
        ours = theirs = None
        try:
            if is_shared:
                ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError as error:
            with channel, suppress(OSError):
                channel.sendall(broker_messages.frame(broker_messages.FAILED, error.errno or 0))
            return
        if pid == 0:
            if ours is not None:
                ours.close()
            self._become_supervisor(channel, theirs)
        self._channels[pid] = [channel]
        if ours is not None and theirs is not None:
            theirs.close()
            ours.setblocking(False)
            self._shared = (pid, ours)

    def _become_supervisor(self, channel: socket.socket, link: socket.socket | None) -> NoReturn:
        """In the child, close everything that belongs to the broker, then serve."""
        status = 1
        try:
            lifeline, write_end = self._lifeline
            os.close(write_end)
            self._close_link()
            for foreign in (
                self._server,
                self._poller,
                *chain.from_iterable(self._channels.values()),
                *self._orphaned_channels,
            ):
                foreign.close()
            is_subreaper = self._is_subreaper and supervisor.become_subreaper()
            import resource  # noqa: PLC0415 - POSIX only; `main` has loaded it

            # Programs get the original limit, because the server has raised its own.
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            with suppress(ValueError):  # another process has lowered the hard limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (self._most_files, hard))
            try:
                new_supervisor = supervisor.Supervisor(channel, lifeline, link, by_group=not is_subreaper)
            except OSError as error:
                channel.sendall(broker_messages.frame(broker_messages.FAILED, error.errno or 0))
            else:
                status = 0 if new_supervisor.serve() else 1
        except BaseException as error:  # noqa: BLE001 - a child must not return to the broker's code
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(status)

    def _reap(self) -> bool:
        """Reap exited children: supervisors, and processes that they left behind. Return True if there were any."""
        has_reaped = False
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):
                    # If this is a supervisor, a program may have suspended it with a signal, so resume it.
                    supervisor.send_signals([pid] if pid in self._channels else [], signal.SIGCONT)
                    continue
                has_reaped = True
                if self._shared is not None and pid == self._shared[0]:
                    self._close_link()
                channels = self._channels.pop(pid, [])
                if status != 0:
                    self._orphaned_channels += channels
                    continue
                for channel in channels:
                    channel.close()  # a supervisor that exited properly leaves no processes behind
        return has_reaped

    def _kill_orphans(self) -> None:
        """Kill the processes that dead supervisors left behind. Once none is left, close the supervisors' sockets."""
        if self._is_subreaper:
            orphans = supervisor.Descendants(excluded_pids=self._channels)
            if orphans.pids():
                orphans.kill()
                self._kill_orphans_at = monotonic() + supervisor.KILL_PAUSE_SECONDS
                return
            # If a process starts another and exits during the search, both may be missed. In that case, there is an
            # exited child to reap.
            if self._reap():
                self._kill_orphans_at = monotonic()
                return
        for channel in self._orphaned_channels:
            channel.close()
        self._orphaned_channels.clear()
        self._kill_orphans_at = None


def main(tracking: str, most_files: int) -> None:
    gc.disable()
    confinement.make_private()
    with suppress(PermissionError):
        os.setsid()
    os.chdir("/")
    # Ignore these signals, because the broker must not exit before the server.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Keep only the socket and stderr, and close what was inherited from the process that started the server.
    server = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    while null <= sys.stderr.fileno():  # if any of the descriptors 0 to 2 was closed
        null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) != server.fileno():
            with suppress(OSError):
                os.close(int(name))
    is_subreaper = tracking == "descendants" and supervisor.become_subreaper()
    for name in ("fcntl", "resource"):  # imported here once, so that no supervisor has to import them
        import_module(name)
    gc.freeze()
    Broker(server, is_subreaper, most_files).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
