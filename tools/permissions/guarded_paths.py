"""Guarded paths: the server's own settings and log, which are written with a person's consent only.

Whoever writes them decides what runs, and without a question. `auto_run_files` knows such files by their names; these
are known by their real paths, since a file named on the command line may have any name and lie in a workspace.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tools.files.opener import MAX_LINKS
from tools.permissions.auto_run_files import folded

_REASON = "it is this server's own settings or log, or they lie in it"
_FoldedPath = tuple[str, ...]  # the names of a path as careless file systems compare them


@dataclass(frozen=True, slots=True)
class GuardedPaths:
    """What is written with a person's consent only, each time anew. `of` makes it."""

    files: tuple[str, ...] = ()  # files, present or not, by every path that leads to them
    folders: tuple[str, ...] = ()  # folders with all that is in them, likewise
    folded_files: frozenset[_FoldedPath] = frozenset()  # the files by the names of their paths
    folded_folders: frozenset[_FoldedPath] = frozenset()  # the same for the folders
    passed: frozenset[_FoldedPath] = frozenset()  # the same for what the paths of both pass through
    free: frozenset[_FoldedPath] = frozenset()  # the same for files in these folders that may be written like others

    @classmethod
    def of(cls, files: Iterable[str], folders: Iterable[str] = (), free: Iterable[str] = ()) -> GuardedPaths:
        """Guard these, but for the free files in the folders, with every link on the way to them. Blocking."""
        all_files = tuple(dict.fromkeys(path for file in files for path in _all_paths_to(file)))
        all_folders = tuple(dict.fromkeys(path for folder in folders for path in _all_paths_to(folder)))
        folded_files, folded_folders = (frozenset(map(_folded_path, paths)) for paths in (all_files, all_folders))
        return cls(
            all_files,
            all_folders,
            folded_files,
            folded_folders,
            frozenset(path[:length] for path in folded_files | folded_folders for length in range(1, len(path))),
            frozenset(_folded_path(path) for file in free for path in _all_paths_to(file)),
        )

    def why(self, paths: Iterable[str]) -> str | None:
        """Why one of these absolute paths is written with consent only, or `None`. Blocking.

        A folder that a guarded path passes through counts as well: what replaces it replaces the settings.
        """
        if not self.files and not self.folders:
            return None
        return _REASON if any(self._guards(path) for path in paths) else None

    def why_among(self, folders: Iterable[str], ending: str = "") -> str | None:
        """Why a file of these folders of which only the end is known is written with consent only, or `None`."""
        around = [_folded_path(folder) for folder in folders]
        for path in (*self.files, *self.folders):
            name = _folded_path(path)
            is_inside = any(name[: len(folder)] == folder for folder in around)
            if is_inside and (path in self.folders or path.casefold().endswith(ending.casefold())):
                return _REASON
        return None

    def _guards(self, path: str) -> bool:
        name = _folded_path(path)
        if name in self.folded_files or name in self.passed or self._is_other_name(path):
            return True
        is_inside = any(name[: len(folder)] == folder for folder in self.folded_folders)
        return is_inside and name not in self.free

    def _is_other_name(self, path: str) -> bool:
        """Whether a file is one of the guarded ones by a hard link."""
        info = _status(path)
        if info is None or info.st_nlink < 2 or not stat.S_ISREG(info.st_mode):
            return False
        return any((other := _status(file)) is not None and os.path.samestat(info, other) for file in self._present())

    def _present(self) -> Iterator[str]:
        yield from self.files
        for folder in self.folders:
            with suppress(OSError):
                paths = [os.path.join(folder, name) for name in os.listdir(folder)]
                yield from (path for path in paths if _folded_path(path) not in self.free)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _folded_path(path: str) -> _FoldedPath:
    anchor, names = _split(path)
    return (anchor.casefold(), *(folded(name) or name for name in names))


def _split(path: str) -> tuple[str, list[str]]:
    """The root of a path, empty for a relative one, and the names behind it."""
    drive, rest = os.path.splitdrive(path.replace(os.altsep, os.sep) if os.altsep else path)
    anchor = drive + os.sep if rest.startswith(os.sep) else drive
    return anchor, [name for name in rest.split(os.sep) if name not in ("", os.curdir)]


def _all_paths_to(path: str) -> Iterator[str]:
    """Every path that leads to a file: as it is named, with each link on the way, and the real one."""
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
