"""Which files of a workspace root programs outside the sandbox obey, as they stand before a command and after it.

A repository's own folder is pinned (a mount cannot be renamed), so that no other repository can take its place; what
git obeys in it is read-only, the rest stays writable, so that git can commit.

What is new after a command is moved out of the workspace, unless it can do no harm: what `git init`, `clone`,
`worktree` and `submodule` make, whoever called them. Looking is bounded: what lies deeper, or beyond the number of
folders, is neither kept nor found.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import cast

from tools.contract.exhaustion import exhaustion_of
from tools.files.opener import open_link_free, real_path
from tools.files.workspace import contains
from tools.permissions.auto_run_files import (
    FETCHED_FOLDERS,
    REPOSITORY,
    REPOSITORY_FILES,
    REPOSITORY_FOLDERS,
    WORKSPACE_SUFFIX,
    folded,
    is_auto_run_name,
    is_guarded_in_repository,
)
from tools.permissions.shell.knowledge.git import is_harmless_in_new_repository

DEPTH = 6
"""Folders below a root that are looked into."""

FOLDERS = 1_500
"""Folders of a root that are looked into, those near the top first."""

_BARE = {"HEAD", "objects", "refs"}

_MODULE_DEPTH = 6
"""Folders below a repository's own one in which submodules and worktrees are looked for."""

SETTLED_NANOSECONDS = 2_000_000_000
"""How old a folder's last change must be for its time to tell of the next: the step of coarse file systems."""

KEPT_FOLDERS = 20_000
"""Folders that are remembered, of all roots together."""

READ_BYTES = 256 * 1024
"""What a new repository's settings have at most."""


@dataclass(slots=True)
class AutoRunPaths:
    """What was found in a root. All paths are absolute.

    Args:
        pinned: Folders that stay where they are and writable: repositories' own ones.
        read_only: Files and folders that stay as they are.
        found: Every auto-run path that is there, links too.
    """

    pinned: list[str] = field(default_factory=list[str])
    read_only: list[str] = field(default_factory=list[str])
    found: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class _Folder:
    """What matters of a folder, as it was when it was last looked into.

    Args:
        stamp: Told by the system: it is another one if an entry was made, removed or renamed. Nobody can set it back.
        auto_run: Auto-run entries.
        below: Paths of the folders to go on with.
    """

    stamp: tuple[int, int, int]
    auto_run: tuple[os.DirEntry[str], ...]
    below: tuple[str, ...]


