"""The matches of one search, file by file in the order of their paths.

ripgrep searches with all processors, and so in no order. What it finds is sorted here, unless that is so much that only
the first of it will be shown: then it is asked again for an order of its own, and ended as soon as there is enough.
"""

from __future__ import annotations

import os
from collections.abc import Container, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import Deadline
from tools.files.find.walk import Filters, Selection, Start
from tools.files.ignore_files import GIT_FOLDER, PresentNames, Scope, scope_of
from tools.files.opener import is_temporary
from tools.files.search.ripgrep import MAX_FILE_BYTES, Match, Query, RefusedQueryError, Ripgrep
from tools.files.workspace import Location, Workspace

MAX_FOLDERS = 10_000
"""Folders whose rules are held at once."""


class VisibleFiles:
    """The files below one folder that may be shown.

    Args:
        workspace: Its permission rules count in any case.
        folder: The folder. It may be hidden itself, since somebody named it.
        filters: Which ignore files count, and which folders are left out by their name.
        wanted: The file filter of the call.
        others: Real paths of folders that are searched by themselves, and not as a part of this one.

    Raises:
        ToolError: `path_ignored`: it is not known what an agent-ignore file hides in the folder.
    """

    def __init__(
        self, workspace: Workspace, folder: Location, filters: Filters, wanted: Selection, others: Container[str]
    ) -> None:
        self._workspace = workspace
        self._path = os.path.join(folder.path, "")
        self._filters = filters
        self._others = others
        self._top = (scope_of(workspace, folder, git=filters.git, agent=filters.agent), wanted)
        self._folders: dict[str, tuple[Scope, Selection] | None] = {"": self._top}
        """The rules in each folder and what is wanted there, `None` where it is hidden or nothing is wanted."""

    @property
    def options(self) -> list[str]:
        """What of this ripgrep can leave out by itself, so that it has less to search."""
        folders = [f"--glob=!{name}/" for name in sorted(self._filters.folders)]
        return [*folders, f"--glob=!{GIT_FOLDER}" if self._filters.git else "--no-ignore"]

    def holds(self, path: str) -> bool:
        """Whether a file may be shown.

        Args:
            path: Below the folder, with forward slashes.
        """
        prefix, _, name = path.rpartition("/")
        entered = self._folders[prefix] if prefix in self._folders else self._entered(prefix)
        if entered is None or is_temporary(name):
            return False
        scope, wanted = entered
        return bool(wanted.chosen([name])) and scope.hides(name, is_folder=False) is None

    def _entered(self, path: str) -> tuple[Scope, Selection] | None:
        """What counts in a folder below: all above it are gone through, since what is in a hidden one is hidden."""
        entered: tuple[Scope, Selection] | None = self._top
        folder = ""
        for name in path.split("/"):
            above, folder = entered, f"{folder}/{name}" if folder else name
            if folder in self._folders:
                entered = self._folders[folder]
            else:
                if len(self._folders) >= MAX_FOLDERS:
                    self._folders = {"": self._top}
                entered = self._folders[folder] = above and self._below(*above, name, self._path + folder)
        return entered

    def _below(self, scope: Scope, wanted: Selection, name: str, folder: str) -> tuple[Scope, Selection] | None:
        folder = folder.replace("/", os.sep)
        inside = wanted.enter(name)
        if inside is None or folder in self._others or name in self._filters.folders:
            return None
        if scope.hides(name, is_folder=True) is not None:
            return None
        try:
            if folder in self._workspace.roots:
                # A root below a root has agent-ignore files of its own, as it has for a read.
                location = self._workspace.locate(folder)
                return scope_of(self._workspace, location, git=self._filters.git, agent=self._filters.agent), inside
            return scope.enter(folder, PresentNames(folder)), inside
        except ToolError as error:
            if error.code is not ToolErrorType.PATH_IGNORED:
                raise
            return None  # it is not known what of it is hidden; whoever names it is told why


MAX_SORTED = 1_000
"""Matching lines that are sorted here."""

MAX_LINES_OF_FILE = 1_000_000
"""Matching lines of one file that are looked at, where an exclude pattern decides which of them are shown."""

EXCLUDED_AT_ONCE = 20
"""Files searched for the exclude pattern in one run."""


