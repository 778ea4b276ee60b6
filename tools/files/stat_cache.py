"""What was found out about files and folders, kept until one of these changes."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

SETTLED_NANOSECONDS = 2_000_000_000  # a later change may have the same time on coarse file systems
Stamp = tuple[int, int, int]  # which file or folder it is, and when it was changed last, which nobody can set back
Value = TypeVar("Value")


def stamp_of(path: str) -> Stamp | None:
    """What is another one after a change: of a folder, after an entry was made, removed or renamed."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class Remembered(Generic[Value]):
    """Values by their keys, each with the stamps of what it depends on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[tuple[tuple[str, Stamp | None], ...], Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """The value, if all that it depends on is as it was."""
        known = self._known.get(key)
        if known is None or any(stamp_of(path) != stamp for path, stamp in known[0]):
            return None
        return known[1]

    def keep(self, key: Hashable, value: Value, stamps: Iterable[tuple[str, Stamp | None]], looked_at: int) -> None:
        """Keep a value, unless a change now could go unseen.

        Args:
            key: What the value is found by.
            value: The value.
            stamps: The paths that it depends on, each with its stamp from before they were looked at.
            looked_at: The time then, in nanoseconds.
        """
        stamps = tuple(stamps)
        if all(stamp is None or looked_at - stamp[-1] > SETTLED_NANOSECONDS for _, stamp in stamps):
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[key] = stamps, value
