"""The one walk through a tree: pruned by ignore rules and by the pattern, never through links, within a time budget."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError
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
        entry: Its directory entry; a regular file, or a link where links are asked for.
    """

    path: str
    entry: os.DirEntry[str]


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
    """An exclusion as seen from one folder: `tools.filesystem.patterns.Position` is one."""

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


class Deadline:
    """The time budget of one call, and its cancellation.

    Args:
        signal: Set when the call is cancelled.
        seconds: The budget, from now on.
    """

    __slots__ = ("_end", "seconds", "signal")

    def __init__(self, signal: AbortSignal, seconds: float) -> None:
        self.signal = signal
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self._end

    def check(self) -> bool:
        """Whether the budget is used up.

        Raises:
            ToolError: `cancelled`.
        """
        self.signal.raise_if_aborted()
        return self.is_over


@dataclass(frozen=True, slots=True)
class Filters:
    """What a walk leaves out.

    Args:
        git: Whether the rules of git apply.
        agent: Whether the agent-ignore files apply.
        folders: Names of folders that are never entered.
        links: Whether links to files are given out as well.
    """

    git: bool = True
    agent: bool = True
    folders: frozenset[str] = DEFAULT_EXCLUDED_FOLDERS
    links: bool = False


class _Folder(NamedTuple):
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
        waiting = [_Folder(start.path, "", scope, selection)]
        while waiting and not self._out_of_time():
            folder = waiting.pop()
            try:
                entries = self.workspace.scan(folder.path)
            except (OSError, ToolError):
                if not folder.prefix:
                    raise
                self.unreadable += 1
                continue
            if folder.prefix:
                folder = folder._replace(scope=self._scope(folder, entries, roots))
            yield from self._files_of(folder, entries, apart, waiting)

    def _files_of(
        self, folder: _Folder, entries: Sequence[os.DirEntry[str]], apart: frozenset[str], waiting: list[_Folder]
    ) -> Iterator[Found]:
        """The wanted files of one folder; the folders in it to be walked are added to `waiting`."""
        _, prefix, scope, wanted = folder
        for number, entry in enumerate(entries, 1):
            if number % CHECK_EVERY == 0 and self._out_of_time():
                return
            if not entry.is_dir(follow_symlinks=False):
                if self._is_wanted(entry, wanted, scope):
                    yield Found(prefix + entry.name, entry)
            elif entry.path not in apart:
                below = self._entered(entry.name, wanted, scope)
                if below is not None:
                    waiting.append(_Folder(entry.path, f"{prefix}{entry.name}/", scope, below))

    def _out_of_time(self) -> bool:
        self.timed_out = self.timed_out or self.deadline.check()
        return self.timed_out

    def _scope(self, folder: _Folder, entries: Sequence[os.DirEntry[str]], roots: frozenset[str]) -> Scope:
        """The rules in a folder below the start; it still carries those of its parent."""
        if folder.path in roots:
            # A root below a root has agent-ignore files of its own, as it has for a read.
            location = self.workspace.locate(folder.path)
            return scope_of(location, git=self.filters.git, agent=self.filters.agent)
        return folder.scope.enter(folder.path, {entry.name for entry in entries} if self.filters.git else ())

    def _is_wanted(self, entry: os.DirEntry[str], wanted: Selection, scope: Scope) -> bool:
        if not wanted.accepts(entry.name):
            return False
        if not entry.is_file(follow_symlinks=False) and not (self.filters.links and entry.is_symlink()):
            return False
        hidden_by = scope.hides(entry.name, is_folder=False)
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
