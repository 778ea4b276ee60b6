"""Protects the auto-run files of a workspace during and after a command.

Programs outside the sandbox execute these files. A `.git` folder is pinned as a mount point. A mount point cannot be
renamed, so no other repository can replace it. Files in `.git` that make git run something are read-only. The rest of
`.git` stays writable, so that git can commit.

New auto-run files are moved out of the workspace after a command. Harmless ones, like the results of `git init`,
`clone`, `worktree` and `submodule`, stay, whatever created them. The scan is bounded: files that are nested too deeply,
or are in folders beyond the limit, are neither protected nor found.

A folder that cannot be listed before a command is protected as a whole. If a command makes a folder inaccessible, the
server restores access, because it runs as the folder's owner.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakSet

from tools.contract.tool_errors import exhaustion_of
from tools.files.path_opener import BLOCK_BYTES, Remembered, open_folder, open_regular, real_path, stamp_of
from tools.files.workspace import contains, is_inside
from tools.permissions import protected_files
from tools.permissions.protected_files import REPOSITORY, folded
from tools.permissions.repositories import TrackedFiles, settings_that_run
from tools.shell.process_spec import SandboxChanges

DEPTH = 6  # levels of folders to scan below a root
FOLDERS = 1_500  # folders to scan in a root, those near the top first
MODULE_DEPTH = 6  # levels below `.git` to search for submodules and worktrees
MODULE_FOLDERS = 5_000  # folders to scan for a repository's submodules, and for its worktrees
ENTRIES = 50  # entries in a folder's fingerprint, without the contents of subfolders
REMEMBERED = 20_000  # cached folders, for all roots together
READ_BYTES = 256 * 1024  # longer settings files are not read
COPIED_BYTES = 100_000_000  # maximum bytes to copy from a workspace to another file system
COPIED_ENTRIES = 10_000  # maximum files and folders to copy
_BARE = ({"HEAD", "objects", "refs"}, {"HEAD", "commondir"})  # names that mark a repository for git
_STORES = ("objects", "refs", "logs")  # git's own data, which it does not execute
_SETTINGS = ("config", "config.worktree")
_SHARES = ("modules", "worktrees")  # folders in `.git` with the data of submodules and worktrees
_IN_REPOSITORY = (*protected_files.REPOSITORY_FILES, *protected_files.REPOSITORY_FOLDERS)
# Instructions in the state of a rebase or cherry-pick that make git run something when the operation continues
_STEPS_THAT_RUN = {
    "git-rebase-todo": rb"(?m)^[ \t]*(?:x|exec)\s.*",
    "strategy": rb"(?s)\A(?!(?:ort|recursive)?\s?\Z).+",
    "opts": rb"(?im)strategy\s*=(?![ \t]*(?:ort|recursive)$).*",
}


@dataclass(slots=True)
class AutoRunPaths:
    """The results of scanning a root. All paths are absolute."""

    pinned: list[str] = field(default_factory=list[str])  # `.git` folders, which can be written but not moved
    read_only: list[str] = field(default_factory=list[str])  # files and folders that cannot be changed
    found: set[str] = field(default_factory=set[str])  # every existing auto-run path, including symlinks
    closed: list[str] = field(default_factory=list[str])  # folders that cannot be listed


class _GuardedFolder(NamedTuple):
    """The relevant entries of a folder: auto-run files, and subfolders to scan."""

    auto_run: tuple[os.DirEntry[str], ...]
    below: tuple[str, ...]
    closed: Sequence[str]  # the folder itself, if it cannot be listed


class AutoRunLookout:
    """Runs the scans of roots for all of the server's commands, and caches unchanged folders.

    `consented` is keyed by real path. It has the SHA-256 of the content of each file that another tool has written with
    consent. The caller may add such files at any time.
    """

    def __init__(self, consented: Mapping[str, str] = MappingProxyType({})) -> None:
        self.consented = consented
        self._accepted: dict[str, Fingerprint | None] = {}  # fingerprints of accepted changes, keyed by path
        self._folders = Remembered[_GuardedFolder](REMEMBERED)
        self._holding: dict[str, set[str]] = {}  # keyed by root: folders that had auto-run files in the last scan
        self.at_work = WeakSet[AutoRunState]()  # the states of running commands

    def look(self, root: str) -> AutoRunPaths:
        """Scan a root, top folders first, and then the other folders that had auto-run files in the last scan.

        Without the second step, a command could hide a file from the next scan by creating many folders.
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
                    paths = _guarded(entry.path, found.closed)
                for each in paths:
                    found.found.add(each)
                    if _is_of_steps(each):
                        continue  # git itself changes these during a rebase or cherry-pick
                    # A symlink cannot be mounted over, but its target can, if it still exists.
                    with suppress(OSError):
                        found.read_only.append(os.path.realpath(each) if os.path.islink(each) else each)
            found.closed += folder.closed
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

    def are_repositories_settled(self, paths: Iterable[str]) -> bool:
        """Return True if no running command can have created any of the `paths` that git executes."""
        of_git = [path for path in paths if {*map(folded, path.split(os.sep))} & {REPOSITORY, *_IN_REPOSITORY}]
        at_work = [*self.at_work]
        return not any(state.may_have_made(path) for path in of_git for state in at_work)

    def has_consent(self, path: str) -> bool:
        """Return True if another tool wrote the content of a path with consent, and that content has not changed."""
        digest = self.consented.get(path)
        if digest is None:
            return False
        try:
            with open_regular(path) as file:
                is_of_size = file.info.st_size <= COPIED_BYTES
                return is_of_size and hashlib.file_digest(file.stream, "sha256").hexdigest() == digest
        except OSError:
            return digest == hashlib.sha256().hexdigest() and not os.path.lexists(path)

    def note_accepted(self, path: str, what: Fingerprint | None) -> None:
        """Treat the content of a path as accepted from now on. `what` is its fingerprint."""
        if len(self._accepted) >= REMEMBERED:
            self._accepted.clear()
        self._accepted[path] = what

    def is_accepted(self, path: str) -> bool:
        """Return True if the current content of a path was accepted."""
        return path in self._accepted and self._accepted[path] == fingerprint(path)

    def _look_into(self, path: str) -> _GuardedFolder:
        looked_at, stamp = time.time_ns(), stamp_of(path)
        closed: list[str] = []
        entries = _entries(path, closed)
        parent = os.path.basename(path)
        auto_run: list[os.DirEntry[str]] = []
        below: list[str] = []
        # Git recognises a bare repository by these names.
        present = {entry.name for entry in entries}
        is_bare = any(present >= names for names in _BARE)
        for entry in entries:
            name = entry.name
            # Quickly rule out almost all names.
            is_odd = "." in (name[0], parent[:1]) or not name.isascii() or "~" in name
            if (is_bare and name in _IN_REPOSITORY) or (
                (is_odd or name.lower().endswith(protected_files.PLAIN_ENDINGS))
                and (folded(name) == REPOSITORY or protected_files.is_auto_run_name(name, parent))
            ):
                auto_run.append(entry)
            elif name not in protected_files.FETCHED_FOLDERS and entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
        folder = _GuardedFolder(tuple(auto_run), tuple(below), closed)
        self._folders.keep(path, folder, [(path, stamp)], looked_at)
        return folder


