"""Whether the one client of this process takes what is there for it.

While it leaves much unread, what would only come on top is not read from others: answers of upstreams may be large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Room:
    """Tells when there is room for more."""

    def __init__(self) -> None:
        self.is_full = False
        self._waiting: dict[Callable[[], None], None] = {}

    def fill(self) -> None:
        """There is none."""
        self.is_full = True

    def free(self) -> None:
        """There is room again."""
        if self.is_full:
            self.is_full = False
            waiting, self._waiting = self._waiting, {}
            for tell in waiting:
                tell()

    def when_free(self, tell: Callable[[], None]) -> None:
        """Have somebody told once, when there is room again."""
        self._waiting[tell] = None

    async def wait(self) -> None:
        """Wait until there is room."""
        while self.is_full:
            free = asyncio.Event()
            self.when_free(free.set)
            await free.wait()


ROOM = Room()
"""That of this process's client over stdio; where clients come over the network there is always room."""
