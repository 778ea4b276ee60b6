"""The files of a search in portions, taken from the walk as they are needed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from tools.filesystem.finding.walk import FolderFiles
from tools.filesystem.search.engines.engine import Batch
from tools.filesystem.workspace import Location

GROWTH = 3
"""Each batch is so many times larger than the one before it."""

MAX_FILES = 20_000
MAX_BYTES = 500_000 if os.name == "posix" else 24_000
"""Bytes of paths on one command line: a quarter of what Linux takes, and what Windows takes."""


class Batches:
    """Takes files in the order of the walk.

    Args:
        folder: What the paths start from.
        groups: The files, by folder, in the order of their paths.
    """

    def __init__(self, folder: Location, groups: Iterable[FolderFiles]) -> None:
        self._folder = folder
        self._groups = iter(groups)
        self._coming = deque(islice(self._groups, 1))
        """What comes next; empty only at the end."""
        self._left_over: FolderFiles | None = None
        """What is left of a folder of which some files were taken."""
        self._taken: list[FolderFiles] = []

    @property
    def at_end(self) -> bool:
        """Whether all files were taken."""
        return not self._coming and self._left_over is None

    @property
    def frontier(self) -> str | None:
        """Every file whose path comes before this one was taken; `None` if all were."""
        paths = [self._coming[0].prefix] if self._coming else []
        if self._left_over:
            paths.append(self._left_over.prefix + self._left_over.names[0])
        return min(paths, default=None)

    def taken(self) -> Iterator[str]:
        """The paths of all files taken so far."""
        return (prefix + name for prefix, names, _ in self._taken for name in names)

    def holds_more_than(self, files: int) -> bool:
        """Whether more files than so many are left; the walk goes on until that is known."""
        left = len(self._left_over.names) if self._left_over else 0
        left += sum(len(group.names) for group in self._coming)
        while left <= files:
            group = next(self._groups, None)
            if group is None:
                return False
            self._coming.append(group)
            left += len(group.names)
        return True

    def first(self, files: int) -> Iterator[Batch]:
        """So many files, folder by folder."""
        while files > 0 and not self.at_end:
            group = self._take(files)
            files -= len(group.names)
            yield Batch(self._folder, [group], len(group.names))

    def growing(self, files: int) -> Iterator[Batch]:
        """All files; so many at first, then more and more."""
        while not self.at_end:
            groups: list[FolderFiles] = []
            taken = size = 0
            while taken < files and size < MAX_BYTES and not self.at_end:
                group = self._taken_for(files - taken, MAX_BYTES - size)
                groups.append(group)
                taken += len(group.names)
                size += _size(group)
            yield Batch(self._folder, groups, taken)
            files = min(files * GROWTH, MAX_FILES)

    def _taken_for(self, files: int, size: int) -> FolderFiles:
        """The next folder as a whole, if that is wanted of it, or some of its files."""
        group = self._left_over or self._coming[0]
        if group.is_whole:
            return self._take(len(group.names))
        longest = 4 * (len(group.prefix) + max(map(len, group.names))) + _OVERHEAD
        return self._take(max(1, min(files, size // longest)))

    def _take(self, files: int) -> FolderFiles:
        group = self._left_over or self._coming.popleft()
        if not self._coming:
            self._coming.extend(islice(self._groups, 1))
        prefix, names, _ = group
        self._left_over = FolderFiles(prefix, names[files:], is_whole=False) if len(names) > files else None
        taken = FolderFiles(prefix, names[:files], is_whole=False) if self._left_over else group
        self._taken.append(taken)
        return taken


_OVERHEAD = 11
"""Bytes beside a path on a command line: `./`, what ends it, a pointer to it."""


def _size(group: FolderFiles) -> int:
    """The most bytes that a group takes on a command line."""
    prefix, names, is_whole = group
    count = 1 if is_whole else len(names)
    characters = count * len(prefix) + (0 if is_whole else sum(map(len, names)))
    return characters * (1 if is_whole and prefix.isascii() else 4) + count * _OVERHEAD


def grouped(paths: Iterable[str]) -> list[FolderFiles]:
    """Single files by folder, in the order of the walk."""
    folders: dict[str, list[str]] = {}
    for path in sorted(paths):
        prefix, slash, name = path.rpartition("/")
        folders.setdefault(prefix + slash, []).append(name)
    return [FolderFiles(prefix, folders[prefix], is_whole=False) for prefix in sorted(folders)]
