"""The one walk through a tree: pruned by ignore rules and by the pattern, never through links, within a time budget."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

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
        """Walk a folder; files come in no order.

        Args:
            start: The folder. It is walked even if ignore files hide it, since somebody named it.
            selection: What is wanted in it.
            others: Roots with a walk of their own, not entered by this one.

        Raises:
            OSError: The folder itself cannot be read; folders below are counted in `unreadable`.
            ToolError: `cancelled`.
        """
        scope = scope_of(start, git=self.filters.git, agent=self.filters.agent)
        apart = frozenset(others) - {start.path}
        roots = frozenset(self.workspace.roots) - {start.path}
        waiting = [_Place(start.path, "", scope, selection)]
        while waiting and not self._out_of_time():
            folder = waiting.pop()
            try:
                with self.workspace.open_folder(folder.path) as opened:
                    found = self._files_of(folder, opened, apart, roots, waiting)
            except (OSError, PathNotInWorkspaceError):
                if not folder.prefix:
                    raise
                self.unreadable += 1
                continue
            yield from found

    def _files_of(
        self, place: _Place, opened: Folder, apart: frozenset[str], roots: frozenset[str], waiting: list[_Place]
    ) -> list[Found]:
        """The wanted files of one folder; the folders in it to be walked are added to `waiting`.

        Raises:
            OSError: It cannot be read.
            ToolError: `cancelled`.
        """
        entries = opened.entries()
        path, prefix, scope, wanted = place
        if prefix:
            scope = self._scope(place, entries, roots)
        files: list[Found] = []
        for number, (name, kind) in enumerate(entries, 1):
            if number % CHECK_EVERY == 0 and self._out_of_time():
                break
            if kind is not PathKind.FOLDER:
                if self._is_wanted(name, kind, wanted, scope):
                    info = opened.stat(name) if self.filters.stats else None
                    files.append(Found(prefix + name, kind is PathKind.LINK, info))
                continue
            folder = os.path.join(path, name)
            below = None if folder in apart else self._entered(name, wanted, scope)
            if below is not None:
                waiting.append(_Place(folder, f"{prefix}{name}/", scope, below))
        return files

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

    def _is_wanted(self, name: str, kind: PathKind, wanted: Selection, scope: Scope) -> bool:
        if not wanted.accepts(name):
            return False
        if kind is not PathKind.FILE and not (self.filters.links and kind is PathKind.LINK):
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
