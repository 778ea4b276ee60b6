"""A process beside the server that ends it where it does not end by itself.

A server whose event loop is stuck, that finds no memory, or where a library never gives the interpreter back, can do
nothing about that. So a small process is forked before anything else happens, which kills the server when that is to
end and does not; what it has started ends by the broker:

- Its input has ended: the server may take its time for what it was given, as long as its event loop turns.
- It was sent SIGTERM or SIGINT (the C level of Python tells, whatever the interpreter does), or has begun to leave: it
  has some seconds, which is far more than it needs, and before these what it says that its clients have.
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
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import asyncio

STUCK_SECONDS = 15.0  # after the end of its input, a server that gives no sign of life for so long is stuck
LEAVE_SECONDS = 20.0  # so long may it take to end, once it was asked to or has begun to
ASK_SECONDS = 1.0  # how often it is asked for a sign of life
_LEAVING, _ALIVE, _DRAINING = b"\0", b"\xff", b"\xfe"
"""What the server says; other bytes are numbers of signals, from Python."""
_ENDING = frozenset((0, signal.SIGTERM, signal.SIGINT))


class Watchdog:
    """The server's side; without a channel there is no watchdog.

    The channel is a bare descriptor: it ends with the process and nothing else, as an interpreter may hang at its end.
    """

    def __init__(self, channel: int | None = None) -> None:
        self._channel = channel
        self._drained_at = 0.0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the event loop: give signs of life, and let it hear of signals."""
        if self._channel is not None and sys.platform != "win32":
            signal.set_wakeup_fd(self._channel, warn_on_full_buffer=False)
            loop.add_reader(self._channel, self._answer, loop, self._channel)

    def draining(self, seconds: float) -> None:
        """So long clients have; only then the time to end begins, as long as the event loop turns."""
        self._drained_at = monotonic() + seconds

    def leaving(self) -> None:
        self._drained_at = 0.0
        if self._channel is not None:
            with suppress(OSError):
                os.write(self._channel, _LEAVING)

    def _answer(self, loop: asyncio.AbstractEventLoop, channel: int) -> None:
        try:
            asked = os.read(channel, 64)
            os.write(channel, _DRAINING if monotonic() < self._drained_at else _ALIVE)
        except BlockingIOError:
            return
        except OSError:
            asked = b""
        if not asked:  # somebody has killed it; the interpreter would complain of each signal that it cannot tell it
            loop.remove_reader(channel)
            signal.set_wakeup_fd(-1)


def start_watchdog(*, has_wire: bool) -> Watchdog:
    """Fork it, before there are threads. With a wire, standard input is the client, whose end is that of the server."""
    if sys.platform == "win32":
        return Watchdog()
    server = os.getpid()
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return Watchdog()
    try:
        pid = os.fork()
    except OSError:  # as many processes as there may be: it has to do without
        ours.close()
        theirs.close()
        return Watchdog()
    if pid == 0:
        _watch(server, theirs, has_wire=has_wire)
    theirs.close()
    ours.setblocking(False)
    return Watchdog(ours.detach())


def _watch(server: int, channel: socket.socket, *, has_wire: bool) -> NoReturn:
    if sys.platform == "win32":
        raise NotImplementedError("no process is forked there")
    try:
        gc.disable()
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        # Nothing stays open that is the server's or its client's.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2)[has_wire:]:
            os.dup2(null, standard)
        for name in os.listdir("/dev/fd"):
            if int(name) > 2 and int(name) != channel.fileno():
                with suppress(OSError):
                    os.close(int(name))
        if _has_to_be_killed(channel, has_wire=has_wire) and os.getppid() == server:
            os.kill(server, signal.SIGKILL)
    finally:
        os._exit(0)


def _has_to_be_killed(channel: socket.socket, *, has_wire: bool) -> bool:
    """Wait for the end of the server, or until it should have ended."""
    if sys.platform == "win32":
        raise NotImplementedError("no process is forked there")
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    if has_wire:
        waiting.register(0, getattr(select, "POLLRDHUP", 0))  # that its other end is closed, not what can be read
    is_over = leaves = False
    silent = left = 0.0
    asked_at: float | None = None
    while silent < STUCK_SECONDS and left < LEAVE_SECONDS:
        for descriptor, _ in waiting.poll(ASK_SECONDS * 1000 if is_over or leaves else None):
            if descriptor == 0:
                waiting.unregister(0)
                is_over = True
                continue
            said = channel.recv(4096)
            if not said:
                return False
            silent = 0.0 if _ALIVE in said or _DRAINING in said else silent
            left = 0.0 if _DRAINING in said else left
            leaves = leaves or not _ENDING.isdisjoint(said)
        now = monotonic()
        if (is_over or leaves) and (asked_at is None or now >= asked_at + ASK_SECONDS):
            # Time in which this process was stopped does not count: the server was most likely stopped too.
            passed, asked_at = min(now - (asked_at or now), 2 * ASK_SECONDS), now
            silent += passed if is_over else 0.0
            left += passed if leaves else 0.0
            with suppress(BlockingIOError):
                channel.send(b"?", socket.MSG_DONTWAIT)
    return True