class AutoRunLookout:
    """Looks through roots, and remembers the folders that have not changed since.

    Args:
        consented: Real paths that other tools have written with a person's consent, each with the monotonic time of
            the last consent; whoever holds it adds to it.
    """

    def __init__(self, consented: Mapping[str, float] = MappingProxyType({})) -> None:
        self.consented = consented
        # The commands at work that may leave anything, and the one that began last.
        self._at_work: set[object] = set()
        self._last: object = None
        # What commands have changed that may, and as what they left it.
        self._accepted: dict[str, Fingerprint | None] = {}
        self._known: dict[str, _Folder] = {}
        # For each root, the folders in which something was found.
        self._holding: dict[str, set[str]] = {}

    def look(self, root: str) -> AutoRunPaths:
        """Look through a root, the folders near its top first, and once more where something was found before.

        So a command cannot hide what the next one is to leave alone behind very many new folders.
        """
        found = AutoRunPaths()
        waiting = deque([(root, 0)])
        looked: set[str] = set()
        holding: set[str] = set()
        while waiting and len(looked) < FOLDERS:
            path, depth = waiting.popleft()
            looked.add(path)
            below = self._take_from(path, found, holding)
            if depth < DEPTH:
                waiting.extend((folder, depth + 1) for folder in below)
        for path in sorted(self._holding.get(root, set()) - looked):
            if os.path.realpath(path) == path:
                self._take_from(path, found, holding)
        self._holding[root] = holding
        return found

    def enter(self, command: object) -> None:
        """Note that a command begins that may leave anything."""
        self._at_work.add(command)
        self._last = command

    def leave(self, command: object) -> None:
        """Note that it has ended."""
        self._at_work.discard(command)

    def last_begun(self) -> object:
        """By which `is_quiet_since` tells whether another one was at work since now."""
        return object() if self._at_work else self._last

    def is_quiet_since(self, last: object) -> bool:
        """Whether no such command is at work, and none was since `last_begun` gave this."""
        return not self._at_work and self._last is last

    def accept(self, path: str) -> None:
        """Take what is at a path now for as good as what was there before."""
        if len(self._accepted) >= KEPT_FOLDERS:
            self._accepted.clear()
        self._accepted[path] = fingerprint(path)

    def is_accepted(self, path: str) -> bool:
        """Whether what is at a path now was left there by somebody who may."""
        return path in self._accepted and self._accepted[path] == fingerprint(path)

    def _take_from(self, path: str, found: AutoRunPaths, holding: set[str]) -> tuple[str, ...]:
        """Take the auto-run files in a folder, and tell the folders to go on with."""
        folder = self._folder(path)
        if folder is None:
            return ()
        if folder.auto_run:
            holding.add(path)
        for entry in folder.auto_run:
            _take(found, entry)
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
    auto_run: list[os.DirEntry[str]] = []
    below: list[str] = []
    folder = os.path.basename(path)
    entries = _entries(path)
    # A repository without a work tree, which git finds by these names.
    is_bare = {entry.name for entry in entries} >= _BARE
    for entry in entries:
        if (is_bare and entry.name in (*REPOSITORY_FILES, *REPOSITORY_FOLDERS)) or (
            _may_be_auto_run(folder, entry.name)
            and (folded(entry.name) == REPOSITORY or is_auto_run_name(entry.name, folder))
        ):
            auto_run.append(entry)
        elif entry.name not in FETCHED_FOLDERS and entry.is_dir(follow_symlinks=False):
            below.append(entry.path)
    return _Folder(stamp, tuple(auto_run), tuple(below))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        # What cannot be looked for now may be there all the same.
        if exhaustion_of(error) is not None:
            raise
        return []


def _may_be_auto_run(folder: str, name: str) -> bool:
    """Whether a name is worth comparing; almost none is."""
    return (
        name[0] == "."
        or folder[:1] == "."
        or not name.isascii()
        or "~" in name
        or name.lower().endswith(WORKSPACE_SUFFIX)
    )


def _take(found: AutoRunPaths, entry: os.DirEntry[str]) -> None:
    if folded(entry.name) == REPOSITORY and entry.is_dir(follow_symlinks=False):
        _take_repository(found, entry.path)
    else:
        _take_whole(found, entry)


def _take_whole(found: AutoRunPaths, entry: os.DirEntry[str]) -> None:
    found.found.add(entry.path)
    # A link itself cannot be covered, what it leads to can. It may be gone by now.
    with suppress(OSError):
        found.read_only.append(os.path.realpath(entry.path) if entry.is_symlink() else entry.path)


def _take_repository(found: AutoRunPaths, own: str) -> None:
    found.pinned.append(own)
    for entry in _guarded(own, own, 0):
        _take_whole(found, entry)


def _guarded(own: str, folder: str, depth: int) -> Iterator[os.DirEntry[str]]:
    entries = _entries(folder)
    # Of these folders only git's own are left out, not submodules of the same name.
    stores = {"objects", "refs", "logs"} if any(entry.name == "HEAD" for entry in entries) else set[str]()
    for entry in entries[:FOLDERS]:
        parts = [folded(part) for part in os.path.relpath(entry.path, own).split(os.sep)]
        if is_guarded_in_repository(parts):
            yield entry
        elif (
            parts[0] in {"modules", "worktrees"}
            and depth < _MODULE_DEPTH
            and parts[-1] not in stores
            and entry.is_dir(follow_symlinks=False)
        ):
            yield from _guarded(own, entry.path, depth + 1)


