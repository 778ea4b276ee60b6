"""Where the paths of a shell command lead: to which files, through which links, in whose hands."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tools.files.opener import real_path
from tools.files.workspace import Workspace, contains
from tools.permissions.auto_run_files import (
    FETCHED_FOLDERS,
    HOLDING_FOLDERS,
    REPOSITORY,
    REPOSITORY_WITHOUT_CONTENTS,
    auto_run_names,
    folded,
    why_protected,
    why_system_protected,
)
from tools.permissions.implied_files import first_below, first_taken
from tools.permissions.own_settings import GuardedPaths
from tools.permissions.shell.analysis import Effect, Links, SubCommand
from tools.permissions.shell.knowledge.file_programs import TOP_OF_REPOSITORY, Reach

MAX_ENTRIES = 20_000
"""Names that are looked at for one command."""

MAX_MATCHES = 128
_WILD = re.compile(r"[*?\[]")


_HOMES = ("~", "$HOME", "${HOME}")


def with_home(path: str, home: str) -> str:
    """A path as it is spelled in a command, with the home folder in place of what stands for it."""
    for prefix in _HOMES:
        if path == prefix or path.startswith(f"{prefix}/"):
            return home + path[len(prefix) :]
    return path


class _TooManyError(Exception):
    """More names than are looked at."""


@dataclass(slots=True)
class NamesOnDisk:
    """The names around one command.

    Args:
        home: The user's home folder.
        directory: Where the command starts, absolute.
    """

    home: str
    directory: str
    _left: int = MAX_ENTRIES
    _matched: dict[tuple[str, str], Sequence[str] | None] = field(
        default_factory=dict[tuple[str, str], Sequence[str] | None]
    )

    def matches(self, pattern: str, folder: str) -> Sequence[str] | None:
        """The paths that a pattern stands for, looked up once."""
        if (pattern, folder) not in self._matched:
            self._matched[pattern, folder] = self._matches(pattern, folder)
        return self._matched[pattern, folder]

    def _matches(self, pattern: str, folder: str) -> Sequence[str] | None:
        """The paths that a pattern stands for, in the order of their bytes; `None` if there are too many.

        Auto-run files count as well where they are not there: they may be when the command comes to it.

        Args:
            pattern: Names with `*`, `?`, and `[x]` for a character that means nothing.
            folder: Where a relative one starts, relative to `directory` or absolute.
        """
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
            found = {path for path in found if os.path.isdir(self._place(path, folder))}
        return sorted(found) if len(found) <= MAX_MATCHES else None

    def below(self, start: str, name: str, depth: int, folder: str) -> Sequence[str] | None:
        """What lies in a folder at any depth, and itself, by a pattern of names; `None` if there is too much.

        Args:
            start: The folder, as it is spelled.
            name: The pattern; here stars stand for dots as well.
            depth: How many folders down.
            folder: Where a relative one starts.
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
        place = self._place(path, folder)
        is_missing = bool(path) and not os.path.lexists(place.rstrip("/") or "/")
        if _WILD.search(part) is None:
            if is_missing or os.path.lexists(os.path.join(place, part)):
                yield part
            return
        if is_missing:
            raise _TooManyError
        yield from auto_run_names(part)
        for entry in self._entries(path, folder):
            if fnmatchcase(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
                yield entry.name

    def _place(self, path: str, folder: str) -> str:
        return os.path.join(self.directory, with_home(folder, self.home), with_home(path, self.home))

    def _entries(self, path: str, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._place(path, folder)) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        raise _TooManyError
                    yield entry
        except OSError:
            return


_OF_A_PROCESS = re.compile(
    r"//?(?:proc/[^/]+/(?:cwd|root|exe|fd|map_files|task)|proc/(?:self|thread-self)\Z|dev/fd(?!/[012]\Z))(?:/|\Z)"
)
"""What these lead to depends on who looks."""


@dataclass(slots=True)
class Surroundings:
    """The folders around a command. Blocking: it looks where links lead.

    Args:
        workspace: The folders of the workspace.
        home: The user's home folder.
        directory: Where the command starts, absolute.
        guarded: The server's own settings.
        is_read_only: Whether no part of the whole changes anything.
        auto_run_files: Real paths of those that the whole was seen to write.
        made: By its path, the commands of the whole that may put a link there; `None` for a place that is not known.
    """

    workspace: Workspace
    home: str
    directory: str
    guarded: GuardedPaths = field(default_factory=GuardedPaths)
    is_read_only: bool = False
    auto_run_files: list[str] = field(default_factory=list[str])
    made: dict[str | None, list[SubCommand]] = field(default_factory=dict[str | None, list[SubCommand]])

    def note_links(self, commands: Sequence[SubCommand]) -> None:
        """Remember where links may be that are not there yet."""
        for command in commands:
            if command.links is Links.NONE:
                continue
            for effect in command.effects:
                if effect.access == "write" and not effect.is_source:
                    paths = self.paths(effect)
                    makers = self.made.setdefault(paths[0] if paths else None, [])
                    # Two tell that there is another one than the command that is asked about.
                    if len(makers) < 2 and command not in makers:
                        makers.append(command)

    def links_on_the_way(self, path: str, command: SubCommand) -> Links:
        """Whether another part of the whole may have put a link where a path passes."""
        if not self.made:
            return Links.NONE
        makers = [*self.made.get(None, ())] if self.is_inside(path) else []
        found = {Links.MAYBE for maker in makers if maker is not command}
        while True:
            found |= {maker.links for maker in self.made.get(path, ()) if maker is not command}
            above = os.path.dirname(path)
            if above == path:
                break
            path = above
        return max(found, key=_BY_CERTAINTY.index, default=Links.NONE)

    def is_inside(self, path: str) -> bool:
        """Whether an absolute path lies in the workspace."""
        return any(contains(root, path) for root in self.workspace.roots)

    def why_protected(self, paths: Sequence[str], *, by_name: bool = False) -> str | None:
        """Why not all of these absolute paths may be written without a question, or `None`.

        Args:
            paths: The paths that a file goes by.
            by_name: Whether names alone count, and not that a path lies in a folder of the system.
        """
        found = (self._why_protected(path, by_name=by_name) for path in paths)
        # A word that names the whole workspace is no sign that the server's settings in it are meant.
        narrow = [path for path in paths if not by_name or not self._is_around(path)]
        return self.guarded.why(narrow) or next((why for why in found if why is not None), None)

    def _is_around(self, path: str) -> bool:
        return any(contains(path, root) for root in self.workspace.roots)

    def why_protected_in(self, folder: str) -> str | None:
        """The same for what is written in a folder by a name that is not known."""
        if folder in (os.sep, self.home, *(os.path.join(self.home, name) for name in HOLDING_FOLDERS)):
            return "programs start what lies there"
        return self.why_protected((folder, os.path.join(folder, "x")))

    def first_taken(self, path: str, reach: Reach) -> tuple[str, str] | None:
        """The first protected file that git takes away or writes by a folder or a pattern, and why it is."""
        if not self.is_inside(path):
            return None
        return first_taken(self.workspace, path, reach, lambda file: self.why_protected((file,)))

    def first_below(self, folder: str) -> tuple[str, str] | None:
        """The first protected file or folder in a folder that is removed or moved, and why it is."""
        if not self.is_inside(folder) or os.path.basename(folder) in FETCHED_FOLDERS or not os.path.isdir(folder):
            return None
        return first_below(folder, lambda path: self.why_protected((path,)))

    def why_unknown_protected(self, effect: Effect) -> str | None:
        """The same for a file of which it is not known where it lies: the server's own may lie in the workspace."""
        return None if effect.beginning else self.guarded.why_among(self.workspace.roots, effect.ending)

    def why_ending_protected(self, effect: Effect) -> str | None:
        """The same for a file of which only the end of its path is known."""
        return why_protected(effect.ending) if effect.ending else None

    def _why_protected(self, path: str, *, by_name: bool) -> str | None:
        if self.is_inside(path):
            return why_protected(self.workspace.at(path).relative)
        if contains(self.home, path):
            return why_protected(os.path.relpath(path, self.home))
        return (None if by_name else why_system_protected(path)) or why_protected(path)

    def paths(self, effect: Effect) -> tuple[str, ...]:
        """The absolute path of what is touched, as named and with links resolved; empty if it is not known."""
        target = None if effect.target is None else self._absolute(effect.target, effect.folder)
        if target is None or "\0" in target:
            return ()
        if effect.reach is Reach.NAMED and not os.path.lexists(target):
            target = _top_of_repository(os.path.dirname(target))
        elif effect.reach is not Reach.BELOW and TOP_OF_REPOSITORY in target:
            folder, _, path = target.partition(TOP_OF_REPOSITORY)
            target = os.path.join(_top_of_repository(folder or os.sep), path)
        named = os.path.normpath(target)
        if _OF_A_PROCESS.match(named):
            return ()
        try:
            return named, real_path(target)
        except (OSError, ValueError):
            return (named,)

    def beginning(self, effect: Effect) -> str | None:
        """The folder in which something is touched that is not known itself."""
        return self._absolute(effect.beginning, effect.folder) if effect.beginning else None

    def places(self, effect: Effect) -> tuple[str, ...]:
        """Where something may be of which only the beginning or the end of the path is known."""
        folder = self.beginning(effect)
        begun = () if folder is None else (os.path.normpath(folder), os.path.join(os.path.normpath(folder), "x"))
        return (*begun, os.path.normpath(os.path.join(self.directory, effect.ending))) if effect.ending else begun

    def is_of_a_process(self, effect: Effect) -> bool:
        """Whether a path leads through the files that a process has open."""
        spelled = effect.target or effect.beginning
        absolute = self._absolute(spelled, effect.folder) if spelled else None
        return absolute is not None and _OF_A_PROCESS.match(os.path.normpath(absolute)) is not None

    def _absolute(self, target: str, folder: str | None) -> str | None:
        target = with_home(target, self.home)
        if not os.path.isabs(target):
            if folder is None:
                return None
            target = os.path.join(self.directory, with_home(folder, self.home), target)
        # POSIX lets exactly two slashes in front mean something else; on the systems that we know they mean one.
        return "/" + target.lstrip("/") if target.startswith("//") else target


def repository_stored_at(path: str) -> str | None:
    """The work tree of the repository that keeps contents of files at an absolute path, or in it."""
    parts = path.split(os.sep)
    place = next((at for at, part in enumerate(parts) if folded(part) == REPOSITORY), len(parts))
    behind = parts[place + 1 :]
    is_store = behind[0] not in REPOSITORY_WITHOUT_CONTENTS if behind else place < len(parts) and os.path.isdir(path)
    return (os.sep.join(parts[:place]) or os.sep) if is_store else None


_BY_CERTAINTY = (Links.NONE, Links.MAYBE, Links.MADE)


def _top_of_repository(folder: str) -> str:
    """The top of the work tree that a folder is in, as git finds it; the folder itself if it is in none."""
    try:
        above = real_path(folder)
    except (OSError, ValueError):
        return folder
    while not os.path.lexists(os.path.join(above, REPOSITORY)):
        if (parent := os.path.dirname(above)) == above:
            return folder
        above = parent
    return above
