"""From paths, folders and globs to the files that `read_many_files` reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath

from tools.contract.errors import PathNotInWorkspaceError, ToolError
from tools.filesystem.descriptors import PathKind
from tools.filesystem.finding.patterns import PathPattern, compile_patterns
from tools.filesystem.finding.walk import DEFAULT_EXCLUDED_FOLDERS, Everything, Prunable, Selection, Walk, Without
from tools.filesystem.workspace import Location, Workspace

EXCLUDED_FOLDERS = DEFAULT_EXCLUDED_FOLDERS | {
    ".vscode",
    ".idea",
    "dist",
    "build",
    "coverage",
    "__pycache__",
}
"""Gemini CLI's default excludes that are folders."""

_WILDCARDS = frozenset("*?[{")

_EXCLUDED_NAMES = frozenset({".DS_Store", ".env", "GEMINI.md", "QWEN.md", "AGENTS.md"})
"""Secrets, and context files that an agent has read already."""

_EXCLUDED_SUFFIXES = frozenset(
    (  # noqa: SIM905 - as a list it would be forty lines
        ".bin .exe .dll .so .dylib .class .jar .war .zip .tar .gz .bz2 .rar .7z .doc .docx .xls .xlsx .ppt .pptx "
        ".odt .ods .odp .pak .rpa .pyc .pyo .dat .obj .o .a .lib .wasm"
    ).split()
)
"""Binary formats that are no media."""


class DefaultExcludes:
    """Files left out by name; folders are left out by the walk."""

    def accepts(self, name: str) -> bool:
        """Whether a file is left out."""
        return name in _EXCLUDED_NAMES or PurePath(name).suffix.lower() in _EXCLUDED_SUFFIXES

    def covers(self, name: str) -> bool:
        """No folder is."""
        del name
        return False

    def enter(self, name: str) -> Prunable | None:
        """The same everywhere."""
        del name
        return self


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to read.

    Args:
        location: Where it is.
        is_named: It was named outright, not found.
    """

    location: Location
    is_named: bool


@dataclass(slots=True)
class Chosen:
    """The outcome of a selection.

    Args:
        files: By real path.
        skipped: What was asked for and is not read: path or pattern, and the reason.
    """

    files: dict[str, Candidate] = field(default_factory=dict[str, Candidate])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class FileSelection:
    """Chooses files in every root.

    Args:
        workspace: Its roots.
        exclude: Patterns of what is left out, in any folder where they hold no slash.
        use_defaults: Whether the default excludes apply to what was not named outright.

    Raises:
        PatternRefusedError: A pattern cannot be used.
    """

    def __init__(self, workspace: Workspace, exclude: Sequence[str], *, use_defaults: bool) -> None:
        self._workspace = workspace
        self._exclude = compile_patterns(exclude, ignore_case=True, at_any_depth=True) if exclude else None
        self._use_defaults = use_defaults

    def choose(self, walk: Walk, entries: Sequence[str]) -> Chosen:
        """Find the files.

        Args:
            walk: Its filters for folders are set here, by what the entries name.
            entries: Paths of files, paths of folders (with all that is below), or globs.

        Raises:
            OSError: A root cannot be read.
            PatternRefusedError: A glob cannot be used.
            ToolError: `cancelled`.
        """
        chosen = Chosen()
        for root in self._workspace.root_locations():
            globs: list[str] = []
            for entry in entries:
                self._sort_in(root.path, entry, globs, walk, chosen)
            if globs:
                pattern = compile_patterns(globs, ignore_case=True, exists=partial(self._workspace.has, root))
                self._search(root, pattern, walk, chosen)
        for entry in entries:
            if not _WILDCARDS.intersection(entry) and not self._is_found(entry, chosen):
                _skip(chosen, entry, "does not exist")
        return chosen

    def _is_found(self, entry: str, chosen: Chosen) -> bool:
        """Whether anything became of an entry without wildcards."""
        if any(entry == skipped for skipped, _ in chosen.skipped):
            return True
        for root in self._workspace.roots:
            try:
                location = self._workspace.locate(entry, within=root)
            except ToolError:
                continue
            if self._workspace.kind_of(location) is not None:
                return True
            if any(location.path.lower() == known.lower() for known in chosen.files):
                return True
        return False

    def _sort_in(self, root: str, entry: str, globs: list[str], walk: Walk, chosen: Chosen) -> None:
        """Take an entry for what it is in one root: a file, a folder, or a glob."""
        try:
            location = self._workspace.locate(entry, within=root)
        except PathNotInWorkspaceError:
            _skip(chosen, entry, "outside the workspace")
            return
        except ToolError as error:
            _skip(chosen, entry, error.message)
            return
        kind = self._workspace.kind_of(location)
        if kind is PathKind.FILE:
            if self._is_excluded(location):
                _skip(chosen, entry, "left out by exclude")
            else:
                chosen.files[location.path] = Candidate(location, is_named=True)
        elif kind is PathKind.FOLDER:
            self._search(location, None, walk, chosen)
        elif os.path.isabs(entry):
            if location.root == root:
                globs.append(location.relative)
        elif kind is not None:
            _skip(chosen, entry, "not a regular file")
        else:
            globs.append(entry)

    def _is_excluded(self, location: Location) -> bool:
        return self._exclude is not None and self._exclude.matches(location.relative)

    def _search(self, start: Location, pattern: PathPattern | None, walk: Walk, chosen: Chosen) -> None:
        """Add what is found below a folder: all of it, or what a pattern fits."""
        named = frozenset(start.relative.split("/")) | (pattern.literals if pattern else frozenset[str]())
        folders = EXCLUDED_FOLDERS - named if self._use_defaults else frozenset[str]()
        walk.filters = replace(walk.filters, folders=folders)
        selection: Selection | None = pattern.start() if pattern else Everything()
        if selection is None:
            return
        if self._use_defaults:
            selection = Without(selection, DefaultExcludes())
        excluded = self._exclusion_at(start)
        if excluded is not None:
            selection = Without(selection, excluded)
        others = self._workspace.roots if pattern else ()
        for found in walk.files(start, selection, others):
            location = self._workspace.below(start, found.path)
            chosen.files.setdefault(location.path, Candidate(location, is_named=False))

    def _exclusion_at(self, start: Location) -> Prunable | None:
        """The excludes as seen from a folder below its root."""
        position = self._exclude.start() if self._exclude else None
        for name in () if start.path == start.root else start.relative.split("/"):
            position = position and position.enter(name)
        return position


def _skip(chosen: Chosen, entry: str, reason: str) -> None:
    if (entry, reason) not in chosen.skipped:
        chosen.skipped.append((entry, reason))