def _entries(folder: str, closed: list[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder. If it exists but cannot be listed, add it to `closed`."""
    try:
        with os.scandir(folder) as entries:
            if os.access(folder, os.X_OK):
                return list(entries)
    except OSError as error:
        if exhaustion_of(error) is not None:
            raise
        if not isinstance(error, PermissionError):
            return []
    closed.append(folder)
    return []


def _open_up(folder: str) -> bool:
    """Restore the owner's full access to a folder. Return True if any was missing."""
    with suppress(OSError), open_folder(folder, to_list=False) as opened:
        place = f"/proc/self/fd/{opened.descriptor}"
        mode = stat.S_IMODE(os.stat(place).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(place, mode | stat.S_IRWXU)
            return True
    return False


def _guarded(own: str, closed: list[str]) -> Iterator[str]:
    """Yield the paths that git executes in a `.git` folder, and in the data folders of submodules and worktrees.

    If there are too many submodules or worktrees, yield the folder that contains them.
    """
    for entry in _entries(own, closed):
        name = folded(entry.name)
        if protected_files.is_guarded_in_repository([name]):
            yield entry.path
        elif name in _SHARES and entry.is_dir(follow_symlinks=False):
            found: list[str] = []
            waiting = deque([(entry.path, [name])])
            looked = 0
            while waiting and looked < MODULE_FOLDERS:
                folder, parts = waiting.popleft()
                looked += 1
                below = _entries(folder, closed)
                # Skip only git's own folders, not submodules with the same names.
                stores = _STORES if any(each.name == "HEAD" for each in below) else ()
                for each in below:
                    bare = folded(each.name)
                    if protected_files.is_guarded_in_repository([*parts, bare]):
                        found.append(each.path)
                    elif len(parts) < MODULE_DEPTH and bare not in stores and each.is_dir(follow_symlinks=False):
                        waiting.append((each.path, [*parts, bare]))
            yield from [entry.path] if waiting else found


class Fingerprint(NamedTuple):
    """The state of a file or folder, to notice later changes: in a folder, only those to its first entries."""

    # Device and inode; for a file also mode, size and the change time, which cannot be set back.
    status: tuple[int, ...]
    entries: Mapping[str, tuple[int, ...] | None] | None = None  # the same status for the first entries of a folder


def fingerprint(path: str) -> Fingerprint | None:
    """Return the fingerprint of a path without following a symlink, or `None` if it does not exist."""

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
        names = []
    return Fingerprint(status, {name: status_of(os.path.join(path, name)) for name in names})


def read_settings(path: str) -> bytes | None:
    """Return the content of a regular file, or `None` if it is too long. Raises an `OSError` on failure."""
    with open_regular(path) as file:
        content = file.head(READ_BYTES + 1)
    return content if len(content) <= READ_BYTES else None


def _is_of_steps(path: str) -> bool:
    """Return True if a path is the state of a rebase or cherry-pick, not a submodule or worktree of the same name."""
    return folded(os.path.basename(path)) in protected_files.REPOSITORY_STEPS and not os.path.lexists(f"{path}/HEAD")


def is_harmless(path: str, roots: Sequence[str], found: Collection[str]) -> bool:
    """Return True if a new path belongs to git, and does not make git run anything or work outside the workspace.

    Args:
        path: The real path.
        roots: Real paths of the workspace folders.
        found: All auto-run paths in these folders.
    """
    folder, name = os.path.split(path)
    bare = folded(name)
    try:
        if bare in _SETTINGS or _is_of_steps(path):
            return not _what_runs(path, roots)
        if bare in protected_files.REPOSITORY_FOLDERS:
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
            return is_folder and all(entry.endswith(".sample") for entry in os.listdir(path))
        # Interpret `commondir` and a `.git` file as git does.
        text = _text(path)
        if bare == "commondir":
            # Only the content that `git worktree add` writes is harmless. Directly in `.git`, a `commondir` file would
            # select another configuration.
            return text.rstrip("\r\n") == "../.." and folded(os.path.basename(os.path.dirname(folder))) == "worktrees"
        if bare != REPOSITORY or not text.startswith("gitdir: "):
            return False
        # This is the `.git` file of a worktree or submodule. The data folder is checked as part of another repository.
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
    """Return the text at a real path. Raises an `OSError` or a `ValueError` if it is unreadable or not text."""
    if (content := read_settings(path)) is None:
        raise ValueError
    return content.decode()


def _what_runs(path: str, roots: Sequence[str]) -> Sequence[object]:
    """Return the parts of a settings file, or of the state of a rebase or cherry-pick, that may make git run something.

    For unreadable settings, the result is never equal to an earlier one. For an unreadable state file, the result
    contains its fingerprint.
    """
    if _is_of_steps(path):
        # Collect the instructions that run something, or the fingerprint of an unreadable file.
        found: list[object] = []
        for name, pattern in _STEPS_THAT_RUN.items():
            file = os.path.join(path, name)
            try:
                content = read_settings(file)
            except OSError:
                content = None
            found += filter(None, [fingerprint(file)] if content is None else re.findall(pattern, content))
        return found
    folder = os.path.dirname(path)

    def is_work_tree(value: str) -> bool:
        # Only a path like those that `git submodule` writes is harmless.
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
    """There is too much to copy. Not an `OSError`, because `copytree` would continue after an `OSError`."""


@dataclass(slots=True)
class _Copies:
    """Copies files, as long as they are not too many or too large."""

    bytes_left: int = COPIED_BYTES
    entries_left: int = COPIED_ENTRIES

    def count(self, _folder: str, names: list[str]) -> Sequence[str]:
        """Count the entries of a folder. As the `ignore` argument of `copytree`, this method ignores none of them."""
        self.entries_left -= len(names)
        if self.entries_left < 0:
            raise _TooLargeError
        return ()

    def copy(self, source: str, target: str) -> None:
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
            return
        if sys.platform != "win32" and stat.S_ISFIFO(mode):
            os.mkfifo(target, stat.S_IMODE(mode))
            return
        with open_regular(source) as old, open(target, "xb") as new:
            # The size counts, not the disk usage, because copying fills the holes of a sparse file. The bytes read are
            # counted too, because the file may grow during the copy.
            if old.info.st_size > self.bytes_left:
                raise _TooLargeError
            while piece := old.stream.read(BLOCK_BYTES):
                self.bytes_left -= len(piece)
                if self.bytes_left < 0:
                    raise _TooLargeError
                new.write(piece)
        shutil.copystat(source, target, follow_symlinks=False)


def move_away(paths: Sequence[str], parent: str | None) -> Iterator[tuple[str, str | None]]:
    """Move files and folders out of the workspace, so that no program executes them.

    Args:
        paths: Real paths of the files and folders.
        parent: The folder in which a new folder is created for them. The new folder is not deleted. With `None`, or if
            there is too much to copy to another file system, the files and folders are renamed in place.

    Yields:
        Each path with its new path, or `None` if it could not be moved.
    """
    copies = _Copies()
    folder: str | None = None
    for path in paths:
        above, name = os.path.split(path)
        aside = f"{name}.untrusted-{os.urandom(4).hex()}"
        for each in (above, path):  # moving a folder also writes to it
            _open_up(each)
        try:
            # First rename the file or folder, so that no program executes it even if copying is slow or fails.
            with open_folder(above) as opened:
                os.rename(name, aside, src_dir_fd=opened.descriptor, dst_dir_fd=opened.descriptor)
        except OSError:
            yield path, None
            continue
        renamed = os.path.join(above, aside)
        if parent is None:
            yield path, renamed
            continue
        before = replace(copies)
        target: str | None = None
        try:
            folder = folder or tempfile.mkdtemp(prefix="taken-from-workspace-", dir=parent)
            target = os.path.join(folder, f"{os.urandom(4).hex()}-{name.lstrip('.')}")
            try:
                os.rename(renamed, target)
            except OSError:
                copies.count(above, [name])
                if stat.S_ISDIR(os.lstat(renamed).st_mode):
                    shutil.copytree(renamed, target, symlinks=True, ignore=copies.count, copy_function=copies.copy)
                else:
                    copies.copy(renamed, target)
                _remove(renamed)
            yield path, target
        except (OSError, shutil.Error, RecursionError, _TooLargeError):
            copies = before
            if target is not None:
                _remove(target)
            yield path, renamed
    if folder is not None:
        # Removes only an empty folder.
        with suppress(OSError):
            os.rmdir(folder)


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.unlink(path)


def _places(path: str, found: Fingerprint | None) -> Mapping[str, tuple[int, ...] | None]:
    """Return the statuses in a fingerprint, keyed by path: the file's own, or that of each entry of a folder."""
    if found is None or found.entries is None:
        return {} if found is None else {path: found.status}
    return {os.path.join(path, name): status for name, status in found.entries.items()}


def _differing(path: str, before: Fingerprint | None, after: Fingerprint | None) -> Sequence[str]:
    then, since = _places(path, before), _places(path, after)
    return [place for place in then.keys() | since.keys() if then.get(place) != since.get(place)]


class AutoRunState:
    """The auto-run files of a workspace before a command, and the changes that the command may make to them."""

    def __init__(
        self,
        lookout: AutoRunLookout,
        roots: Sequence[str],  # real paths of the workspace folders
        paths: Collection[str],  # all auto-run paths
        closed: Collection[str],  # folders that cannot be listed, in which nothing counts as new afterwards
        waived: Sequence[str],  # auto-run files and folders that the command may change
        *,
        is_known: bool,  # whether the client can be identified
        is_git: bool,  # whether only git can change files during the command
    ) -> None:
        self._lookout, self._roots, self._closed, self._waived = lookout, roots, closed, waived
        self._is_known, self._is_git = is_known, is_git
        self._before = {path: fingerprint(path) for path in paths}
        # Keyed by the path of a settings file or of a rebase's state: what git already runs because of it
        names = {*protected_files.REPOSITORY_STEPS, *(_SETTINGS if is_git else ())}
        self._runs = {path: _what_runs(path, roots) for path in paths if folded(os.path.basename(path)) in names}
        # The tracked files among `paths`, and the tracked files in those of `paths` that are folders
        tracked, places = TrackedFiles(), (_places(*each) for each in self._before.items() if is_git)
        self._tracked = {place for each in places for place in each if _is_tracked(place, tracked)}
        lookout.at_work.add(self)

    def may_have_made(self, path: str) -> bool:
        is_new = path not in self._before and is_inside(path, self._roots)
        return is_new and not (self._lookout.is_accepted(path) or self._lookout.has_consent(path))

    def settle(self) -> SandboxChanges:
        """Move new auto-run files out of the workspace, and report changes. Called after the command. Blocking."""
        self._lookout.at_work.discard(self)
        # Look again if the command made folders inaccessible.
        found: list[AutoRunPaths] = []
        for _ in range(DEPTH + MODULE_DEPTH):
            found = [self._lookout.look(root) for root in self._roots]
            if not sum(_open_up(path) for each in found for path in each.closed if path not in self._closed):
                break
        now = {path for each in found for path in each.found}
        tracked = TrackedFiles()
        unwanted: list[str] = []
        changed: list[str] = []
        for path in sorted(now | self._before.keys()):
            before, after, is_of_steps = self._before.get(path), fingerprint(path), _is_of_steps(path)
            # A fingerprint of `modules` or `worktrees` does not show changes deep inside the folder. A command can make
            # such changes only through git.
            is_share = folded(os.path.basename(path)) in _SHARES
            is_same = path in self._before and after == before and not (self._is_git and is_share)
            if (self._runs_no_more(path) if is_of_steps else is_same) or is_inside(path, self._closed):
                continue
            is_harmless_now = is_harmless(path, self._roots, now)
            is_explained = self._is_git and not is_of_steps and self._explains(path, before, after, tracked)
            is_by_git = is_explained or (self._is_git and is_harmless_now)
            if is_by_git or self._is_waived(path, before, after):
                self._lookout.note_accepted(path, after)
            elif self._lookout.is_accepted(path):
                continue
            elif self._is_git or is_share or (before is not None and not is_of_steps):
                # Report this path, but do not move it. If only git can change files, new files come from git's hooks or
                # from other programs. In `modules` or `worktrees`, it is unknown which files are new.
                changed.append(path)
            elif not is_harmless_now:
                unwanted.append(path)
        parent = os.path.realpath(tempfile.gettempdir()) if self._is_known and unwanted else None
        if parent is not None and is_inside(parent, self._roots):
            parent = None
        places = dict(move_away(unwanted, parent))
        return SandboxChanges(
            tuple((path, place) for path, place in places.items() if place is not None),
            tuple(path for path, place in places.items() if place is None),
            tuple(changed),
        )

    def _runs_no_more(self, path: str) -> bool:
        """Return True if this path makes git run nothing that git did not already run before the command."""
        return all(each in self._runs.get(path, ()) for each in _what_runs(path, self._roots))

    def _explains(
        self, path: str, before: Fingerprint | None, after: Fingerprint | None, tracked: TrackedFiles
    ) -> bool:
        """Return True if git may have made the changes at a path.

        It may if the changes affect only tracked files, remove a repository, or add nothing that git runs.
        """
        folder, name = os.path.split(path)
        bare = folded(name)
        if after is None and (bare == REPOSITORY or (bare in _IN_REPOSITORY and not os.path.exists(f"{folder}/HEAD"))):
            # A worktree, a submodule or a repository was removed.
            return True
        if after is not None and bare in _SETTINGS and self._runs_no_more(path):
            return True
        return all(
            _is_tracked(place, tracked) if os.path.lexists(place) else place in self._tracked
            for place in _differing(path, before, after)
        )

    def _is_waived(self, path: str, before: Fingerprint | None, after: Fingerprint | None) -> bool:
        """Return True if each change at a path was allowed for the command, or made by another tool with consent."""
        if self._is_free(path):
            return True
        if before is None or after is None or before.status != after.status:
            return False
        differing = _differing(path, before, after)
        return bool(differing) and all(map(self._is_free, differing))

    def _is_free(self, path: str) -> bool:
        """Return True if the command may change everything at a path."""
        if not any(contains(path, each) or contains(each, path) for each in (*self._waived, *self._lookout.consented)):
            return False
        waiting = [path]
        while waiting:
            place = waiting.pop()
            if is_inside(place, self._waived) or self._lookout.has_consent(place):
                continue
            if os.path.islink(place):
                return False
            try:
                waiting += (os.path.join(place, name) for name in os.listdir(place))
            except OSError:
                return False  # not a folder, or not readable
        return True


def _is_tracked(path: str, tracked: TrackedFiles) -> bool:
    """Return True if git tracks a file, or each of the first files in a folder."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return tracked.has(path)
        names = os.listdir(path)[:ENTRIES]
    except OSError:
        return False
    return all(_is_tracked(os.path.join(path, name), tracked) for name in names)