@dataclass(frozen=True, slots=True)
class FileMatch:
    """The matching lines of one file.

    Args:
        folder: The folder searched.
        path: The file below it, with forward slashes.
        lines: Line numbers from 1, rising.
    """

    folder: Location
    path: str
    lines: Sequence[int]


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Which files are searched.

    Args:
        filters: Which ignore files count, and which folders are left out by their name.
        wanted: What the call wants.
        options: As much of that as ripgrep can be told.
    """

    filters: Filters
    wanted: Selection
    options: Sequence[str] = ()


class ContentSearch:
    """Searches folders and files, one after the other.

    Args:
        workspace: What is searched; its rules say what may be shown.
        program: Absolute path of ripgrep.
        deadline: When what runs is ended.
        files: Which files are searched.
    """

    def __init__(self, workspace: Workspace, program: str, deadline: Deadline, files: FileFilter) -> None:
        self._workspace = workspace
        self._files = files
        self._ripgrep = Ripgrep(program, deadline)
        self._excluding = Ripgrep(program, deadline)
        self.huge = 0
        """Files named outright that are too large to be searched."""

    @property
    def timed_out(self) -> bool:
        """Whether the time did not suffice."""
        return self._ripgrep.timed_out or self._excluding.timed_out

    @property
    def left_out_some(self) -> bool:
        """Whether some files or folders could not be read."""
        return self._ripgrep.left_out_some

    @property
    def searched(self) -> int:
        """Files searched, where the search has come to its end."""
        return self._ripgrep.searched

    def matches(self, starts: Sequence[Start], query: Query, exclude: Query | None, most: int) -> Generator[FileMatch]:
        """The files with matches.

        Args:
            starts: Where to search.
            query: What to search for.
            exclude: Lines that match this too are left out.
            most: Lines wanted of each file.

        Raises:
            RefusedQueryError: A pattern cannot be used.
            ToolError: `grep_execution_error`, `cancelled`, and why what was named cannot be searched.
        """
        if exclude is not None and (reason := self._excluding.refusal(exclude)):
            raise RefusedQueryError(exclude, reason)
        count = f"--max-count={most if exclude is None else MAX_LINES_OF_FILE}"
        for start in starts:
            if start.is_file:
                folder = self._workspace.locate(os.path.dirname(start.location.path))
                found = self._in_file(start.location, query, count)
            else:
                folder = start.location
                found = self._below(starts, folder, query, count)
            with closing(found), closing(self._without(folder, found, exclude) if exclude else found) as left:
                for match in left:
                    yield FileMatch(folder, match.path, match.lines[:most])

    def count_files(self, starts: Sequence[Start]) -> int:
        """The files that a search of folders looks into and may show.

        Raises:
            ToolError: As for `matches`.
        """
        number = 0
        for start in starts:
            if start.is_file:
                number += 1
                continue
            visible = self._visible(starts, start.location)
            options = [*visible.options, *self._files.options]
            with closing(self._ripgrep.files(start.location.path, *options)) as paths:
                number += sum(map(visible.holds, paths))
        return number

    def _visible(self, starts: Sequence[Start], folder: Location) -> VisibleFiles:
        others = frozenset(start.location.path for start in starts) - {folder.path}
        return VisibleFiles(self._workspace, folder, self._files.filters, self._files.wanted, others)

    def _in_file(self, file: Location, query: Query, count: str) -> Generator[Match]:
        """The match in a file that was named outright, which has to be readable and is never hidden by git's rules."""
        with self._workspace.open_file(file) as opened:
            is_huge = opened.info.st_size > MAX_FILE_BYTES  # which ripgrep does not look at in a file that is named
        if is_huge:
            self.huge += 1
        else:
            folder, name = os.path.split(file.path)
            yield from self._ripgrep.matches(query, folder, [name], count)

    def _below(self, starts: Sequence[Start], folder: Location, query: Query, count: str) -> Generator[Match]:
        """What may be shown below a folder, in order."""
        visible = self._visible(starts, folder)
        options = [count, *visible.options, *self._files.options]
        held: list[Match] = []
        lines = 0
        with closing(self._ripgrep.matches(query, folder.path, (), *options)) as found:
            for match in found:
                held.append(match)
                lines += len(match.lines)
                if lines > MAX_SORTED:
                    break
        if lines <= MAX_SORTED or self._ripgrep.timed_out:
            yield from (match for match in sorted(held, key=_by_names) if visible.holds(match.path))
            return
        del held
        with closing(self._ripgrep.matches(query, folder.path, (), "--sort=path", *options)) as found:
            yield from (match for match in found if visible.holds(match.path))

    def _without(self, folder: Location, found: Iterator[Match], exclude: Query) -> Generator[Match]:
        """What is found without the lines that another query finds."""
        while some := list(islice(found, EXCLUDED_AT_ONCE)):
            left = {match.path: match.lines for match in some}
            count = f"--max-count={MAX_LINES_OF_FILE}"
            with closing(self._excluding.matches(exclude, folder.path, list(left), count)) as others:
                for other in (match for match in others if match.path in left):
                    excluded = frozenset(other.lines)
                    left[other.path] = [line for line in left[other.path] if line not in excluded]
            if self._excluding.timed_out:
                return  # what would have to be left out of them is not known
            yield from (Match(path, lines) for path, lines in left.items() if lines)


def _by_names(match: Match) -> list[bytes]:
    """What ripgrep sorts by: the names from the top down."""
    return os.fsencode(match.path).split(b"/")
