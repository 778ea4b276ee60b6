"""The auto-run files of a workspace, which programs outside the sandbox obey: before a command, and after it.

A repository's own folder is pinned (a mount cannot be renamed), so that no other repository can take its place; what
git obeys in it is read-only, the rest stays writable, so that git can commit.

What is new after a command is moved out of the workspace, unless it can do no harm: what `git init`, `clone`,
`worktree` and `submodule` make, whoever called them. Looking is bounded: what lies deeper, or beyond the number of
folders, is neither protected nor found.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from tools.contract.errors import exhaustion_of
from tools.files.opener import BLOCK_BYTES, open_link_free, open_regular, real_path
from tools.files.remembered import Remembered, stamp_of
from tools.files.workspace import contains, is_inside
from tools.permissions import auto_run_files
from tools.permissions.auto_run_files import REPOSITORY, folded
from tools.permissions.repositories import TrackedFiles, settings_that_run
from tools.shell.process import SandboxChanges

DEPTH = 6  # folders below a root that are looked into
FOLDERS = 1_500  # folders of a root that are looked into, those near the top first
MODULE_DEPTH = 6  # folders below a repository's own one in which submodules and worktrees are looked for
MODULE_FOLDERS = 5_000  # folders of a repository's submodules, and of its worktrees, that are looked into
ENTRIES = 50  # entries of a folder that count in its fingerprint, by name: what is in those below it does not
REMEMBERED = 20_000  # folders that are remembered, of all roots together
READ_BYTES = 256 * 1024  # settings that are longer are not read
COPIED_BYTES = 100_000_000  # most that is copied out of a workspace after a command, to another file system
COPIED_ENTRIES = 10_000  # most files and folders of it
_BARE = ({"HEAD", "objects", "refs"}, {"HEAD", "commondir"})  # what git takes for a repository, by what is in it
_STORES = ("objects", "refs", "logs")  # of git's own, without what it obeys
_SETTINGS = ("config", "config.worktree")
_SHARES = ("modules", "worktrees")  # folders with further repositories' own
_IN_REPOSITORY = (*auto_run_files.REPOSITORY_FILES, *auto_run_files.REPOSITORY_FOLDERS)


@dataclass(slots=True)
class AutoRunPaths:
    """What was found in a root. All paths are absolute."""

    pinned: list[str] = field(default_factory=list[str])  # stay where they are, and writable: repositories' own
    read_only: list[str] = field(default_factory=list[str])  # files and folders that stay as they are
    found: set[str] = field(default_factory=set[str])  # every auto-run path that exists, links included


class _Folder(NamedTuple):
    """What matters of a folder: its auto-run entries, and where to go on."""

    auto_run: tuple[os.DirEntry[str], ...]
    below: tuple[str, ...]


class AutoRunLookout:
    """Looks through roots for all commands of a server, and remembers the folders that have not changed since.

    `consented` has real paths that other tools have written with a person's consent, each with the monotonic time of
    the last; whoever holds it adds to it.
    """

    def __init__(self, consented: Mapping[str, float] = MappingProxyType({})) -> None:
        self.consented = consented
        self._accepted: dict[str, Fingerprint | None] = {}  # what commands have changed that may
        self._folders = Remembered[_Folder](REMEMBERED)
        self._holding: dict[str, set[str]] = {}  # of each root, folders in which something was found

    def look(self, root: str) -> AutoRunPaths:
        """Look through a root, the folders near its top first, and once more where something was found before.

        So a command cannot hide what the next one is to leave alone behind very many new folders.
        """
        found = AutoRunPaths()
        holding: set[str] = set()

        def take_from(path: str) -> tuple[str, ...]:
            folder = self._folders.get(path) or self._look_into(path)
            if folder.auto_run:
                holding.add(path)
            for entry in folder.auto_run:
                paths: Iterator[str] = iter((entry.path,))
                if folded(entry.name) == REPOSITORY and entry.is_dir(follow_symlinks=False):
                    found.pinned.append(entry.path)
                    paths = _guarded(entry.path)
                for each in paths:
                    found.found.add(each)
                    # A link itself cannot be covered, what it leads to can. It may be gone by now.
                    with suppress(OSError):
                        found.read_only.append(os.path.realpath(each) if os.path.islink(each) else each)
            return folder.below

        waiting = deque([(root, 0)])
        looked: set[str] = set()
        while waiting and len(looked) < FOLDERS:
            path, depth = waiting.popleft()
            looked.add(path)
            below = take_from(path)
            if depth < DEPTH:
                waiting.extend((folder, depth + 1) for folder in below)
        for path in sorted(self._holding.get(root, set()) - looked):
            if os.path.realpath(path) == path:
                take_from(path)
        self._holding[root] = holding
        return found

    def accept(self, path: str) -> None:
        """Take what is at a path now for as good as what was there before."""
        if len(self._accepted) >= REMEMBERED:
            self._accepted.clear()
        self._accepted[path] = fingerprint(path)

    def is_accepted(self, path: str) -> bool:
        """Whether what is at a path now was left there by somebody who may."""
        return path in self._accepted and self._accepted[path] == fingerprint(path)

    def _look_into(self, path: str) -> _Folder:
        looked_at, stamp = time.time_ns(), stamp_of(path)
        entries = _entries(path)
        parent = os.path.basename(path)
        auto_run: list[os.DirEntry[str]] = []
        below: list[str] = []
        # A repository without a work tree, which git finds by these names.
        present = {entry.name for entry in entries}
        is_bare = any(present >= names for names in _BARE)
        for entry in entries:
            name = entry.name
            # Almost no name is worth comparing.
            is_odd = "." in (name[0], parent[:1]) or not name.isascii() or "~" in name
            if (is_bare and name in _IN_REPOSITORY) or (
                (is_odd or name.lower().endswith(auto_run_files.PLAIN_ENDINGS))
                and (folded(name) == REPOSITORY or auto_run_files.is_auto_run_name(name, parent))
            ):
                auto_run.append(entry)
            elif name not in auto_run_files.FETCHED_FOLDERS and entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
        folder = _Folder(tuple(auto_run), tuple(below))
        self._folders.keep(path, folder, [(path, stamp)], looked_at)
        return folder


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        # What cannot be looked for now may be there all the same.
        if exhaustion_of(error) is not None:
            raise
        return []


def _guarded(own: str) -> Iterator[str]:
    """What git obeys in a repository's own folder, and in those of its submodules and worktrees.

    Where these are too many, the folder that holds them all is what is kept.
    """
    for entry in _entries(own):
        name = folded(entry.name)
        if auto_run_files.is_guarded_in_repository([name]):
            yield entry.path
        elif name in _SHARES and entry.is_dir(follow_symlinks=False):
            found: list[str] = []
            waiting = deque([(entry.path, [name])])
            looked = 0
            while waiting and looked < MODULE_FOLDERS:
                folder, parts = waiting.popleft()
                looked += 1
                below = _entries(folder)
                # Of these folders only git's own are left out, not submodules of the same name.
                stores = _STORES if any(each.name == "HEAD" for each in below) else ()
                for each in below:
                    bare = folded(each.name)
                    if auto_run_files.is_guarded_in_repository([*parts, bare]):
                        found.append(each.path)
                    elif len(parts) < MODULE_DEPTH and bare not in stores and each.is_dir(follow_symlinks=False):
                        waiting.append((each.path, [*parts, bare]))
            yield from [entry.path] if waiting else found


class Fingerprint(NamedTuple):
    """What a file or folder is, so that a change shows, whoever made it."""

    status: tuple[int, ...]  # what identifies it, and of a file the time of its last change, which nobody can set back
    entries: Mapping[str, tuple[int, ...] | None] | None = None  # the same of the first of a folder

    def without(self, names: set[str]) -> Fingerprint:
        """The same but for some entries."""
        if self.entries is None:
            return self
        return Fingerprint(self.status, {name: each for name, each in self.entries.items() if name not in names})


def fingerprint(path: str) -> Fingerprint | None:
    """What is at a path, without following a link; `None` where there is nothing."""

    def status_of(place: str) -> tuple[int, ...] | None:
        try:
            status = os.lstat(place)
        except OSError:
            return None
        own = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            return own
        return (*own, status.st_mode, status.st_size, status.st_ctime_ns)

    status = status_of(path)
    if status is None:
        return None
    if len(status) > len(("device", "inode")):
        return Fingerprint(status)
    try:
        names = sorted(os.listdir(path))[:ENTRIES]
    except OSError:
        return None
    return Fingerprint(status, {name: status_of(os.path.join(path, name)) for name in names})


def read_settings(path: str) -> bytes | None:
    """The content of a regular file at a real path, `None` if it is too long; an `OSError` if it cannot be read."""
    with open_regular(path) as file:
        content = file.head(READ_BYTES + 1)
    return content if len(content) <= READ_BYTES else None


def is_harmless(path: str, roots: Sequence[str], found: Collection[str]) -> bool:
    """Whether git obeys what is new at a real path, and nothing in it makes git run anything or look elsewhere.

    Args:
        path: The path.
        roots: Real paths of the workspace's folders.
        found: All auto-run paths that were found in them.
    """
    folder, name = os.path.split(path)
    bare = folded(name)
    try:
        if bare in auto_run_files.REPOSITORY_FOLDERS:
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
            return is_folder and all(entry.endswith(".sample") for entry in os.listdir(path))
        if bare in _SETTINGS:
            return not _settings_that_run(path, roots)
        # Both as git reads them.
        text = _text(path)
        if bare == "commondir":
            # As `git worktree add` writes it. In a repository of its own it would lead to another configuration.
            return text.rstrip("\r\n") == "../.." and folded(os.path.basename(os.path.dirname(folder))) == "worktrees"
        if bare != REPOSITORY or not text.startswith("gitdir: "):
            return False
        # Of a worktree or a submodule, whose own folder is looked into, as part of another repository.
        own = real_path(os.path.join(folder, text.removeprefix("gitdir: ").rstrip("\r\n")))
    except (OSError, ValueError):
        return False
    names = [folded(part) for part in own.split(os.sep)]
    shares = (at for at, pair in enumerate(pairwise(names)) if pair[0] == REPOSITORY and pair[1] in _SHARES)
    place = next(shares, len(names) - 2 if names[-2] == "worktrees" else None)
    return (
        place is not None
        and set(names[place:]).isdisjoint(_STORES)
        and own in map(os.path.dirname, found)
        and all(is_harmless(each, roots, found) for name in _IN_REPOSITORY if os.path.lexists(each := f"{own}/{name}"))
    )


def _text(path: str) -> str:
    """The text at a real path; an `OSError` or a `ValueError` if it cannot be read, or is none."""
    if (content := read_settings(path)) is None:
        raise ValueError
    return content.decode()


def _settings_that_run(path: str, roots: Sequence[str]) -> Sequence[object]:
    """What may make git run something in a file of settings; in one that cannot be read, something else each time."""
    folder = os.path.dirname(path)

    def is_work_tree(value: str) -> bool:
        # As `git submodule` writes it.
        return (
            (REPOSITORY, "modules") in pairwise(map(folded, folder.split(os.sep)))
            and not os.path.isabs(value)
            and set(value).isdisjoint('"\\#;')
            and is_inside(real_path(os.path.join(folder, value)), roots)
        )

    try:
        return settings_that_run(_text(path), is_work_tree)
    except (OSError, ValueError):
        return [object()]


class _TooLargeError(Exception):
    """More than may be copied. Not an `OSError`, after which copying would go on."""


def move_away(paths: Sequence[str], parent: str | None) -> Iterator[tuple[str, str | None]]:
    """Move what is at real paths out of the workspace, so that no program obeys it.

    Args:
        paths: The paths.
        parent: The folder for temporary files, in which a new one is made that stays. Without it, and where all that
            has to be copied to another file system is too much, something is given another name where it is.

    Yields:
        Each path, and where that is now which was there; `None` if it could not be moved.
    """
    bytes_left, entries_left = COPIED_BYTES, COPIED_ENTRIES
    folder: str | None = None

    def count(_folder: str, names: list[str]) -> Sequence[str]:
        nonlocal entries_left
        entries_left -= len(names)
        if entries_left < 0:
            raise _TooLargeError
        return ()

    def copy(source: str, target: str) -> None:
        nonlocal bytes_left
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
            return
        if sys.platform != "win32" and stat.S_ISFIFO(mode):
            os.mkfifo(target, stat.S_IMODE(mode))
            return
        with open_regular(source) as old, open(target, "xb") as new:
            # Where it has holes, these would be filled; and it may grow meanwhile.
            if old.info.st_size > bytes_left:
                raise _TooLargeError
            while piece := old.stream.read(BLOCK_BYTES):
                bytes_left -= len(piece)
                if bytes_left < 0:
                    raise _TooLargeError
                new.write(piece)
        shutil.copystat(source, target, follow_symlinks=False)

    for path in paths:
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
            yield path, None
            continue
        renamed = os.path.join(above, aside)
        if parent is None:
            yield path, renamed
            continue
        left = bytes_left, entries_left
        target: str | None = None
        try:
            folder = folder or tempfile.mkdtemp(prefix="taken-from-workspace-", dir=parent)
            target = os.path.join(folder, f"{os.urandom(4).hex()}-{name.lstrip('.')}")
            try:
                os.rename(renamed, target)
            except OSError:
                count(above, [name])
                if stat.S_ISDIR(os.lstat(renamed).st_mode):
                    shutil.copytree(renamed, target, symlinks=True, ignore=count, copy_function=copy)
                else:
                    copy(renamed, target)
                _remove(renamed)
            yield path, target
        except (OSError, shutil.Error, RecursionError, _TooLargeError):
            bytes_left, entries_left = left
            if target is not None:
                _remove(target)
            yield path, renamed
    if folder is not None:
        # Unless something is in it.
        with suppress(OSError):
            os.rmdir(folder)


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.unlink(path)


@dataclass(frozen=True, slots=True)
class GitBefore:
    """What git had to do with the auto-run files of a workspace before a command of git alone."""

    tracked: Collection[str]  # the files among them, and in them, that it tracks
    settings: Mapping[str, Sequence[object]]  # of each file of settings, those that may make it run something

    @staticmethod
    def of(before: Mapping[str, Fingerprint | None], roots: Sequence[str]) -> GitBefore:
        tracked = TrackedFiles()
        return GitBefore(
            {place for path, each in before.items() for place in _places(path, each) if _is_tracked(place, tracked)},
            {p: _settings_that_run(p, roots) for p in before if folded(os.path.basename(p)) in _SETTINGS},
        )

    def explains(self, path: str, before: Fingerprint | None, roots: Sequence[str], tracked: TrackedFiles) -> bool:
        """Whether what is different at a path is what git tracks, or brings no setting that runs something."""
        now = fingerprint(path)
        folder, name = os.path.split(path)
        bare = folded(name)
        if now is None and (bare == REPOSITORY or (bare in _IN_REPOSITORY and not os.path.exists(f"{folder}/HEAD"))):
            # A worktree, a submodule or a repository is gone.
            return True
        if now is not None and bare in _SETTINGS:
            known = self.settings.get(path, ())
            if all(each in known for each in _settings_that_run(path, roots)):
                return True
        then, since = _places(path, before), _places(path, now)
        return all(
            _is_tracked(place, tracked) if place in since else place in self.tracked
            for place in then.keys() | since.keys()
            if then.get(place) != since.get(place)
        )


def _places(path: str, found: Fingerprint | None) -> Mapping[str, tuple[int, ...] | None]:
    """What a fingerprint tells of a file, or of each entry of a folder, by their paths."""
    if found is None or found.entries is None:
        return {} if found is None else {path: found.status}
    return {os.path.join(path, name): status for name, status in found.entries.items()}


@dataclass(frozen=True, slots=True)
class AutoRunState:
    """The auto-run files of a workspace before a command, and what the command may do to them."""

    roots: Sequence[str]  # real paths of the workspace's folders
    before: Mapping[str, Fingerprint | None]  # every path that programs obey, and what was there
    waived: Sequence[str]  # files and folders that the command may change although programs obey them
    lookout: AutoRunLookout
    is_known: bool  # whether the client can be told from others
    git: GitBefore | None  # of a command in which nothing but git changes anything
    takes_out: Callable[[str], bool] | None = None  # whether what is new at a path is moved out, too
    taken: frozenset[str] = frozenset()  # what was there of that
    made_at: float = field(default_factory=time.monotonic)  # monotonic seconds

    def settle(self) -> SandboxChanges:
        """Move what is new and obeyed out of the workspace, and tell what has changed. After the command; blocks."""
        now = {path for root in self.roots for path in self.lookout.look(root).found}
        differing = [
            (path, self.before.get(path))
            for path in sorted(now | self.before.keys())
            if path not in self.before
            or fingerprint(path) != self.before[path]
            # Nothing is seen of what changes in it, and to git alone it is open.
            or (self.git is not None and folded(os.path.basename(path)) in _SHARES)
        ]
        consented = (path for path, at in list(self.lookout.consented.items()) if at >= self.made_at)
        waived = (*self.waived, *consented)
        tracked = TrackedFiles()
        unwanted = [
            path for path in sorted(matching(self.roots, self.takes_out) - self.taken) if not is_inside(path, waived)
        ]
        changed: list[str] = []
        for path, before in differing:
            is_by_git = self.git is not None and (
                is_harmless(path, self.roots, now) or self.git.explains(path, before, self.roots, tracked)
            )
            if is_by_git or _is_waived(path, before, waived):
                self.lookout.accept(path)
            elif self.lookout.is_accepted(path):
                continue
            elif before is not None or self.git is not None or folded(os.path.basename(path)) in _SHARES:
                # Of git alone, what is new came by its hooks, or by what else was at work. Of a repository that holds
                # too many others, it is not known which are new.
                changed.append(path)
            elif not is_harmless(path, self.roots, now):
                unwanted.append(path)
        parent = os.path.realpath(tempfile.gettempdir()) if self.is_known and unwanted else None
        if parent is not None and is_inside(parent, self.roots):
            parent = None
        places = dict(move_away(unwanted, parent))
        return SandboxChanges(
            tuple((path, place) for path, place in places.items() if place is not None),
            tuple(path for path, place in places.items() if place is None),
            tuple(changed),
        )


def matching(roots: Sequence[str], is_wanted: Callable[[str], bool] | None) -> frozenset[str]:
    """Files and folders of a workspace for which something is true, those near the top first; as bounded as a look."""
    found: set[str] = set()
    for root in roots if is_wanted is not None else ():
        waiting = deque([(root, 0)])
        for _ in range(FOLDERS):
            if not waiting:
                break
            folder, depth = waiting.popleft()
            for entry in _entries(folder):
                if is_wanted is not None and is_wanted(entry.path):
                    found.add(entry.path)
                elif depth < DEPTH and entry.is_dir(follow_symlinks=False) and folded(entry.name) != REPOSITORY:
                    waiting.append((entry.path, depth + 1))
    return frozenset(found)


def _is_waived(path: str, before: Fingerprint | None, waived: Sequence[str]) -> bool:
    """Whether nothing at a path differs but what the command may change, or another tool has with consent."""
    if is_inside(path, waived):
        return True
    free = {each[len(path) + 1 :].partition(os.sep)[0] for each in waived if contains(path, each)}
    now = fingerprint(path) if free else None
    if before is None or now is None:
        return now is not None and now.without(free).entries == {}
    return now.without(free) == before.without(free)


def _is_tracked(path: str, tracked: TrackedFiles) -> bool:
    """Whether git tracks a file, or all of the first files in a folder."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return tracked.has(path)
        names = os.listdir(path)[:ENTRIES]
    except OSError:
        return False
    return all(_is_tracked(os.path.join(path, name), tracked) for name in names)
