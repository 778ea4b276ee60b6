"""Guarded paths: the server's own settings and log, which can be written only with the user's consent.

The settings decide what runs without consent. Unlike the files in `auto_run_files`, guarded paths are recognised by
their real path, because a settings file given on the command line may have any name and be in a workspace.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from tools.files.path_opener import MAX_LINKS, is_ours
from tools.files.workspace import is_inside
from tools.permissions.auto_run_files import folded
from tools.text.file_names import shown_path

_REASON = "it is or contains this server's settings, log or journal"
_NOT_HELD = "the sandbox cannot protect this server's own settings or log, because {} {}"
_FoldedPath = tuple[str, ...]  # the names of a path as lenient file systems compare them


class GuardedPaths:
    """Files and folders that may be written only with consent. The files in `free`, inside the folders, are exempt.

    Paths are guarded even if they do not exist, and so is every symlink that leads to them. Blocking.
    """

    def __init__(self, files: Iterable[str] = (), folders: Iterable[str] = (), free: Iterable[str] = ()) -> None:
        # Every path that leads to a guarded file, and its folded names.
        self._files = tuple(dict.fromkeys(path for file in files for path in _all_paths_to(file)))
        self._folders = tuple(dict.fromkeys(path for folder in folders for path in _all_paths_to(folder)))
        self._folded_files = frozenset(map(_folded_path, self._files))
        self._folded_folders = frozenset(map(_folded_path, self._folders))
        all_folded = self._folded_files | self._folded_folders
        self._passed = frozenset(path[:length] for path in all_folded for length in range(1, len(path)))
        self._free = frozenset(_folded_path(path) for file in free for path in _all_paths_to(file))

    def why(self, paths: Iterable[str]) -> str | None:
        """Return why writing one of these absolute paths needs consent, or `None`. Blocking.

        A folder above a guarded path counts too, because replacing the folder replaces the settings.
        """
        return _REASON if (self._files or self._folders) and any(map(self._guards, dict.fromkeys(paths))) else None

    def why_not_held(self, roots: Sequence[str]) -> str | None:
        """Return why mounts cannot protect all guarded files from commands that can write to `roots`, or `None`.

        A mount protects a file under one name only, and cannot protect a symlink. Blocking.
        """
        for path in self._files:
            at = path
            while is_inside(at, roots) and at not in roots:
                if os.path.islink(at):
                    return _NOT_HELD.format(shown_path(at), "leads to them through a symlink")
                at = os.path.dirname(at)
            info = _status(path)
            if info is None or not stat.S_ISREG(info.st_mode) or info.st_nlink == 1:
                continue
            # False for a file in a read-only package store, which may use hard links for equal files.
            can_be_written = is_ours(info) or os.access(path, os.W_OK)
            if can_be_written and any((root := _status(each)) and root.st_dev == info.st_dev for each in roots):
                which = shown_path(path) if is_inside(path, roots) else "one of them"
                return _NOT_HELD.format(which, "has other names (hard links)")
        return None

    def _guards(self, path: str) -> bool:
        name = _folded_path(path)
        is_below = any(name[: len(folder)] == folder for folder in self._folded_folders)
        if name in self._folded_files or name in self._passed or (is_below and name not in self._free):
            return True
        info = _status(path)
        if info is None or not stat.S_ISREG(info.st_mode):
            return False
        # The path may be another name of a guarded file, because of a hard link or another mount.
        guarded = [*self._files]
        for folder in self._folders:
            with suppress(OSError):
                paths = [os.path.join(folder, name) for name in os.listdir(folder)]
                guarded += (path for path in paths if _folded_path(path) not in self._free)
        return any((other := _status(file)) is not None and os.path.samestat(info, other) for file in guarded)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _folded_path(path: str) -> _FoldedPath:
    anchor, names = _split(path)
    return (anchor.casefold(), *(folded(name) or name for name in names))


def _split(path: str) -> tuple[str, list[str]]:
    """Return the root of a path, which is empty for a relative path, and the names after it."""
    drive, rest = os.path.splitdrive(path.replace(os.altsep, os.sep) if os.altsep else path)
    anchor = drive + os.sep if rest.startswith(os.sep) else drive
    return anchor, [name for name in rest.split(os.sep) if name not in ("", os.curdir)]


def _all_paths_to(path: str) -> Iterator[str]:
    """Yield every path that leads to a file: as given, through each symlink, and the real one."""
    named = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    done, rest = _split(named)
    yield os.path.normpath(named)
    links = 0
    rest.reverse()
    while rest and links < MAX_LINKS:
        name = rest.pop()
        here = os.path.dirname(done) if name == os.pardir else os.path.join(done, name)
        if name == os.pardir or not os.path.islink(here):
            done = here
            continue
        links += 1
        yield os.path.join(here, *reversed(rest))
        try:
            anchor, names = _split(os.readlink(here))
        except OSError:
            return
        done = anchor or done
        rest += reversed(names)
    yield os.path.join(done, *reversed(rest))
