"""From paths, folders and globs to the files that `read_many_files` reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tools.contract.errors import PathNotInWorkspaceError, ToolError
from tools.contract.names_on_one_line import shown_path
from tools.files.find.patterns import MAX_ALTERNATIVES, Names, PathPattern, PatternRefusedError, compile_patterns
from tools.files.find.walk import DEFAULT_EXCLUDED_FOLDERS, Everything, Exclusion, Selection, Walk, Without, names_below
from tools.files.ignore_files import agent_ignore_file
from tools.files.opener import PathKind
from tools.files.workspace import Location, Workspace

EXCLUDED_FOLDERS = DEFAULT_EXCLUDED_FOLDERS | {
    ".vscode",
    ".idea",
    "dist",
    "build",
    "coverage",
    "__pycache__",
}
"""Gemini CLI's default excludes that are folders."""

_GLOB = re.compile(r"[*?\[{\\]|[@!+]\(|/$")
"""What makes an entry that does not exist more than the name of a file."""

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

    def chosen(self, names: list[str]) -> list[str]:
        """The files that are left out."""
        return [
            name for name in names if name in _EXCLUDED_NAMES or os.path.splitext(name)[1].lower() in _EXCLUDED_SUFFIXES
        ]

    def covers(self, name: str) -> bool:
        """No folder is."""
        del name
        return False

    def enter(self, name: str) -> Exclusion | None:
        """The same everywhere."""
        del name
        return self


class Candidate(NamedTuple):
    """A file to read. There may be very many of them, so where it lies is worked out only for those that are read.

    Args:
        path: Its real path.
        named: Where it is, if it was named outright, not found.
    """

    path: str
    named: Location | None

    @property
    def is_named(self) -> bool:
        """It was named outright."""
        return self.named is not None

    def location(self, workspace: Workspace) -> Location:
        """Where it is."""
        return self.named or workspace.at(self.path)


@dataclass(slots=True)
class Chosen:
    """The outcome of a selection.

    Args:
        files: By real path.
        skipped: What was asked for and is not read: path or pattern, and the reason; each pair once.
    """

    files: dict[str, Candidate] = field(default_factory=dict[str, Candidate])
    skipped: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])

    def skip(self, entry: str, reason: str) -> None:
        """Note why an entry is not read."""
        self.skipped[entry, reason] = None