ENTRIES = 50
"""Entries of a folder that count in its fingerprint, by name: what is in those below it does not."""

Fingerprint = tuple[object, ...]
"""What a file or folder is, so that a change shows, whoever made it.

Files are told by their number and the time of their last change, which the system sets and nobody can set back.
"""


def fingerprint(path: str) -> Fingerprint | None:
    """What is at a path, without following a link; `None` where there is nothing."""
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return _of_file(status)
        names = sorted(os.listdir(path))[:ENTRIES]
    except OSError:
        return None
    return (status.st_dev, status.st_ino, *((name, _of_entry(os.path.join(path, name))) for name in names))


def without_entries(state: Fingerprint | None, names: Collection[str]) -> Fingerprint | None:
    """The fingerprint of a folder, but for some of its entries; two parts are left if there are no others."""
    if state is None:
        return None
    parts = [cast("Fingerprint", part) if isinstance(part, tuple) else (part,) for part in state]
    return tuple(part for part in parts if part[0] not in names)


def _of_entry(path: str) -> Fingerprint | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else _of_file(status)


def _of_file(status: os.stat_result) -> Fingerprint:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns)


def is_harmless(path: str, roots: Sequence[str]) -> bool:
    """Whether git obeys what is new at a path, and nothing in it makes git run anything or look elsewhere.

    Args:
        path: A real path.
        roots: Real paths of the workspace's folders.
    """
    folder, name = os.path.split(path)
    bare = folded(name)
    try:
        if bare in REPOSITORY_FOLDERS:
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
            return is_folder and all(entry.endswith(".sample") for entry in os.listdir(path))
        text = _read(path)
    except (OSError, UnicodeDecodeError):
        return False
    if bare in ("config", "config.worktree"):
        return is_harmless_in_new_repository(text)
    if bare == "commondir":
        # As `git worktree add` writes it. In a repository of its own it would lead to another configuration.
        return text.strip() == "../.." and folded(os.path.basename(os.path.dirname(folder))) == "worktrees"
    if bare == REPOSITORY:
        # Of a worktree or a submodule, whose own folder is in that of a repository.
        own = real_path(os.path.join(folder, text.removeprefix("gitdir:").strip()))
        parts = [folded(part) for part in own.split(os.sep)]
        return (
            any(contains(root, own) for root in roots)
            and any(pair in ((REPOSITORY, "worktrees"), (REPOSITORY, "modules")) for pair in pairwise(parts))
            and all(
                is_harmless(there, roots)
                for there in (os.path.join(own, entry) for entry in (*REPOSITORY_FILES, *REPOSITORY_FOLDERS))
                if os.path.lexists(there)
            )
        )
    return False


def _read(path: str) -> str:
    descriptor = open_link_free(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        content = file.read(READ_BYTES + 1)
    if len(content) > READ_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content.decode()


def move_away(path: str, folder: str | None) -> str | None:
    """Move something out of the workspace, so that no program obeys it.

    Args:
        path: A real path.
        folder: Where to; `None` to give it another name where it is.

    Returns:
        Where it is now; `None` where it cannot be moved.
    """
    above, name = os.path.split(path)
    aside = f"{name}.untrusted-{os.urandom(4).hex()}"
    try:
        # First of all no program is to obey it, also where to copy it takes a while or fails.
        descriptor = open_link_free(above, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.rename(name, aside, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    renamed = os.path.join(above, aside)
    if folder is None:
        return renamed
    target = os.path.join(folder, "taken-from-workspace", f"{os.urandom(4).hex()}-{name.lstrip('.')}")
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        shutil.move(renamed, target, copy_function=_copy)
    except (OSError, shutil.Error, RecursionError):
        return renamed
    return target


def _copy(source: str, target: str) -> None:
    """Copy a file of a tree that is moved to another file system; what is no regular file is left out."""
    if stat.S_ISREG(os.lstat(source).st_mode):
        shutil.copy2(source, target, follow_symlinks=False)
