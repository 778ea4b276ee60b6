"""Protects the auto-run files of a workspace during and after a command.

Programs outside the sandbox execute these files. A `.git` folder is pinned as a mount point. A mount point cannot be
renamed, so no other repository can replace it. Files in `.git` that make git run something are read-only. The rest of
`.git` stays writable, so that git can commit.

New auto-run files are moved out of the workspace after a command. Harmless ones, such as those that `git init`,
`clone`, `worktree` and `submodule` create, are not moved, regardless of which program created them. The scan is
bounded: files that are nested too deeply, or are in folders beyond the maximum number, are neither protected nor
found.

A folder that cannot be listed when a command starts is protected as a whole. If a command makes a folder inaccessible,
the server, which runs as the folder's owner, restores access.
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

from tools.contract.tool_errors import exhaustion_of, suppress_unless_scarce
from tools.files.path_opener import BLOCK_BYTES, StampedCache, open_folder, open_regular, real_path, stamp_of
from tools.files.workspace import contains, is_inside, resolve_links
from tools.permissions import protected_files
from tools.permissions.git_repositories import (
    SETTINGS_FILES,
    TrackedFiles,
    paths_named_by_settings,
    settings_that_run,
    work_trees_above,
)
from tools.permissions.protected_files import REPOSITORY, folded
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
_BARE = ({"HEAD", "objects", "refs"}, {"HEAD", "commondir"})  # names by which git recognises a repository
_IN_STORE = ("objects", "refs", "config", "hooks")  # with `HEAD`, one of these is enough to protect a root as a store
_STORES = ("objects", "refs", "logs")  # git's own data, which it does not execute
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

    pinned: list[str] = field(default_factory=list[str])  # `.git` folders, which can be written to but not moved
    read_only: list[str] = field(default_factory=list[str])  # files and folders that cannot be changed
    paths: set[str] = field(default_factory=set[str])  # every existing auto-run path, including symlinks
    unlistable: list[str] = field(default_factory=list[str])  # folders that cannot be listed
    named_by_git: set[str] = field(default_factory=set[str])  # the paths among `paths` that git's settings name


class _GuardedFolder(NamedTuple):
    """The relevant entries of a folder: auto-run files, and subfolders to scan."""

    auto_run: tuple[os.DirEntry[str], ...]
    subfolders: tuple[str, ...]
    unlistable: Sequence[str]  # the folder itself, if it cannot be listed


class AutoRunScanner:
    """Scans roots for all of the server's commands, and caches the results of unchanged folders.

    `consented_digests` is keyed by real path. Its values are the SHA-256 digests of the files that another tool has
    written with consent. The caller may add entries at any time.
    """

    def __init__(self, consented_digests: Mapping[str, str] = MappingProxyType({})) -> None:
        self.consented_digests = consented_digests
        self._accepted: dict[str, Fingerprint | None] = {}  # fingerprints of accepted changes, keyed by path
        self._folders = StampedCache[_GuardedFolder](REMEMBERED)
        self._holding: dict[str, set[str]] = {}  # keyed by root: folders that had auto-run files in the last scan
        self.running_states = WeakSet[AutoRunState]()  # the states of running commands

    def scan(self, root: str) -> AutoRunPaths:
        """Scan a root, top folders first, and then the other folders that had auto-run files in the last scan.

        Without the second step, a command could hide a file from the next scan by creating many folders.
        """
        result = AutoRunPaths()
        holding: set[str] = set()
        work_trees = [*work_trees_above(root), root]

        def add_repository(path: str) -> None:
            result.pinned.append(path)
            add_paths(_guarded_paths(path, result.unlistable))

        def add_paths(paths: Iterable[str]) -> None:
            for auto_run_path in paths:
                result.paths.add(auto_run_path)
                if _is_rebase_state(auto_run_path):
                    continue  # git itself changes these during a rebase or cherry-pick
                # A symlink cannot be mounted over, but its target can, if it still exists.
                is_link = os.path.islink(auto_run_path)
                result.read_only.append(resolve_links(auto_run_path) if is_link else auto_run_path)

        def add_folder(path: str) -> tuple[str, ...]:
            folder = self._folders.get(path) or self._scan_folder(path)
            if folder.auto_run:
                holding.add(path)
            for entry in folder.auto_run:
                if folded(entry.name) == REPOSITORY:
                    work_trees.append(path)
                    if entry.is_dir(follow_symlinks=False):
                        add_repository(entry.path)
                        continue
                add_paths((entry.path,))
            result.unlistable += folder.unlistable
            return folder.subfolders

        # A git folder outside its work tree, or without one. An earlier command may have moved parts of it.
        store_names = {name for name in ("HEAD", *_IN_STORE) if os.path.lexists(os.path.join(root, name))}
        if folded(os.path.basename(root)) == REPOSITORY or ("HEAD" in store_names and len(store_names) > 1):
            add_repository(root)
        queue = deque([(root, 0)])
        scanned: set[str] = set()
        while queue and len(scanned) < FOLDERS:
            path, depth = queue.popleft()
            scanned.add(path)
            subfolders = add_folder(path)
            if depth < DEPTH:
                queue.extend((folder, depth + 1) for folder in subfolders)
        for path in sorted(self._holding.get(root, set()) - scanned):
            if resolve_links(path) == path:
                add_folder(path)
        self._holding[root] = holding
        for work_tree in dict.fromkeys(work_trees):
            for path in paths_named_by_settings(work_tree, root):
                # If a symlink leads to the path, the path with all symlinks resolved is also named.
                if os.path.lexists(path) and resolve_links(os.path.dirname(path)) == os.path.dirname(path):
                    result.named_by_git.add(path)
                    add_paths((path,))
        return result

    def are_repositories_settled(self, scans: Iterable[AutoRunPaths]) -> bool:
        """Return True if no running command could have created any of the scanned paths that git executes."""
        git_paths = [
            path
            for scan in scans
            for path in scan.paths
            if path in scan.named_by_git or {*map(folded, path.split(os.sep))} & {REPOSITORY, *_IN_REPOSITORY}
        ]
        return not any(state.may_have_created(path) for state in [*self.running_states] for path in git_paths)

    def has_consent(self, path: str) -> bool:
        """Return True if another tool wrote the content of a path with consent, and that content has not changed."""
        digest = self.consented_digests.get(path)
        if digest is None:
            return False
        try:
            with open_regular(path) as file:
                is_of_size = file.info.st_size <= COPIED_BYTES
                return is_of_size and hashlib.file_digest(file.stream, "sha256").hexdigest() == digest
        except OSError:
            return digest == hashlib.sha256().hexdigest() and not os.path.lexists(path)

    def note_accepted(self, path: str, state: Fingerprint | None) -> None:
        """Treat the content of a path as accepted from now on. `state` is its fingerprint."""
        if len(self._accepted) >= REMEMBERED:
            self._accepted.clear()
        self._accepted[path] = state

    def is_accepted(self, path: str) -> bool:
        """Return True if the current content of a path was accepted."""
        return path in self._accepted and self._accepted[path] == fingerprint(path)

    def _scan_folder(self, path: str) -> _GuardedFolder:
        scanned_at, stamp = time.time_ns(), stamp_of(path)
        unlistable: list[str] = []
        entries = _entries(path, unlistable)
        parent = os.path.basename(path)
        auto_run: list[os.DirEntry[str]] = []
        subfolders: list[str] = []
        entry_names = {entry.name for entry in entries}
        is_bare = any(entry_names >= names for names in _BARE)
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
                subfolders.append(entry.path)
        folder = _GuardedFolder(tuple(auto_run), tuple(subfolders), unlistable)
        self._folders.keep(path, folder, [(path, stamp)], scanned_at)
        return folder


def _entries(folder: str, unlistable: list[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder. If it exists but cannot be listed, add it to `unlistable`."""
    try:
        with os.scandir(folder) as entries:
            if os.access(folder, os.X_OK):
                return list(entries)
    except OSError as error:
        if exhaustion_of(error) is not None:
            raise
        if not isinstance(error, PermissionError):
            return []
    unlistable.append(folder)
    return []


