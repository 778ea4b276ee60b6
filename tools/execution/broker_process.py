"""The broker as the server sees it: a child process with a socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from tools.contract.resources import usual_open_files

if sys.platform == "win32":
    raise ImportError("there is no broker on Windows")

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "broker.py")

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
