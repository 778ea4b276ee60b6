"""A cache of values derived from files and folders, valid until one of them changes."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

SETTLED_NANOSECONDS = 2_000_000_000  # two changes within this time may get the same timestamp
Stamp = tuple[int, int, int]  # inode, modification time and change time; programs cannot set the change time
Value = TypeVar("Value")


def stamp_of(path: str) -> Stamp | None:
    """Return a stamp that differs after every change at a path, or `None` if the path is not accessible.

    A folder's stamp changes when an entry is added, removed or renamed.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class Remembered(Generic[Value]):
    """Caches values by key, each with the stamps of the paths that it depends on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[tuple[tuple[str, Stamp | None], ...], Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """Return the value if none of its paths has changed."""
        known = self._known.get(key)
        if known is None or any(stamp_of(path) != stamp for path, stamp in known[0]):
            return None
        return known[1]

    def keep(self, key: Hashable, value: Value, stamps: Iterable[tuple[str, Stamp | None]], looked_at: int) -> None:
        """Keep a value, unless a path changed so recently that another change could go unnoticed.

        `stamps` has the paths that the value depends on, each with its stamp from before the path was examined.
        `looked_at` is the time of that examination, in nanoseconds since the epoch.
        """
        stamps = tuple(stamps)
        if all(stamp is None or looked_at - stamp[-1] > SETTLED_NANOSECONDS for _, stamp in stamps):
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[key] = stamps, value