def _restore_access(folder: str) -> bool:
    """Restore the owner's full access to a folder. Return True if any was missing."""
    with suppress(OSError), open_folder(folder, to_list=False) as handle:
        descriptor_path = f"/proc/self/fd/{handle.descriptor}"
        mode = stat.S_IMODE(os.stat(descriptor_path).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(descriptor_path, mode | stat.S_IRWXU)
            return True
    return False


def _guarded_paths(git_folder: str, unlistable: list[str]) -> Iterator[str]:
    """Yield the paths that git executes in a `.git` folder, and in the data folders of submodules and worktrees.

    If there are too many submodules or worktrees, yield the folder that contains them.
    """
    for entry in _entries(git_folder, unlistable):
        name = folded(entry.name)
        if protected_files.is_guarded_in_repository([name]):
            yield entry.path
        elif name in _SHARES and entry.is_dir(follow_symlinks=False):
            paths: list[str] = []
            queue = deque([(entry.path, [name])])
            scanned_count = 0
            while queue and scanned_count < MODULE_FOLDERS:
                folder, parts = queue.popleft()
                scanned_count += 1
                entries = _entries(folder, unlistable)
                # Skip only git's own folders, not submodules with the same names.
                stores = _STORES if any(child.name == "HEAD" for child in entries) else ()
                for child in entries:
                    bare = folded(child.name)
                    if protected_files.is_guarded_in_repository([*parts, bare]):
                        paths.append(child.path)
                    elif len(parts) < MODULE_DEPTH and bare not in stores and child.is_dir(follow_symlinks=False):
                        queue.append((child.path, [*parts, bare]))
            yield from [entry.path] if queue else paths


class Fingerprint(NamedTuple):
    """The state of a file or folder, used to detect later changes. For a folder, it covers only the first entries."""

    # Device and inode; for a file also mode, size and the change time, which cannot be set back.
    status: tuple[int, ...]
    entries: Mapping[str, tuple[int, ...] | None] | None = None  # the same status for the first entries of a folder


def fingerprint(path: str) -> Fingerprint | None:
    """Return the fingerprint of a path without following a symlink, or `None` if it does not exist."""

    def status_of(checked_path: str) -> tuple[int, ...] | None:
        try:
            status = os.lstat(checked_path)
        except OSError:
            return None
        identity = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            return identity
        return (*identity, status.st_mode, status.st_size, status.st_ctime_ns)

    status = status_of(path)
    if status is None:
        return None
    if len(status) > len(("device", "inode")):
        return Fingerprint(status)
    names: list[str] = []
    with suppress_unless_scarce():
        names = sorted(os.listdir(path))[:ENTRIES]
    return Fingerprint(status, {name: status_of(os.path.join(path, name)) for name in names})


def read_settings(path: str) -> bytes | None:
    """Return the content of a regular file, or `None` if it is too long. Raises an `OSError` on failure."""
    with open_regular(path) as file:
        content = file.head(READ_BYTES + 1)
    return content if len(content) <= READ_BYTES else None


def _is_rebase_state(path: str) -> bool:
    """Return True if a path is the state of a rebase or cherry-pick, not a submodule or worktree of the same name."""
    return folded(os.path.basename(path)) in protected_files.REPOSITORY_STEPS and not os.path.lexists(f"{path}/HEAD")


def is_harmless(path: str, roots: Sequence[str], auto_run_paths: Collection[str]) -> bool:
    """Return True if a new path belongs to git, and does not make git run anything or work outside the workspace.

    The paths are real. `auto_run_paths` are all auto-run paths in the workspace folders `roots`.
    """
    folder, name = os.path.split(path)
    bare = folded(name)
    try:
        if bare in SETTINGS_FILES or _is_rebase_state(path):
            return not _parts_that_run(path, roots)
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
        # The `.git` file of a worktree or submodule names a data folder. The file is harmless only if the scan found
        # that folder, and everything that git executes there is harmless.
        data_folder = real_path(os.path.join(folder, text.removeprefix("gitdir: ").rstrip("\r\n")))
    except (OSError, ValueError):
        return False
    names = [folded(part) for part in data_folder.split(os.sep)]
    shares = (index for index, pair in enumerate(pairwise(names)) if pair[0] == REPOSITORY and pair[1] in _SHARES)
    start = next(shares, len(names) - 2 if names[-2] == "worktrees" else None)
    return (
        start is not None
        and set(names[start:]).isdisjoint(_STORES)
        and data_folder in map(os.path.dirname, auto_run_paths)
        and all(
            is_harmless(git_path, roots, auto_run_paths)
            for name in _IN_REPOSITORY
            if os.path.lexists(git_path := f"{data_folder}/{name}")
        )
    )


def _text(path: str) -> str:
    """Return the text at a real path. Raises an `OSError` or a `ValueError` if it is unreadable or not text."""
    if (content := read_settings(path)) is None:
        raise ValueError
    return content.decode()


def _parts_that_run(path: str, roots: Sequence[str]) -> Sequence[object]:
    """Return the parts of a settings file, or of the state of a rebase or cherry-pick, that may make git run something.

    For unreadable settings, the result is never equal to an earlier one. For an unreadable state file, the result
    contains its fingerprint.
    """
    if _is_rebase_state(path):
        instructions: list[object] = []
        for name, pattern in _STEPS_THAT_RUN.items():
            file, content = os.path.join(path, name), None
            with suppress(OSError):
                content = read_settings(file)
            instructions += filter(None, [fingerprint(file)] if content is None else re.findall(pattern, content))
        return instructions
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
    """Copies files, up to a limit on their number and total size."""

    bytes_left: int = COPIED_BYTES
    entries_left: int = COPIED_ENTRIES

    def count(self, _folder: str, names: list[str]) -> Sequence[str]:
        """Count entries. As the `ignore` argument of `copytree`, this returns no names, so no entry is ignored."""
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
            # Check the size rather than the disk usage, because copying fills the holes of a sparse file. Count the
            # bytes that are read, because the file may grow during the copy.
            if old.info.st_size > self.bytes_left:
                raise _TooLargeError
            while piece := old.read_block(BLOCK_BYTES):
                self.bytes_left -= len(piece)
                if self.bytes_left < 0:
                    raise _TooLargeError
                new.write(piece)
        shutil.copystat(source, target, follow_symlinks=False)


def move_away(paths: Sequence[str], parent: str | None) -> Iterator[tuple[str, str | None]]:
    """Move files and folders out of the workspace, so that no program executes them.

    They go to a new folder in `parent`, which the server never deletes. If `parent` is `None`, or moving fails (for
    example because there is too much to copy to another file system), they are renamed in place. Yields each path with
    its new path, or `None` if it could not be moved.
    """
    copies = _Copies()
    folder: str | None = None
    for path in paths:
        parent_folder, name = os.path.split(path)
        new_name = f"{name}.untrusted-{os.urandom(4).hex()}"
        for changed_path in (parent_folder, path):  # moving a folder also writes to it
            _restore_access(changed_path)
        try:
            # First rename the file or folder, so that no program executes it even if copying is slow or fails.
            with open_folder(parent_folder) as handle:
                os.rename(name, new_name, src_dir_fd=handle.descriptor, dst_dir_fd=handle.descriptor)
        except OSError:
            yield path, None
            continue
        renamed_path = os.path.join(parent_folder, new_name)
        if parent is None:
            yield path, renamed_path
            continue
        copies_before = replace(copies)
        target: str | None = None
        try:
            folder = folder or tempfile.mkdtemp(prefix="taken-from-workspace-", dir=parent)
            target = os.path.join(folder, f"{os.urandom(4).hex()}-{name.lstrip('.')}")
            try:
                os.rename(renamed_path, target)
            except OSError:
                copies.count(parent_folder, [name])
                if stat.S_ISDIR(os.lstat(renamed_path).st_mode):
                    shutil.copytree(renamed_path, target, symlinks=True, ignore=copies.count, copy_function=copies.copy)
                else:
                    copies.copy(renamed_path, target)
                _remove(renamed_path)
            yield path, target
        except (OSError, shutil.Error, RecursionError, _TooLargeError):
            copies = copies_before
            if target is not None:
                _remove(target)
            yield path, renamed_path
    if folder is not None:
        # Removes only an empty folder.
        with suppress(OSError):
            os.rmdir(folder)


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.unlink(path)


def _statuses_by_path(path: str, state: Fingerprint | None) -> Mapping[str, tuple[int, ...] | None]:
    """Return the statuses in a fingerprint, keyed by path: the file's own, or that of each entry of a folder."""
    if state is None or state.entries is None:
        return {} if state is None else {path: state.status}
    return {os.path.join(path, name): status for name, status in state.entries.items()}


def _differing_paths(path: str, before: Fingerprint | None, after: Fingerprint | None) -> Sequence[str]:
    statuses_before, statuses_after = _statuses_by_path(path, before), _statuses_by_path(path, after)
    return [
        changed_path
        for changed_path in statuses_before.keys() | statuses_after.keys()
        if statuses_before.get(changed_path) != statuses_after.get(changed_path)
    ]


class AutoRunState:
    """The auto-run files of a workspace before a command, and the changes that the command may make to them."""

    def __init__(
        self,
        scanner: AutoRunScanner,
        roots: Sequence[str],  # real paths of the workspace folders
        paths: Collection[str],  # all auto-run paths
        unlistable: Collection[str],  # folders that cannot be listed, in which nothing counts as new afterwards
        changeable: Sequence[str],  # auto-run files and folders that the command may change
        *,
        is_known: bool,  # whether the client can be identified
        is_git: bool,  # whether only git can change files during the command
    ) -> None:
        self._scanner, self._roots, self._unlistable, self._changeable = scanner, roots, unlistable, changeable
        self._is_known, self._is_git = is_known, is_git
        self._before = {path: fingerprint(path) for path in paths}
        # Keyed by the path of a settings file or of a rebase's state: what git already runs because of it
        names = {*protected_files.REPOSITORY_STEPS, *(SETTINGS_FILES if is_git else ())}
        self._runs = {path: _parts_that_run(path, roots) for path in paths if folded(os.path.basename(path)) in names}
        # The tracked files among `paths`, and those in the folders among `paths`
        tracked_files, places = TrackedFiles(), (_statuses_by_path(*item) for item in self._before.items() if is_git)
        self._tracked = {place for statuses in places for place in statuses if _is_tracked(place, tracked_files)}
        scanner.running_states.add(self)

    def may_have_created(self, path: str) -> bool:
        is_new = path not in self._before and is_inside(path, self._roots)
        return is_new and not (self._scanner.is_accepted(path) or self._scanner.has_consent(path))

    def settle(self) -> SandboxChanges:
        """Move new auto-run files out of the workspace, and report changes. Called after the command. Blocking."""
        self._scanner.running_states.discard(self)
        # Look again if the command made folders inaccessible.
        scans: list[AutoRunPaths] = []
        for _ in range(DEPTH + MODULE_DEPTH):
            scans = [self._scanner.scan(root) for root in self._roots]
            if not sum(
                _restore_access(path) for scan in scans for path in scan.unlistable if path not in self._unlistable
            ):
                break
        current_paths = {path for scan in scans for path in scan.paths}
        tracked_files = TrackedFiles()
        paths_to_move: list[str] = []
        changed_paths: list[str] = []
        for path in sorted(current_paths | self._before.keys()):
            before, after, is_rebase_state = self._before.get(path), fingerprint(path), _is_rebase_state(path)
            # A fingerprint of `modules` or `worktrees` does not show changes deep inside the folder. A command can make
            # such changes only through git.
            is_share = folded(os.path.basename(path)) in _SHARES
            is_same = path in self._before and after == before and not (self._is_git and is_share)
            if (self._adds_nothing_to_run(path) if is_rebase_state else is_same) or is_inside(path, self._unlistable):
                continue
            is_harmless_now = is_harmless(path, self._roots, current_paths)
            is_explained = self._is_git and not is_rebase_state and self._explains(path, before, after, tracked_files)
            is_by_git = is_explained or (self._is_git and is_harmless_now)
            if is_by_git or self._is_allowed(path, before, after):
                self._scanner.note_accepted(path, after)
            elif self._scanner.is_accepted(path):
                continue
            elif self._is_git or is_share or (before is not None and not is_rebase_state):
                # Report this path, but do not move it. If only git can change files, new files come from git's hooks or
                # from other programs. In `modules` or `worktrees`, it is unknown which files are new.
                changed_paths.append(path)
            elif not is_harmless_now:
                paths_to_move.append(path)
        parent = os.path.realpath(tempfile.gettempdir()) if self._is_known and paths_to_move else None
        if parent is not None and is_inside(parent, self._roots):
            parent = None
        new_paths = dict(move_away(paths_to_move, parent))
        return SandboxChanges(
            tuple((path, new_path) for path, new_path in new_paths.items() if new_path is not None),
            tuple(path for path, new_path in new_paths.items() if new_path is None),
            tuple(changed_paths),
        )

    def _adds_nothing_to_run(self, path: str) -> bool:
        """Return True if this path does not make git run anything that it did not run before the command."""
        return all(part in self._runs.get(path, ()) for part in _parts_that_run(path, self._roots))

    def _explains(
        self, path: str, before: Fingerprint | None, after: Fingerprint | None, tracked_files: TrackedFiles
    ) -> bool:
        """Return True if git may have made the changes at a path.

        This is assumed if the changes affect only tracked files, remove a repository, or add nothing to git's settings
        that makes git run something.
        """
        folder, name = os.path.split(path)
        bare = folded(name)
        if after is None and (bare == REPOSITORY or (bare in _IN_REPOSITORY and not os.path.exists(f"{folder}/HEAD"))):
            return True  # a worktree, a submodule or a repository was removed
        if after is not None and bare in SETTINGS_FILES and self._adds_nothing_to_run(path):
            return True
        return all(
            _is_tracked(place, tracked_files) if os.path.lexists(place) else place in self._tracked
            for place in _differing_paths(path, before, after)
        )

    def _is_allowed(self, path: str, before: Fingerprint | None, after: Fingerprint | None) -> bool:
        """Return True if each change at a path was allowed for the command, or made by another tool with consent."""
        if self._is_changeable(path):
            return True
        if before is None or after is None or before.status != after.status:
            return False
        differing_paths = _differing_paths(path, before, after)
        return bool(differing_paths) and all(map(self._is_changeable, differing_paths))

    def _is_changeable(self, path: str) -> bool:
        """Return True if the command may change everything at a path."""
        if not any(
            contains(path, allowed_path) or contains(allowed_path, path)
            for allowed_path in (*self._changeable, *self._scanner.consented_digests)
        ):
            return False
        pending = [path]
        while pending:
            current_path = pending.pop()
            if is_inside(current_path, self._changeable) or self._scanner.has_consent(current_path):
                continue
            if os.path.islink(current_path):
                return False
            try:
                pending += (os.path.join(current_path, name) for name in os.listdir(current_path))
            except OSError:
                return False  # not a folder, or not readable
        return True


def _is_tracked(path: str, tracked_files: TrackedFiles) -> bool:
    """Return True if git tracks a file, or each of the first files in a folder."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return tracked_files.has(path)
        names = os.listdir(path)[:ENTRIES]
    except OSError:
        return False
    return all(_is_tracked(os.path.join(path, name), tracked_files) for name in names)
