"""Which files of a workspace root steer programs outside the sandbox, as they stand before a command and after it.

A repository's own folder is pinned (a mount cannot be renamed), so that no other repository can take its place; what
steers git in it is read-only, the rest stays writable, so that git can commit.

Looking is bounded: what lies deeper, or beyond the number of folders, is not protected. What is new below the top of a
root is not prevented, but told afterwards.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tools.contract.resources import exhaustion_of
from tools.execution.sandbox.placeholders import is_placeholder
from tools.permissions.steering_files import (
    ABSENT_FILES,
    ABSENT_FOLDERS,
    REPOSITORY,
    REPOSITORY_FILES,
    REPOSITORY_FOLDERS,
    WORKSPACE_SUFFIX,
    folded,
    is_guarded_in_repository,
    is_steering_name,
)

DEPTH = 6
"""Folders below a root that are looked into."""

FOLDERS = 1_500
"""Folders of a root that are looked into, those near the top first."""

_FETCHED = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders of fetched or made files: large, and nobody opens them as a project."""

_MODULE_DEPTH = 6
"""Folders below a repository's own one in which submodules and worktrees are looked for."""

SETTLED_NANOSECONDS = 2_000_000_000
"""How old a folder's last change must be for its time to tell of the next: the step of coarse file systems."""

KEPT_FOLDERS = 20_000
"""Folders that are remembered, of all roots together."""


@dataclass(slots=True)
class Steering:
    """What was found in a root. All paths are absolute.

    Args:
        pinned: Folders that stay where they are and writable: repositories' own ones.
        read_only: Files and folders that stay as they are.
        absent: Paths that must not be made.
        found: Every steering path that is there, links too.
    """

    pinned: list[str] = field(default_factory=list[str])
    read_only: list[str] = field(default_factory=list[str])
    absent: list[str] = field(default_factory=list[str])
    found: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class _Folder:
    """What matters of a folder, as it was when it was last looked into.

    Args:
        stamp: Told by the system: it is another one if an entry was made, removed or renamed. Nobody can set it back.
        steering: Entries that steer.
        below: Paths of the folders to go on with.
    """

    stamp: tuple[int, int, int]
    steering: tuple[os.DirEntry[str], ...]
    below: tuple[str, ...]


class SteeringLookout:
    """Looks through roots, and remembers the folders that have not changed since."""

    def __init__(self) -> None:
        self._known: dict[str, _Folder] = {}
        # For each root, the folders in which something was found.
        self._holding: dict[str, set[str]] = {}

    def look(self, root: str) -> Steering:
        """Look through a root, the folders near its top first, and once more where something was found before.

        So a command cannot hide what the next one is to leave alone behind very many new folders.
        """
        steering = Steering()
        for name in (*ABSENT_FOLDERS, *ABSENT_FILES):
            path = os.path.join(root, name)
            if not os.path.lexists(path) or is_placeholder(path):
                steering.absent.append(path)
        waiting = deque([(root, 0)])
        looked: set[str] = set()
        holding: set[str] = set()
        while waiting and len(looked) < FOLDERS:
            path, depth = waiting.popleft()
            looked.add(path)
            below = self._take_from(path, steering, holding, is_top=depth == 0)
            if depth < DEPTH:
                waiting.extend((folder, depth + 1) for folder in below)
        for path in sorted(self._holding.get(root, set()) - looked):
            if os.path.realpath(path) == path:
                self._take_from(path, steering, holding, is_top=False)
        self._holding[root] = holding
        return steering

    def _take_from(self, path: str, steering: Steering, holding: set[str], *, is_top: bool) -> tuple[str, ...]:
        """Take what steers in a folder, and tell the folders to go on with."""
        folder = self._folder(path)
        if folder is None:
            return ()
        if folder.steering:
            holding.add(path)
        for entry in folder.steering:
            _take(steering, entry, is_top=is_top)
        return folder.below

    def _folder(self, path: str) -> _Folder | None:
        try:
            status = os.lstat(path)
        except OSError:
            return None
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(path)
        if known is not None and known.stamp == stamp:
            return known
        before = time.time_ns()
        folder = _look_into(path, stamp)
        if before - status.st_ctime_ns > SETTLED_NANOSECONDS:
            if len(self._known) >= KEPT_FOLDERS:
                self._known.clear()
            self._known[path] = folder
        return folder


def _look_into(path: str, stamp: tuple[int, int, int]) -> _Folder:
    steering: list[os.DirEntry[str]] = []
    below: list[str] = []
    folder = os.path.basename(path)
    for entry in _entries(path):
        if _may_steer(folder, entry.name) and (
            folded(entry.name) == REPOSITORY or is_steering_name(entry.name, folder)
        ):
            steering.append(entry)
        elif entry.name not in _FETCHED and entry.is_dir(follow_symlinks=False):
            below.append(entry.path)
    return _Folder(stamp, tuple(steering), tuple(below))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        # What cannot be looked for now may be there all the same.
        if exhaustion_of(error) is not None:
            raise
        return []


def _may_steer(folder: str, name: str) -> bool:
    """Whether a name is worth comparing; almost none is."""
    return (
        name[0] == "."
        or folder[:1] == "."
        or not name.isascii()
        or "~" in name
        or name.lower().endswith(WORKSPACE_SUFFIX)
    )


def _take(steering: Steering, entry: os.DirEntry[str], *, is_top: bool) -> None:
    if folded(entry.name) == REPOSITORY and entry.is_dir(follow_symlinks=False):
        _take_repository(steering, entry.path, is_top=is_top)
    else:
        _take_whole(steering, entry)


def _take_whole(steering: Steering, entry: os.DirEntry[str]) -> None:
    steering.found.add(entry.path)
    # A link itself cannot be covered, what it leads to can. It may be gone by now.
    with suppress(OSError):
        steering.read_only.append(os.path.realpath(entry.path) if entry.is_symlink() else entry.path)


def _take_repository(steering: Steering, own: str, *, is_top: bool) -> None:
    steering.pinned.append(own)
    for path in _guarded(own, own, 0):
        steering.found.add(path)
        steering.read_only.append(path)
    # Only at the top: elsewhere the way to it could be swapped for one that leads outside before the folder is made.
    if is_top and os.path.lexists(os.path.join(own, "HEAD")):
        absent = (os.path.join(own, name) for name in REPOSITORY_FOLDERS)
        steering.absent.extend(path for path in absent if not os.path.lexists(path) or is_placeholder(path))


def _guarded(own: str, folder: str, depth: int) -> Iterator[str]:
    for entry in _entries(folder):
        parts = [folded(part) for part in os.path.relpath(entry.path, own).split(os.sep)]
        if is_guarded_in_repository(parts):
            yield entry.path
        elif (
            parts[0] in {"modules", "worktrees"}
            and depth < _MODULE_DEPTH
            and parts[-1] not in {"objects", "refs", "logs"}
            and entry.is_dir(follow_symlinks=False)
        ):
            yield from _guarded(own, entry.path, depth + 1)


def is_diverted_repository(path: str) -> bool:
    """Whether a path is the one file that no repository of its own has: where else its configuration is."""
    folder, name = os.path.split(path)
    return folded(name) == "commondir" and folded(os.path.basename(folder)) == REPOSITORY and name in REPOSITORY_FILES
