"""What is mounted where: as this process sees it, and as a sandbox that is being set up does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tools.filesystem.workspace import contains

_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}
"""How the mount table writes these characters (proc_pid_mountinfo(5))."""


class Mount(NamedTuple):
    """A line of a mount table.

    Args:
        device: Of the file system; `None` in what is expected of one that is new.
        what: The path in its file system.
        at: Where it is mounted.
    """

    device: str | None
    what: str
    at: str


def mounts(process: int | str = "self", top: str = "") -> list[Mount]:
    """The mount table of a process, in the order of mounting.

    Args:
        process: Its id.
        top: The folder that will be its root. Where that is not the root yet, only what lies in it is told.

    Raises:
        OSError: The process is gone, or is not ours.
    """
    with open(f"/proc/{process}/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        table = [line.split(" ", 5)[2:5] for line in lines if top in line]
    return [
        Mount(device, _unescaped(what), _unescaped(at.removeprefix(top)) or "/")
        for device, what, at in table
        if contains(top or "/", at)
    ]


def holds(table: Sequence[Mount], expected: Sequence[Mount]) -> bool:
    """Whether a table has what is expected, in its order and with nothing in between."""
    count = len(expected)
    parts = (table[first : first + count] for first in range(len(table) - count + 1))
    return any(all(map(_is, part, expected)) for part in parts)


def _is(mount: Mount, expected: Mount) -> bool:
    return mount[1:] == expected[1:] and expected.device in {None, mount.device}


class MountTable:
    """What this process has mounted where, as it was when this was made."""

    def __init__(self) -> None:
        self._mounts = mounts()

    def records(self, path: str) -> tuple[Mount, ...]:
        """What a mount table says of a path that was mounted onto itself. What is mounted below it comes along.

        Args:
            path: An absolute path without links.
        """
        # Later mounts on the same place lie over earlier ones, so the last of the longest.
        over = max(
            (mount for mount in reversed(self._mounts) if contains(mount.at, path)), key=lambda mount: len(mount.at)
        )
        own = Mount(over.device, over.what.rstrip("/") + path[len(over.at.rstrip("/")) :], path)
        return (own, *(mount for mount in self._mounts if mount.at != path and contains(path, mount.at)))


def _unescaped(text: str) -> str:
    if "\\" in text:
        # The backslash last, since all others begin with one.
        for character, escape in _ESCAPES.items():
            text = text.replace(escape, character)
    return text
