"""How many calls an upstream works on at once: each has a place, and others wait for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from server.json_rpc import Json
from server.upstreams.wire.peer import RelayError

MOST_PER_SECOND = 100
"""Log messages, and other notifications that belong to no request, of one session that are passed on (ours)."""

SECOND = 1.0


class Flood:
    """Counts what an upstream says, and tells once a second how much of it was left out.

    Args:
        alias: The upstream.
        tell: Passes a log message on to whoever hears the upstream.
    """

    def __init__(self, alias: str, tell: Callable[[Json], None]) -> None:
        self.left_out = 0
        """What nobody has been told of yet."""
        self._alias = alias
        self._tell = tell
        self._began = float("-inf")
        self._count = 0

    def admits(self) -> bool:
        """Whether one message more is passed on."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._began + SECOND:
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= MOST_PER_SECOND:
            return True
        if not self.left_out:
            loop.call_at(self._began + SECOND, self._tell_late)
        self.left_out += 1
        return False

    def account(self) -> Json:
        """A log message that says how many were left out since the last one."""
        left_out, self.left_out = self.left_out, 0
        said = (
            f"The server {self._alias} sent more than {MOST_PER_SECOND} messages in a second; {left_out} are left out."
        )
        return {"level": "warning", "logger": "coretools-mcp", "data": said}

    def _tell_late(self) -> None:
        if self.left_out:
            self._tell(self.account())


logger = logging.getLogger(__name__)

MOST = 256
"""Pieces of work of one session at once (ours)."""


class FewAtOnce:
    """Runs work in the background. What comes while there is too much of it is left out.

    Whoever asks on and on without reading the answers gets no more of them; whatever it says is read all the same.

    Args:
        alias: The upstream.
        tasks: Runs the work.
    """

    def __init__(self, alias: str, tasks: TaskGroup) -> None:
        self._alias = alias
        self._tasks = tasks
        self._count = 0

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Begin a piece of work, if there is room for it."""
        if self._count >= MOST:
            logger.debug("upstream %s says more than can be answered", self._alias)
            return
        self._count += 1
        self._tasks.start_soon(self._do, work, arguments)

    async def _do(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]) -> None:
        try:
            await work(*arguments)
        finally:
            self._count -= 1


class BusyError(RelayError):
    """No place became free in the time of a call, which was not sent.

    Args:
        most: How many calls may be at work.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most


class Place:
    """The place of one call, which is left once.

    Args:
        free: The semaphore that it is one of.
    """

    def __init__(self, free: anyio.Semaphore) -> None:
        self.is_kept = False
        """Whether it is left with the call at the upstream, since nobody waits for that call now."""
        self._free = free
        self._is_left = False

    def leave(self) -> None:
        """Let the next call have it."""
        if not self._is_left:
            self._is_left = True
            self._free.release()


class Places:
    """The places of one upstream.

    Args:
        most: How many there are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = anyio.Semaphore(most)

    async def take(self, seconds: float) -> Place:
        """Wait for a place, in the order of arrival.

        Args:
            seconds: How long.

        Raises:
            BusyError: None became free.
        """
        with anyio.move_on_after(seconds):
            await self._free.acquire()
            return Place(self._free)
        raise BusyError(self._most)