class _NamesInAnyCase:
    """Paths of which nothing exists as it was written, as seen from one folder: a name is looked up, not matched."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: dict[str, _NamesInAnyCase] = {}

    def add(self, parts: Sequence[str]) -> None:
        """A path by its names, in lower case."""
        place = self
        for folder in parts[:-1]:
            place = place.folders.setdefault(folder, _NamesInAnyCase())
        place.files.add(parts[-1])

    def chosen(self, names: list[str]) -> list[str]:
        """The files of this folder that are among them."""
        return [name for name in names if name.lower() in self.files]

    def enter(self, name: str) -> Selection | None:
        """Those in a folder below."""
        return self.folders.get(name.lower())


class FileSelection:
    """Chooses files in every root.

    Args:
        workspace: Its roots.
        exclude: Patterns of what is left out, in any folder where they hold no slash.
        use_defaults: Whether the default excludes apply to what was not named outright.

    Raises:
        PatternRefusedError: A pattern cannot be used; the text names it.
    """

    def __init__(self, workspace: Workspace, exclude: Sequence[str], *, use_defaults: bool) -> None:
        self._workspace = workspace
        self._exclude = _compiled(exclude, None, at_any_depth=True) if exclude else None
        self._use_defaults = use_defaults

    def choose(self, walk: Walk, entries: Sequence[str]) -> Chosen:
        """Find the files.

        Args:
            walk: Its filters for folders are set here, by what the entries name.
            entries: Paths of files, paths of folders (with all that is below), or globs.

        Raises:
            OSError: A root cannot be read.
            PatternRefusedError: A glob cannot be used; the text names it.
            ToolError: `cancelled`.
        """
        chosen = Chosen()
        missing: dict[str, list[Location]] = {}
        settled: set[str] = set()
        for root in self._workspace.root_locations():
            globs: list[str] = []
            for entry in entries:
                if walk.is_out_of_time():
                    break
                location = self._sort_in(root.path, entry, walk, chosen)
                if location is None:
                    settled.add(entry)
                elif not _GLOB.search(entry):
                    missing.setdefault(entry, []).append(location)
                elif not os.path.isabs(entry):
                    globs.append(entry)
                elif location.root == root.path:
                    globs.append(location.relative)
            if globs:
                pattern = _compiled(globs, names_below(self._workspace, root, walk.deadline))
                self._search(root, pattern.start(), pattern.literals, walk, chosen)
        for entry in settled:
            missing.pop(entry, None)
        self._look_in_any_case(missing, walk, chosen)
        return chosen

    def _sort_in(self, root: str, entry: str, walk: Walk, chosen: Chosen) -> Location | None:
        """Take an entry for the file or folder that it is in one root; where it would lie, if nothing is there."""
        try:
            location = self._workspace.locate(entry, within=root)
        except PathNotInWorkspaceError:
            chosen.skip(entry, "outside the workspace")
            return None
        except ToolError as error:
            chosen.skip(entry, error.message)
            return None
        kind = self._workspace.kind_of(location)
        if kind is None:
            return location
        try:
            hidden_by = agent_ignore_file(self._workspace, location) if kind is PathKind.FOLDER else None
        except ToolError as error:
            chosen.skip(entry, error.message)
            return None
        if hidden_by is not None:
            chosen.skip(entry, f"hidden from agents by {hidden_by}")
        elif kind is PathKind.FOLDER:
            self._search(location, Everything(), frozenset(), walk, chosen)
        elif kind is not PathKind.FILE:
            chosen.skip(entry, "not a regular file")
        elif self._exclude is not None and self._exclude.matches(location.relative):
            chosen.skip(entry, "left out by exclude")
        else:
            chosen.files[location.path] = Candidate(location.path, location)
        return None

    def _look_in_any_case(self, missing: dict[str, list[Location]], walk: Walk, chosen: Chosen) -> None:
        """Find what does not exist as it was written but for upper and lower case."""
        for root in self._workspace.root_locations() if missing else ():
            names = _NamesInAnyCase()
            parts: set[str] = set()
            for location in (place for places in missing.values() for place in places if place.root == root.path):
                path = location.relative.lower().split("/")
                names.add(path)
                parts.update(path)
            if parts:
                self._search(root, names, frozenset(parts), walk, chosen)
        if walk.is_out_of_time():
            return  # there may be more of them
        known = {path.lower() for path in chosen.files} if missing else set[str]()
        for entry, places in missing.items():
            if not any(place.path.lower() in known for place in places):
                chosen.skip(entry, "does not exist")

    def _search(
        self, start: Location, wanted: Selection | None, named: Iterable[str], walk: Walk, chosen: Chosen
    ) -> None:
        """Add what is found below a folder.

        Args:
            start: The folder.
            wanted: What is looked for in it.
            named: Names of folders that are entered though they are left out by default.
            walk: Finds it.
            chosen: Where it is added.
        """
        if wanted is None:
            return
        folders = EXCLUDED_FOLDERS if self._use_defaults else frozenset[str]()
        walk.filters = replace(walk.filters, folders=folders.difference(start.relative.split("/"), named))
        # What lies below a root of its own is found from there; a folder that was named is taken with all of it.
        others = () if isinstance(wanted, Everything) else self._workspace.roots
        selection = Without(wanted, DefaultExcludes()) if self._use_defaults else wanted
        excluded = self._exclusion_at(start)
        if excluded is not None:
            selection = Without(selection, excluded)
        base = os.path.join(start.path, "")
        for found in walk.files(start, selection, others):
            path = base + found.path.replace("/", os.sep)
            if path not in chosen.files:
                chosen.files[path] = Candidate(path, None)

    def _exclusion_at(self, start: Location) -> Exclusion | None:
        """The excludes as seen from a folder below its root."""
        position = self._exclude.start() if self._exclude else None
        for name in () if start.path == start.root else start.relative.split("/"):
            position = position and position.enter(name)
        return position


def _compiled(globs: Sequence[str], exists: Names | None, *, at_any_depth: bool = False) -> PathPattern:
    """Several globs as one pattern.

    Raises:
        PatternRefusedError: One of them cannot be used, or they are too many; the text names the one.
    """
    alternatives = 0
    patterns: list[PathPattern] = []
    for glob in globs:
        try:
            pattern = compile_patterns([glob], ignore_case=True, exists=exists, at_any_depth=at_any_depth)
        except PatternRefusedError as error:
            raise PatternRefusedError(f"the pattern '{shown_path(glob)}' cannot be used: {error}") from None
        alternatives += len(pattern.alternatives)
        if alternatives > MAX_ALTERNATIVES:
            raise PatternRefusedError(
                f"from '{shown_path(glob)}' on, the globs are too many: together they stand for more than "
                f"{MAX_ALTERNATIVES} patterns. Give fewer of them, or the folders or files themselves"
            )
        patterns.append(pattern)
    steps = [steps for pattern in patterns for steps in pattern.alternatives]
    return PathPattern(steps, frozenset[str]().union(*(pattern.literals for pattern in patterns)))
