"""The one walk through a tree: pruned by ignore rules and by the pattern, never through links, within a time budget."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from tools.contract.errors import PathNotInWorkspaceError
from tools.filesystem.descriptors import Entry, Folder, PathKind
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.ignore import HiddenBy, Scope, scope_of
from tools.filesystem.workspace import Location, Workspace

DEFAULT_EXCLUDED_FOLDERS = frozenset({"node_modules", ".git", "bower_components", ".svn", ".hg"})
"""Folders of other people's code and of version control that searches leave out (both seeds' five)."""

CHECK_EVERY = 2_000
"""Entries of one folder between two looks at the clock and the signal."""


class Found(NamedTuple):
    """A file that a walk came by.

    Args:
        path: Below the folder that the walk started from, with forward slashes.
        is_link: Whether it is a link, where links are asked for; otherwise a regular file.
        info: Its stat where that is asked for; `None` also if it has gone meanwhile.
    """

    path: str
    is_link: bool
    info: os.stat_result | None


class FolderFiles(NamedTuple):
    """The files wanted of one folder.

    Args:
        prefix: The folder below the one that the walk started from, with a slash at its end; empty for that one.
        names: Base names of regular files, sorted.
        is_whole: There are no other regular files in it.
    """

    prefix: str
    names: list[str]
    is_whole: bool


class Selection(Protocol):
    """What a walk is looking for, as seen from one folder."""

    def accepts(self, name: str) -> bool:
        """Whether a file of this folder is wanted."""
        ...

    def enter(self, name: str) -> Selection | None:
        """What is wanted in a folder below, or `None` if nothing in it is."""
        ...


class Everything:
    """Every file is wanted."""

    def accepts(self, name: str) -> bool:
        """Every file."""
        del name
        return True

    def enter(self, name: str) -> Selection | None:
        """Every folder."""
        del name
        return self


class Prunable(Protocol):
    """An exclusion as seen from one folder: `tools.filesystem.finding.patterns.Position` is one."""

    def accepts(self, name: str) -> bool:
        """Whether a file is excluded."""
        ...

    def covers(self, name: str) -> bool:
        """Whether a folder is excluded with all that is in it."""
        ...

    def enter(self, name: str) -> Prunable | None:
        """The exclusion in a folder below, `None` where nothing is excluded any more."""
        ...


@dataclass(frozen=True, slots=True)
class Without:
    """What one selection wants and an exclusion does not cover."""

    wanted: Selection
    excluded: Prunable

    def accepts(self, name: str) -> bool:
        """Wanted and not excluded."""
        return self.wanted.accepts(name) and not self.excluded.accepts(name)

    def enter(self, name: str) -> Selection | None:
        """The same for a folder below."""
        wanted = None if self.excluded.covers(name) else self.wanted.enter(name)
        excluded = self.excluded.enter(name)
        return Without(wanted, excluded) if wanted is not None and excluded is not None else wanted


@dataclass(frozen=True, slots=True)
class Filters:
    """What a walk leaves out.

    Args:
        git: Whether the rules of git apply.
        agent: Whether the agent-ignore files apply.
        folders: Names of folders that are never entered.
        links: Whether links to files are given out as well.
        stats: Whether the stat of each file is asked for; it costs as much as the walk.
    """

    git: bool = True
    agent: bool = True
    folders: frozenset[str] = DEFAULT_EXCLUDED_FOLDERS
    links: bool = False
    stats: bool = False


class _Place(NamedTuple):
    """A folder to be walked, with the rules of its parent until its entries are known."""

    path: str
    prefix: str
    scope: Scope
    wanted: Selection


def _not_asked_for(opened: Folder, name: str) -> None:
    del opened, name


def _prefix_of(place: _Place) -> str:
    return place.prefix


@dataclass(slots=True)
class _Listed:
    """What one folder holds: files and links that are wanted, folders to be walked, the number of other files."""

    names: list[str]
    links: list[str]
    below: list[_Place]
    unwanted: int = 0


Taken = TypeVar("Taken")
_Take = Callable[[str, Folder, list[str], list[str], int], Taken]
"""Given a folder's prefix, the open folder, the names of files and links that are wanted, the number of other files."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What walks did not go into, by number.

    Args:
        hidden: Files that were wanted, and folders, that ignore files hide.
        folders: Folders that were not entered because of their name.
        unreadable: Folders that could not be read.
    """

    hidden: Counter[HiddenBy]
    folders: Counter[str]
    unreadable: int

    def __add__(self, other: LeftOut) -> LeftOut:
        """Both together."""
        return LeftOut(self.hidden + other.hidden, self.folders + other.folders, self.unreadable + other.unreadable)


@dataclass(slots=True)
class Walk:
    """One or more walks with one time budget; afterwards, what they left out.

    Args:
        workspace: Whose folders are read.
        filters: What is left out.
        deadline: The budget; `timed_out` tells that it did not suffice.
        hidden: Files that were wanted, and folders, that ignore files hide.
        folders_excluded: Names of folders that were not entered because of their name, with their number.
        unreadable: Folders that could not be read.
    """

    workspace: Workspace
    filters: Filters
    deadline: Deadline
    hidden: Counter[HiddenBy] = field(default_factory=Counter[HiddenBy])
    folders_excluded: Counter[str] = field(default_factory=Counter[str])
    unreadable: int = 0
    timed_out: bool = False

    def files(self, start: Location, selection: Selection, others: Sequence[str] = ()) -> Iterator[Found]:
        """Walk a folder; files come folder by folder, in no order within one.

        Args:
            start: The folder. It is walked even if ignore files hide it, since somebody named it.
            selection: What is wanted in it.
            others: Roots with a walk of their own, not entered by this one.

        Raises:
            OSError: The folder itself cannot be read; folders below are counted in `unreadable`.
            ToolError: `cancelled`.
        """
        stat = Folder.stat if self.filters.stats else _not_asked_for

        def found(prefix: str, opened: Folder, names: list[str], links: list[str], _: int) -> list[Found]:
            files = [Found(prefix + name, False, stat(opened, name)) for name in names]
            return files + [Found(prefix + name, True, stat(opened, name)) for name in links]

        for files in self._visit(start, selection, others, found):
            yield from files

    def folders(self, start: Location, selection: Selection, others: Sequence[str] = ()) -> Iterator[FolderFiles]:
        """Walk a folder for regular files, folder by folder, in the order of their paths.

        Args:
            start: As for `files`.
            selection: As for `files`.
            others: As for `files`.

        Raises:
            OSError: The folder itself cannot be read; folders below are counted in `unreadable`.
            ToolError: `cancelled`.
        """

        def found(prefix: str, _: Folder, names: list[str], links: list[str], unwanted: int) -> list[FolderFiles]:
            del links
            names.sort()
            return [FolderFiles(prefix, names, is_whole=not unwanted)] if names else []

        for folders in self._visit(start, selection, others, found):
            yield from folders

    @property
    def left_out(self) -> LeftOut:
        """What was left out so far; set anew where somebody knows better."""
        return LeftOut(self.hidden.copy(), self.folders_excluded.copy(), self.unreadable)

    @left_out.setter
    def left_out(self, known: LeftOut) -> None:
        self.hidden, self.folders_excluded = known.hidden.copy(), known.folders.copy()
        self.unreadable = known.unreadable

    def _visit(
        self, start: Location, selection: Selection, others: Sequence[str], take: _Take[Taken]
    ) -> Iterator[Taken]:
        """What is made of each folder while it is open; a folder comes before those below, and these by name."""
        scope = scope_of(start, git=self.filters.git, agent=self.filters.agent)
        apart = frozenset(others) - {start.path}
        roots = frozenset(self.workspace.roots) - {start.path}
        waiting = [_Place(start.path, "", scope, selection)]
        while waiting and not self._out_of_time():
            place = waiting.pop()
            try:
                with self.workspace.open_folder(place.path) as opened:
                    listed = self._listed(place, opened, apart, roots)
                    taken = take(place.prefix, opened, listed.names, listed.links, listed.unwanted)
            except (OSError, PathNotInWorkspaceError):
                if not place.prefix:
                    raise
                self.unreadable += 1
                continue
            listed.below.sort(key=_prefix_of, reverse=True)
            waiting += listed.below
            yield taken

    def _listed(self, place: _Place, opened: Folder, apart: frozenset[str], roots: frozenset[str]) -> _Listed:
        """What is wanted of one folder.

        Raises:
            OSError: It cannot be read.
            ToolError: `cancelled`.
        """
        entries = opened.entries()
        path, prefix, scope, wanted = place
        if prefix:
            scope = self._scope(place, entries, roots)
        listed = _Listed([], [], [])
        takes_links = self.filters.links
        for number, (name, kind) in enumerate(entries, 1):
            if number % CHECK_EVERY == 0 and self._out_of_time():
                break
            if kind is PathKind.FILE:
                if self._is_wanted(name, wanted, scope):
                    listed.names.append(name)
                else:
                    listed.unwanted += 1
            elif kind is PathKind.FOLDER:
                folder = os.path.join(path, name)
                below = None if folder in apart else self._entered(name, wanted, scope)
                if below is not None:
                    listed.below.append(_Place(folder, f"{prefix}{name}/", scope, below))
            elif takes_links and kind is PathKind.LINK and self._is_wanted(name, wanted, scope):
                listed.links.append(name)
        return listed

    def _out_of_time(self) -> bool:
        self.timed_out = self.timed_out or self.deadline.check()
        return self.timed_out

    def _scope(self, folder: _Place, entries: Sequence[Entry], roots: frozenset[str]) -> Scope:
        """The rules in a folder below the start; it still carries those of its parent."""
        if folder.path in roots:
            # A root below a root has agent-ignore files of its own, as it has for a read.
            location = self.workspace.locate(folder.path)
            return scope_of(location, git=self.filters.git, agent=self.filters.agent)
        return folder.scope.enter(folder.path, {name for name, _ in entries} if self.filters.git else ())

    def _is_wanted(self, name: str, wanted: Selection, scope: Scope) -> bool:
        if not wanted.accepts(name):
            return False
        hidden_by = scope.hides(name, is_folder=False)
        if hidden_by is not None:
            self.hidden[hidden_by] += 1
        return hidden_by is None

    def _entered(self, name: str, wanted: Selection, scope: Scope) -> Selection | None:
        below = wanted.enter(name)
        if below is None:
            return None
        if name in self.filters.folders:
            self.folders_excluded[name] += 1
            return None
        hidden_by = scope.hides(name, is_folder=True)
        if hidden_by is not None:
            self.hidden[hidden_by] += 1
            return None
        return below
