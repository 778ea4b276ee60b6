"""The names of files around one command, for patterns of `*`, `?` and `[x]` and for what `find` would find."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tools.permissions.auto_run_files import auto_run_names
from tools.permissions.shell.syntax.words import WILD

MAX_ENTRIES = 20_000  # names that are looked at for one command
MAX_MATCHES = 128


def with_home(path: str, home: str) -> str:
    """A path as it is written in a command, with the home folder in place of what stands for it."""
    for prefix in ("~", "$HOME", "${HOME}"):
        if path == prefix or path.startswith(f"{prefix}/"):
            return home + path[len(prefix) :]
    return path


class _TooManyError(Exception):
    """More names than are looked at."""


@dataclass(slots=True)
class NamesOnDisk:
    """Looks names up for one command, within bounds. Blocking."""

    home: str
    directory: str
    _left: int = MAX_ENTRIES
    _matched: dict[tuple[str, str], Sequence[str] | None] = field(
        default_factory=dict[tuple[str, str], Sequence[str] | None]
    )

    def matches(self, pattern: str, folder: str) -> Sequence[str] | None:
        """The paths that a pattern stands for, in the order of their bytes; `None` if there are too many.

        `[x]` is a character that means nothing. A relative one starts in the folder, which may be relative as well.
        Auto-run files count also where they are not there: they may be when the command comes to it.
        """
        if (pattern, folder) not in self._matched:
            self._matched[pattern, folder] = self._matches(pattern, folder)
        return self._matched[pattern, folder]

    def _matches(self, pattern: str, folder: str) -> Sequence[str] | None:
        found = {"/" if pattern.startswith("/") else ""}
        *above, last = pattern.split("/")
        try:
            for part, slash in (*((part, "/") for part in above if part), (last, "")):
                names = (
                    (path, name) for path in found for name in (self._fitting(path, part, folder) if part else [""])
                )
                found = {f"{path}{name}{slash}" for path, name in itertools.islice(names, MAX_ENTRIES)}
        except (_TooManyError, ValueError):
            return None
        if not last:
            found = {path for path in found if os.path.isdir(self._absolute(path, folder))}
        return sorted(found) if len(found) <= MAX_MATCHES else None

    def below(self, start: str, name: str, depth: int, folder: str) -> Sequence[str] | None:
        """What lies in a folder down to a depth, and itself, by a pattern of names; `None` if there is too much.

        Here stars stand for dots as well.
        """
        if ".." in start.split("/"):
            return None
        found = [start] if fnmatchcase(os.path.basename(os.path.normpath(start)), name) else []
        pending = [(start, depth)]
        try:
            while pending:
                path, left = pending.pop()
                for entry in self._entries(path, folder) if left else ():
                    below = os.path.join(path, entry.name)
                    if fnmatchcase(entry.name, name):
                        found.append(below)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((below, left - 1))
        except (_TooManyError, ValueError):
            return None
        return found if len(found) <= MAX_MATCHES else None

    def _fitting(self, path: str, part: str, folder: str) -> Iterator[str]:
        """The names in a folder that one part of a pattern fits."""
        absolute = self._absolute(path, folder)
        is_missing = bool(path) and not os.path.lexists(absolute.rstrip("/") or "/")
        if WILD.search(part) is None:
            if is_missing or os.path.lexists(os.path.join(absolute, part)):
                yield part
            return
        if is_missing:
            raise _TooManyError
        yield from auto_run_names(part)
        for entry in self._entries(path, folder):
            if fnmatchcase(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
                yield entry.name

    def _absolute(self, path: str, folder: str) -> str:
        return os.path.join(self.directory, with_home(folder, self.home), with_home(path, self.home))

    def _entries(self, path: str, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._absolute(path, folder)) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        raise _TooManyError
                    yield entry
        except OSError:
            return
