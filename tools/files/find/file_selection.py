"""Turns paths, folders and globs into the files that `read_many_files` reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tools.contract.limits import Deadline
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError
from tools.files.find.folder_walk import DEFAULT_EXCLUDED_FOLDERS, Everything, Exclusion, Selection, Walk, Without
from tools.files.find.glob_patterns import MAX_ALTERNATIVES, Names, PathPattern, PatternRefusedError, compile_patterns
from tools.files.find.near_names import NEAR_SECONDS, proposal
from tools.files.ignore_files import agent_ignore_file
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace
from tools.text.file_names import shown_path

# Folders among Gemini CLI's default excludes
EXCLUDED_FOLDERS = DEFAULT_EXCLUDED_FOLDERS | {".vscode", ".idea", "dist", "build", "coverage", "__pycache__"}
# Matches an entry that is a glob, unless a file or folder has exactly this name
_GLOB = re.compile(r"[*?\[{\\]|[@!+]\(|/$")
# Secrets, and context files that an agent has already read
_EXCLUDED_NAMES = frozenset({".DS_Store", ".env", "GEMINI.md", "QWEN.md", "AGENTS.md"})
# Binary formats other than media
_EXCLUDED_SUFFIXES = frozenset(
    (  # noqa: SIM905 - a list would take forty lines
        ".bin .exe .dll .so .dylib .class .jar .war .zip .tar .gz .bz2 .rar .7z .doc .docx .xls .xlsx .ppt .pptx "
        ".odt .ods .odp .pak .rpa .pyc .pyo .dat .obj .o .a .lib .wasm"
    ).split()
)


class _DefaultExcludes:
    """Excludes files by name in any folder. The walk itself excludes folders."""

    def chosen(self, names: list[str]) -> list[str]:
        return [
            name for name in names if name in _EXCLUDED_NAMES or os.path.splitext(name)[1].lower() in _EXCLUDED_SUFFIXES
        ]

    def covers(self, name: str) -> bool:
        del name
        return False

    def enter(self, name: str) -> Exclusion | None:
        del name
        return self


class Candidate(NamedTuple):
    """A file that may be read. There may be very many candidates, so only the files that are read get a location."""

    path: str
    named: Location | None  # the file's location, if the call named the file

    def location(self, workspace: Workspace) -> Location:
        return self.named or workspace.at(self.path)


class _NamesInAnyCase:
    """Missing paths, as seen from one folder. Names are looked up without regard to case."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: dict[str, _NamesInAnyCase] = {}

    def add(self, parts: Sequence[str]) -> None:
        folder = self
        for name in parts[:-1]:
            folder = folder.folders.setdefault(name, _NamesInAnyCase())
        folder.files.add(parts[-1])

    def chosen(self, names: list[str]) -> list[str]:
        return [name for name in names if name.lower() in self.files]

    def enter(self, name: str) -> Selection | None:
        return self.folders.get(name.lower())

    linked = enter


