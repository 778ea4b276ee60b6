"""Which mounts keep what steers programs as it is, or at least where it is.

A mount point cannot be renamed, but a folder that holds one can, and the mount moves along: something else could then
take its place. So every folder on the way from the root to what is kept is mounted onto itself, too. For what lies at
the top of a root, as it mostly does, there is none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tools.execution.sandbox.arguments import depth
from tools.filesystem.workspace import contains

KEPT = 200
"""Mounts for the paths of all workspaces that are kept, of each kind, with the folders on the way to them: those
nearest to the top. Each takes bubblewrap the longer the more there are."""


@dataclass(slots=True)
class Kept:
    """The mounts of a command that keep something.

    Args:
        roots: Writable folders, none in another one.
        seen: Whether a path lies in a root and is not hidden there.
        pinned: Writable folders that cannot be renamed or removed, in the order in which they were asked for.
        read_only: The same of what stays as it is.
        uncovered: How many paths there were no mounts left for.
    """

    roots: Sequence[str]
    seen: Callable[[str], bool]
    pinned: dict[str, None] = field(default_factory=dict[str, None])
    read_only: dict[str, None] = field(default_factory=dict[str, None])
    uncovered: int = 0

    def pin(self, paths: Iterable[str]) -> None:
        """Keep folders where they are. A path that is none, or a link, is left out."""
        self._take(paths, self.pinned)

    def protect(self, paths: Iterable[str]) -> None:
        """Keep files and folders as they are. A path where nothing is, or a link, is left out."""
        self._take(paths, self.read_only)

    def pin_ways(self, paths: Iterable[str]) -> None:
        """Keep the folders where they are that lead to paths with mounts of their own."""
        self._take((folder for path in paths for folder in self._way(path)), self.pinned)

    def pinned_only(self) -> Iterator[str]:
        """The pinned folders without those that are read-only, or in one that is: they cannot be renamed anyway."""
        for path in self.pinned:
            if path not in self.read_only and self.read_only.keys().isdisjoint(self._way(path)):
                yield path

    def _take(self, paths: Iterable[str], kind: dict[str, None]) -> None:
        used = 0
        for path in filter(self.seen, dict.fromkeys(paths)):
            if path in kind or not _is_there(path):
                continue
            way = [folder for folder in self._way(path) if folder not in self.pinned and folder not in self.read_only]
            if used + len(way) + 1 > KEPT:
                self.uncovered += 1
                continue
            used += len(way) + 1
            self.pinned |= dict.fromkeys(way)
            kind[path] = None

    def _way(self, path: str) -> Iterator[str]:
        """The folders between the root and a path in it."""
        folder = os.path.dirname(path)
        while any(contains(root, folder) and root != folder for root in self.roots):
            if self.seen(folder):
                yield folder
            folder = os.path.dirname(folder)


def by_depth(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths in an order in which a mount covers none that was made before it."""
    return tuple(sorted(paths, key=depth))


def _is_there(path: str) -> bool:
    with suppress(OSError):
        return not stat.S_ISLNK(os.lstat(path).st_mode)
    return False
