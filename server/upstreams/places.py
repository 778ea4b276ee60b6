"""How many calls an upstream works on at once: each has a place, and others wait for one."""

from __future__ import annotations

import anyio

from server.upstreams.peer import RelayError


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