class FileSelection:
    """Selects files in every root. Raises a `PatternRefusedError` for an unusable pattern."""

    def __init__(self, walk: Walk, exclude: Sequence[str], *, use_defaults: bool) -> None:
        self._walk = walk
        self._exclude = _compiled(exclude, None, at_any_depth=True) if exclude else None
        self._use_defaults = use_defaults
        self.files: dict[str, Candidate] = {}
        # Entries that were skipped: path or pattern, and the reason
        self.skipped: dict[tuple[str, str], None] = {}

    def choose(self, entries: Sequence[str]) -> None:
        """Find the files. Entries are files, folders (with all their contents), or globs."""
        walk = self._walk
        missing: dict[str, list[Location]] = {}
        settled: set[str] = set()
        in_scratch: dict[Location, dict[str, None]] = {}
        for root in walk.workspace.root_locations():
            globs: list[str] = []
            for entry in entries:
                if walk.is_out_of_time():
                    break
                location = self._take_named(root.path, entry)
                if location is None:
                    settled.add(entry)
                elif not _GLOB.search(entry):
                    missing.setdefault(entry, []).append(location)
                elif not os.path.isabs(entry):
                    globs.append(entry)
                elif location.root == root.path:
                    globs.append(location.relative)
                elif location.in_scratch:
                    in_scratch.setdefault(walk.workspace.at(location.root), {})[location.relative] = None
            self._search_globs(root, globs)
        for root, found in in_scratch.items():
            self._search_globs(root, list(found))
        self._look_in_any_case({entry: found for entry, found in missing.items() if entry not in settled})

    def _search_globs(self, root: Location, globs: Sequence[str]) -> None:
        if globs:
            pattern = _compiled(globs, self._walk.names_below(root))
            self._search(root, pattern.start(), pattern.literals)

    def _take_named(self, root: str, entry: str) -> Location | None:
        """Add the file or folder that an entry names in one root. Return the location if nothing exists there."""
        workspace = self._walk.workspace
        hidden_by, reason = None, ""
        try:
            location = workspace.locate(entry, within=root, by_look=True)
            kind = workspace.kind_of(location)
            if kind is None:
                return location
            hidden_by = agent_ignore_file(workspace, location) if kind is PathKind.FOLDER else None
        except PathNotInWorkspaceError:
            reason = "outside the workspace"
        except ToolError as error:
            reason = error.message
        else:
            if hidden_by is not None:
                reason = f"hidden from agents by {hidden_by}"
            elif kind is PathKind.FOLDER:
                self._search(location, Everything())
            elif kind is not PathKind.FILE:
                reason = "not a regular file"
            elif self._exclude is not None and self._exclude.matches(location.relative):
                reason = "matches exclude"
            else:
                self.files[location.name] = Candidate(location.name, location)
        if reason:
            self.skipped[entry, reason] = None
        return None

    def _look_in_any_case(self, missing: dict[str, list[Location]]) -> None:
        """Find missing entries without regard to case."""
        for root in self._walk.workspace.root_locations() if missing else ():
            names = _NamesInAnyCase()
            parts: set[str] = set()
            for location in (each for locations in missing.values() for each in locations if each.root == root.path):
                path = location.relative.lower().split("/")
                names.add(path)
                parts.update(path)
            if parts:
                self._search(root, names, parts)
        if self._walk.is_out_of_time():
            return  # there may be more matches
        known = {path.lower() for path in self.files} if missing else set[str]()
        deadline = Deadline(self._walk.deadline.signal, NEAR_SECONDS)
        for entry, locations in missing.items():
            if not any(location.name.lower() in known for location in locations):
                meant = proposal(self._walk.workspace, locations[0], deadline, folders=True, otherwise="")
                self.skipped[entry, f"does not exist.{meant}" if meant else "does not exist"] = None

    def _search(self, start: Location, wanted: Selection | None, named: Iterable[str] = ()) -> None:
        """Add the wanted files in a folder tree. Folders in `named` are searched even if excluded by default."""
        if wanted is None:
            return
        walk, above = self._walk, start.relative.split("/") if start.path != start.root else []
        folders = EXCLUDED_FOLDERS if self._use_defaults else frozenset[str]()
        walk.filters = replace(walk.filters, folders=folders.difference(above, named))
        # Nested roots are searched separately, but a folder given by name is included with all its contents.
        others = () if isinstance(wanted, Everything) else walk.workspace.roots
        selection = Without(wanted, _DefaultExcludes()) if self._use_defaults else wanted
        excluded = self._exclude.start() if self._exclude else None
        for name in above:
            excluded = excluded and excluded.enter(name)
        if excluded is not None:
            selection = Without(selection, excluded)
        for folder, inside in walk.through_links(start, selection):
            base = os.path.join(folder.name, "")
            for found in walk.files(folder, inside, others):
                path = base + found.path.replace("/", os.sep)
                if path not in self.files:
                    self.files[path] = Candidate(path, None)


def _compiled(globs: Sequence[str], exists: Names | None, *, at_any_depth: bool = False) -> PathPattern:
    """Compile globs into one pattern. The error names the glob that is unusable or exceeds the limit."""
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
                f"there are too many globs: those up to '{shown_path(glob)}' already expand to more than "
                f"{MAX_ALTERNATIVES} patterns. Give fewer globs, or name the folders or files"
            )
        patterns.append(pattern)
    return PathPattern([steps for pattern in patterns for steps in pattern.alternatives])
