"""What the C library is told about memory: that of large messages is kept for a while, for the next ones.

To give it back to the system and get it anew, page by page, takes about a third of the time that a large result takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

MOST_KEPT = 64 << 20
"""Bytes that are not used and not given back."""

LARGEST_BLOCK = 32 << 20
"""A larger block is given back as soon as it is not used (the most that the C library allows)."""

IDLE_SECONDS = 10.0
"""After so long without large messages everything is given back."""

ARENAS = 2
"""From so many places threads take memory where the address space is limited."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""What `mallopt` of glibc calls them."""


class KeptMemory:
    """Keeps memory from the first large message on, where the C library can be told so.

    Args:
        seconds: How long after the last large message.
    """

    def __init__(self, seconds: float = IDLE_SECONDS) -> None:
        self._seconds = seconds
        self._give_back: Callable[[int], int] | None = None
        self._is_told = False
        self._last_use = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_kept(self) -> bool:
        """Whether memory is kept now."""
        return self._timer is not None

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """A large message passes."""
        if not self._is_told:
            self._is_told = True
            self._tell()
        self._last_use = loop.time()
        if self._timer is None and self._give_back is not None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        idle_from = self._last_use + self._seconds
        if loop.time() < idle_from:
            self._timer = loop.call_at(idle_from, self._look, loop)
            return
        self._timer = None
        if self._give_back is not None:
            self._give_back(0)

    def _tell(self) -> None:
        if sys.platform != "linux":
            return
        import ctypes  # noqa: PLC0415 - with the first large message

        with suppress(OSError, AttributeError):  # other C libraries have none of these
            library = ctypes.CDLL(None)
            give_back = library.malloc_trim
            library.mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK)
            library.mallopt(_TRIM_THRESHOLD, MOST_KEPT)
            self._give_back = give_back


def save_address_space() -> None:
    """Where the address space is limited, let threads share their memory, before there are threads.

    The C library would set 64 MB of it aside for each of them: eight threads, and half a gigabyte is used up.
    """
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - not on every system

    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import ctypes  # noqa: PLC0415 - it takes a while

    with suppress(OSError, AttributeError):  # other C libraries have no such thing
        ctypes.CDLL(None).mallopt(_ARENA_MAX, ARENAS)


KEPT_MEMORY = KeptMemory()
"""That of this process."""
