"""A process that kills the server if the server does not exit on its own.

A server cannot exit if its event loop is stuck, if it runs out of memory, or if a library blocks the interpreter.
Therefore a small process is forked before most modules are imported, and kills the server in the following cases. The
broker then kills the server's children.

- The server's input has ended, and its event loop has not responded for `STUCK_SECONDS`. As long as the event loop
  runs, the server may take as long as it needs to finish open requests.
- The server received SIGTERM or SIGINT (which Python's C code reports even if the interpreter hangs), or has begun to
  shut down, and does not exit in time. While the server reports that it is draining, which means that its
  clients may still finish requests, no time is counted. After that, it has `LEAVE_SECONDS` to exit, which is far more
  than it needs.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

STUCK_SECONDS = 15.0  # after the end of its input, a server that is silent for this time counts as stuck
LEAVE_SECONDS = 20.0  # time limit for the shutdown, once it has begun
ASK_SECONDS = 1.0  # interval between checks
_LEAVING, _ALIVE, _DRAINING = b"\0", b"\xff", b"\xfe"
"""Messages from the server; other bytes are signal numbers from Python."""
_ENDING = frozenset((0, signal.SIGTERM, signal.SIGINT))


class Watchdog:
    """The server's end of the channel to the watchdog. If the channel is `None`, there is no watchdog.

    The channel is a bare descriptor, so it closes exactly when the process exits, even if the interpreter hangs then.
    """

    def __init__(self, channel: int | None = None) -> None:
        self._channel = channel
        self._drained_at = 0.0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer the watchdog's checks in the event loop, and report signals to the watchdog."""
        if self._channel is not None and sys.platform != "win32":
            signal.set_wakeup_fd(self._channel, warn_on_full_buffer=False)
            loop.add_reader(self._channel, self._answer, loop, self._channel)

    def draining(self, seconds: float) -> None:
        """Give clients `seconds` to finish requests; if the event loop responds, `LEAVE_SECONDS` begin after that."""
        self._drained_at = monotonic() + seconds

    def leaving(self) -> None:
        self._drained_at = 0.0
        if self._channel is not None:
            with suppress(OSError):
                os.write(self._channel, _LEAVING)

    def _answer(self, loop: asyncio.AbstractEventLoop, channel: int) -> None:
        try:
            request = os.read(channel, 64)
            os.write(channel, _DRAINING if monotonic() < self._drained_at else _ALIVE)
        except BlockingIOError:
            return
        except OSError:
            request = b""
        if not request:  # the watchdog is gone, so the interpreter would report an error at each signal
            loop.remove_reader(channel)
            signal.set_wakeup_fd(-1)


def start_watchdog(*, has_wire: bool) -> Watchdog:
    """Fork the watchdog, before there are threads. With `has_wire`, it also acts on the end of the server's input."""
    if sys.platform == "win32":
        return Watchdog()
    server = os.getpid()
    try:
        server_end, watchdog_end = socket.socketpair()
    except OSError:
        return Watchdog()
    try:
        pid = os.fork()
    except OSError:  # the process limit has been reached: continue without a watchdog
        server_end.close()
        watchdog_end.close()
        return Watchdog()
    if pid == 0:
        try:
            gc.disable()
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)
            os.chdir("/")
            # Close everything that belongs to the server or its client.
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2)[has_wire:]:
                os.dup2(null, descriptor)
            for name in os.listdir("/dev/fd"):
                if int(name) > 2 and int(name) != watchdog_end.fileno():
                    with suppress(OSError):
                        os.close(int(name))
            if _must_be_killed(watchdog_end, has_wire=has_wire) and os.getppid() == server:
                os.kill(server, signal.SIGKILL)
        finally:
            os._exit(0)
    watchdog_end.close()
    server_end.setblocking(False)
    return Watchdog(server_end.detach())


def _must_be_killed(channel: socket.socket, *, has_wire: bool) -> bool:
    """Wait for the server's exit. Return false if it has exited, or true if it is overdue and must be killed."""
    if sys.platform == "win32":
        raise NotImplementedError("the watchdog needs fork, which Windows does not have")
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    if has_wire:
        poller.register(0, getattr(select, "POLLRDHUP", 0))  # wake up at the end of the input, not when data arrives
    is_over = is_leaving = False
    silent_seconds = leaving_seconds = 0.0
    asked_at: float | None = None
    while silent_seconds < STUCK_SECONDS and leaving_seconds < LEAVE_SECONDS:
        for descriptor, _ in poller.poll(ASK_SECONDS * 1000 if is_over or is_leaving else None):
            if descriptor == 0:
                poller.unregister(0)
                is_over = True
                continue
            data = channel.recv(4096)
            if not data:
                return False
            silent_seconds = 0.0 if _ALIVE in data or _DRAINING in data else silent_seconds
            leaving_seconds = 0.0 if _DRAINING in data else leaving_seconds
            is_leaving = is_leaving or not _ENDING.isdisjoint(data)
        now = monotonic()
        if (is_over or is_leaving) and (asked_at is None or now >= asked_at + ASK_SECONDS):
            # Do not count the time during which this process was suspended: the server was probably suspended too.
            elapsed, asked_at = min(now - (asked_at or now), 2 * ASK_SECONDS), now
            silent_seconds += elapsed if is_over else 0.0
            leaving_seconds += elapsed if is_leaving else 0.0
            with suppress(BlockingIOError):
                channel.send(b"?", socket.MSG_DONTWAIT)
    return True
