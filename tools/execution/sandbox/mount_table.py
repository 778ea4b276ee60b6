"""What is mounted where: as this process sees it, and as a sandbox that is being set up does.

A table says which mount lies on which. Its order and its paths alone do not: of several mounts on one place only the
topmost is seen, and a mount on a folder covers those that were made below it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.filesystem.workspace import contains

_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}
"""How the mount table writes these characters (proc_pid_mountinfo(5))."""


class Mount(NamedTuple):
    """A line of a mount table.

    Args:
        number: By which other lines call it.
        parent: The mount that it lies on.
        device: Of its file system.
        what: The path in its file system.
        at: Where it is mounted.
        is_read_only: Whether nothing can be changed through it.
    """

    number: str
    parent: str
    device: str
    what: str
    at: str
    is_read_only: bool


_NONE = Mount("", "", "", "", "", is_read_only=False)
"""In place of a root that is not a mount: nothing is mounted as it."""


class Expected(NamedTuple):
    """A mount that a sandbox is to have, on top of all others on its place.

    Args:
        at: Where.
        device: Of its file system.
        what: The path in its file system.
        is_read_only: Whether nothing can be changed through it.
        layers: How many mounts lie on each other there, it included; `None` where that may differ. As each has
            exactly one more than before, none was led to another place by a link.
    """

    at: str
    device: str
    what: str
    is_read_only: bool
    layers: int | None = None


class MountTable:
    """What a process has mounted where, as it was when this was made.

    Args:
        process: Its id.
        top: The folder that will be its root. Where that is not the root yet, only what lies in it is told.

    Raises:
        OSError: The process is gone, or is not ours.
    """

    def __init__(self, process: int | str = "self", top: str = "") -> None:
        known = {mount.number: mount for mount in _mounts(process, top)}
        upon = {number: mount for number, mount in known.items() if mount.parent in known and mount.parent != number}
        self._lowest = next((mount for mount in known.values() if mount.at == "/" and mount.number not in upon), _NONE)
        self._upon = {(mount.parent, mount.at): mount for mount in upon.values()}
        """What lies on a mount, at a place."""

    def bound_first(self, path: str) -> Expected:
        """What a table has to say of a path that was mounted onto itself, where nothing above it was before.

        Args:
            path: An absolute path without links.
        """
        over, _ = self._seen(path)
        what = over.what.rstrip("/") + path[len(over.at.rstrip("/")) :]
        return Expected(path, over.device, what or "/", over.is_read_only)

    def bound(self, path: str, *, is_read_only: bool = False) -> Expected:
        """The same where a folder above came before, with all that is mounted below it.

        Args:
            path: An absolute path without links.
            is_read_only: Whether it was mounted so.
        """
        own, (_, layers) = self.bound_first(path), self._seen(path)
        return own._replace(is_read_only=is_read_only or own.is_read_only, layers=layers + 1)

    def has(self, expected: Expected) -> bool:
        """Whether a mount is there and seen."""
        seen, layers = self._seen(expected.at)
        return (seen.at, seen.device, seen.what, seen.is_read_only) == expected[:4] and expected.layers in {
            None,
            layers,
        }

    def _seen(self, path: str) -> tuple[Mount, int]:
        """The mount on which a path is found, from the root on down, and how many lie on each other at the path."""
        seen, layers = self._lowest, 0
        for place in _way(path):
            layers = 0
            while (upon := self._upon.get((seen.number, place))) is not None:
                seen, layers = upon, layers + 1
        return seen, layers


def _way(path: str) -> Iterator[str]:
    """The folders that lead to an absolute path, and it."""
    yield "/"
    end = 0
    while path != "/" and end >= 0:
        end = path.find("/", end + 1)
        yield path if end < 0 else path[:end]


def _mounts(process: int | str, top: str) -> Iterator[Mount]:
    with open(f"/proc/{process}/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for line in lines:
            if top in line:
                number, parent, device, what, at, options, _ = line.split(" ", 6)
                if contains(top or "/", at):
                    at = _unescaped(at.removeprefix(top)) or "/"
                    yield Mount(number, parent, device, _unescaped(what), at, "ro" in options.split(","))


def _unescaped(text: str) -> str:
    if "\\" in text:
        # The backslash last, since all others begin with one.
        for character, escape in _ESCAPES.items():
            text = text.replace(escape, character)
    return text
