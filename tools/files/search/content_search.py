"""`grep_search`: runs ripgrep, filters and sorts its matches, and reads the lines for the report.

ripgrep searches on all processors, so its output is in no particular order. The matches are sorted here. If a folder
has more than `MAX_SORTED` matching lines, ripgrep runs there again with sorted output, and is stopped when there are
enough matches.

If a file is not UTF-8, its decoded text, as `read_file` shows it, is searched instead of its bytes. The texts of
several files are joined and searched by ripgrep, so they match by the same rules as other files. Guessing the encoding
of a small file takes longer than all other steps. Therefore a file of at most `MAX_READ_BYTES` is searched in every
possible decoding, and its encoding is guessed only if one of the decodings matches.
"""

from __future__ import annotations

import heapq
import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

from tools.contract.call_options import AbortSignal, Deadline, Limits
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.child_process import unnamed_file
from tools.files.find import folder_walk
from tools.files.find.folder_walk import DEFAULT_EXCLUDED_FOLDERS, Filters, Selection, Walk, count
from tools.files.find.glob_search import (
    PathPattern,
    PatternPosition,
    PatternRefusedError,
    compile_patterns,
    expand_braces,
    search_starts,
)
from tools.files.ignore_files import GIT_FOLDER, IgnoreScope, PresentNames, scope_of
from tools.files.path_opener import is_temporary
from tools.files.search.match_report import MAX_DECODED_BYTES, ContentQuery, MatchReport, is_searchable
from tools.files.search.ripgrep import (
    MAX_FILE_BYTES,
    MAX_LINES_OF_FILE,
    LineMatch,
    Query,
    RefusedQueryError,
    Ripgrep,
    pattern_hint,
    ripgrep,
)
from tools.files.text_encodings import UNKNOWN_8BIT, decode, possible_decodings, shown_text
from tools.files.workspace import Location, Workspace
from tools.text.file_names import brief, shown_whole_path

MAX_PATTERN_CHARS = 10_000  # longer than any real pattern, but short enough for the command line of every system
# Matches names in a glob that ripgrep interprets in the same way as this server: literal text and single stars
_PLAIN_NAME = re.compile(r"[\w.+@=~-]*(?:\*[\w.+@=~-]+)*\*?", re.ASCII)
_DASHES_AND_STARS = re.compile(r"[-*]+")


def check_pattern(parameter: str, pattern: str) -> None:
    """Reject a pattern that cannot be passed to ripgrep. `parameter` is the parameter's name in the call."""
    problem = ""
    if not pattern:
        problem = "it is empty; give the text or expression to search for."
    elif len(pattern) > MAX_PATTERN_CHARS:
        problem = f"it is longer than {MAX_PATTERN_CHARS:,} characters; use a shorter one."
    elif "\n" in pattern or "\r" in pattern:
        problem = "it contains a line break, but files are searched line by line; search for one of its lines."
    elif "\0" in pattern:
        problem = "it contains a NUL character, which cannot be searched for."
    elif any("\ud800" <= character <= "\udfff" for character in pattern):
        problem = "it contains a lone surrogate, which no text file contains."
    if problem:
        raise _unusable(parameter, pattern, problem)


def compile_file_filter(glob: str) -> PathPattern:
    """Compile a file filter. A leading `!`, which inverts the filter, is ignored here; the caller handles it."""
    try:
        return compile_patterns([glob.removeprefix("!")], ignore_case=False, at_any_depth=True)
    except PatternRefusedError as error:
        raise _unusable("glob", glob, f"{error}.") from None


def _unusable(parameter: str, value: str, problem: str) -> InvalidToolParamsError:
    return InvalidToolParamsError("grep_search", f"'{parameter}' '{brief(value)}' cannot be used: {problem}")


def search_contents(workspace: Workspace, query: ContentQuery, limits: Limits, deadline: Deadline) -> ToolResult:
    """Run a search. Blocking. Raises an `InvalidToolParamsError` if ripgrep rejects a pattern."""
    starts, is_file = search_starts(workspace, query.path, deadline, agent=workspace.respect_agent_ignore)
    program = ripgrep(workspace.roots)
    selection: Selection = folder_walk.Everything()
    position: PatternPosition | None = None
    literal_names: frozenset[str] = frozenset()
    type_options: list[str] = []
    if query.glob is not None:
        pattern = compile_file_filter(query.glob)
        if query.glob.startswith("!"):
            selection = folder_walk.ReducedSelection(selection, pattern.start)
        else:
            selection = position = pattern.start
            literal_names = pattern.literals
            # The names that the filter can match are passed to ripgrep as a file type. Unlike ripgrep's globs, a file
            # type never unhides ignored files, but it matches only names. This server's own matcher handles paths, and
            # syntax that ripgrep may interpret differently. It also accepts look-alikes of a dash, so ripgrep gets `*`
            # for each dash.
            names = {path.rpartition("/")[2] for path in expand_braces(query.glob)}
            if all(name and _PLAIN_NAME.fullmatch(name) for name in names):
                wider_names = sorted({_DASHES_AND_STARS.sub("*", name) for name in names})
                type_options = [*(f"--type-add=wanted:{name}" for name in wider_names), "--type=wanted"]
    folders = frozenset({".git"}) if query.no_ignore else DEFAULT_EXCLUDED_FOLDERS
    filters = Filters(
        git=workspace.respect_git_ignore and not query.no_ignore,
        agent=workspace.respect_agent_ignore,
        folders=folder_walk.excluded_folders(starts, literal_names, folders),
    )
    main = Query(query.pattern, query.fixed_strings, query.ignore_case)
    exclude = None if query.exclude is None else Query(query.exclude, fixed=False, ignore_case=query.ignore_case)
    report = MatchReport(workspace, query, limits, deadline, starts)
    max_lines, rg, second_rg = report.most_per_file, Ripgrep(program, deadline), Ripgrep(program, deadline)
    search = ContentSearch(
        workspace, filters, starts, is_file, selection, type_options, main, exclude, max_lines, rg, second_rg
    )
    if position is not None and not is_file:
        search.follow_links(position, Walk(workspace, filters, deadline))
    try:
        with closing(search.matches()) as matches:
            for folder, match in matches:
                if not report.add(folder, match):
                    break
    except RefusedQueryError as error:
        name = "pattern" if error.query is main else "exclude_pattern"
        hint = pattern_hint(error.query.pattern, fixed=error.query.fixed)
        if not hint and not error.query.fixed:
            hint = "To search for it as literal text, set fixed_strings to true."
        raise _unusable(name, error.query.pattern, f"ripgrep reports: {error}. {hint}".rstrip()) from None
    searched_count, timed_out = rg.searched_count, rg.timed_out or second_rg.timed_out
    is_text = True
    if is_file and not report.matches:
        with workspace.open_file(starts[0]) as file:
            is_text = is_searchable(file)
        searched_count = searched_count if is_text else 0
    elif not report.matches and not timed_out and query.glob is not None:
        searched_count = search.count_files()
    return report.result(
        searched_count=searched_count, timed_out=timed_out, huge=search.huge, notes=search.notes(is_text=is_text)
    )


MAX_SORTED = 1_000  # maximum number of matching lines that are sorted here and not by ripgrep
EXCLUDED_AT_ONCE = 20  # maximum number of files per ripgrep run that searches for the exclude pattern
MAX_DECODED_MEGABYTES = MAX_DECODED_BYTES >> 20
FILES_AT_ONCE = 50  # maximum number of files decoded for one run of ripgrep
TEXT_AT_ONCE = 4 << 20  # number of bytes of text after which no more files are added to a run
# For larger files, the encoding is guessed first, because decoding with several encodings often takes longer
MAX_READ_BYTES = 1 << 17


@dataclass(slots=True)
class ContentSearch:
    """Searches folders one after another, or a file. ripgrep receives the part of the query that it supports."""

    workspace: Workspace
    filters: Filters
    starts: Sequence[Location]  # the folders to search, or a file
    is_file: bool  # whether the call names a file
    selection: Selection
    type_options: Sequence[str]
    query: Query
    exclude: Query | None  # lines that also match it are dropped
    lines_per_file: int  # maximum number of matching lines needed per file
    ripgrep: Ripgrep
    second_rg: Ripgrep  # finds lines to exclude and files that are not UTF-8, and searches decoded files
    huge: int = 0  # number of files that the call names but that are too large to search
    undecoded_count: int = 0  # number of files that are too large to decode
    # Files that match only in an encoding that is not used to show them, each with that encoding
    unshown_encodings: dict[str, str] = field(default_factory=dict[str, str])
    refusals: Sequence[str] = ()  # why some symlinks that the filter names are not followed
    # Targets of symlinks that the filter names, each with the selection that applies in it
    _link_targets: Sequence[tuple[Location, Selection]] = ()

    def follow_links(self, position: PatternPosition, walk: Walk) -> None:
        """Also search the targets of symlinks that the filter names. ripgrep does not follow them."""
        targets: list[tuple[Location, Selection]] = []
        for start in self.starts if position.leads_to_links else ():
            for folder, folder_selection in walk.through_links(start, position):
                if folder is not start:
                    targets.append((folder, folder_selection))
                with suppress(OSError):
                    deque(walk.files(folder, _ToLinks(folder_selection), self.workspace.roots), 0)
        self._link_targets, self.refusals = targets, walk.refusals

    def matches(self) -> Generator[tuple[Location, LineMatch]]:
        """Yield the folder and first matching lines of each file. Raises a `RefusedQueryError` for a bad pattern."""
        if self.exclude is not None and (reason := self.second_rg.refusal(self.exclude)):
            raise RefusedQueryError(self.exclude, reason)
        seen: set[str] = set()
        for folder, paths, visible in self._search_targets():
            with closing(self._matches_in(folder, paths, visible)) as matches:
                for match in matches:
                    path = os.path.join(folder.path, match.path)
                    if path not in seen:
                        yield folder, match.only(self.lines_per_file)
                    if self._link_targets:
                        seen.add(path)

    def count_files(self) -> int:
        number, linked_paths = 0, set[str]()
        for folder, paths, visible in self._search_targets():
            assert visible is not None  # noqa: S101 - always set for folders
            with closing(self.ripgrep.files(folder.path, paths, *visible.options)) as files:
                for path in filter(visible.contains, files):
                    if self._link_targets:  # the target of a symlink may also be searched directly
                        linked_paths.add(os.path.join(folder.path, path))
                    else:
                        number += 1
        return number + len(linked_paths)

    def notes(self, *, is_text: bool) -> list[str]:
        """Return what was not searched or is not shown. `is_text` is false if the named file is not text."""
        notes: list[str] = []
        if self.undecoded_count:
            notes.append(
                f"Searched as bytes, so only ASCII text could be found: {count(self.undecoded_count, 'file')} over "
                f"{MAX_DECODED_MEGABYTES} MB in an encoding other than UTF-8."
            )
        notes += self.refusals
        if self.unshown_encodings:
            files = [f"{shown_whole_path(path)} as {name}" for path, name in islice(self.unshown_encodings.items(), 3)]
            more = len(self.unshown_encodings) - len(files)
            notes.append(
                "Files that match only in an encoding that read_file does not use for them are not shown: "
                f"{', '.join(files)}" + (f" and {more} more" if more else "")
            )
        notes += [] if is_text else ["This file was not searched as text: it is binary, UTF-32, or large UTF-16"]
        notes += ["Some files or folders could not be read."] if self.ripgrep.has_unreadable else []
        return notes

    def _search_targets(self) -> Iterator[tuple[Location, Sequence[str], VisibleFiles | None]]:
        """Yield each folder to search, the paths in it (none for everything), and the files that may be shown."""
        if self.is_file:
            # A file named by the call must be readable. Git's ignore rules do not apply to it.
            (file,) = self.starts
            with self.workspace.open_file(file) as file_handle:
                # ripgrep does not check the size of a named file
                self.huge += file_handle.info.st_size > MAX_FILE_BYTES
            if not self.huge:
                parent, name = os.path.split(file.path)
                yield self.workspace.at(parent), [name], None
            return
        for folder, selection in (*((start, self.selection) for start in self.starts), *self._link_targets):
            yield folder, (), VisibleFiles(self, folder, selection)

    def _matches_in(self, folder: Location, paths: Sequence[str], visible: VisibleFiles | None) -> Generator[LineMatch]:
        """Yield the matches inside a folder, without excluded lines, sorted by path."""
        option = f"--max-count={self.lines_per_file if self.exclude is None else MAX_LINES_OF_FILE}"
        with closing(
            self._sorted_matches(folder, visible, option)
            if visible
            else self.ripgrep.matches(self.query, folder.path, paths, option)
        ) as all_matches:
            matches = self._drop_excluded(folder, all_matches, self.exclude) if self.exclude else all_matches
            if not any(query.is_about_characters for query in (self.query, self.exclude) if query is not None):
                # Decoding the files could not reveal more matches.
                for match in matches:
                    if self._is_searched_by_bytes(self.workspace.below(folder, match.path)):
                        yield match
                    else:
                        # In some legacy encodings, an ASCII byte may be the second byte of a character.
                        yield from self._search_decoded(folder, [match.path])
                return
            options = visible.options if visible else ()
            with closing(self.second_rg.files(folder.path, paths, *options, not_utf_8=True)) as candidates:
                legacy_paths = {path for path in candidates if visible is None or visible.contains(path)}
            sizes = {path: self.workspace.size_of(self.workspace.below(folder, path)) or 0 for path in legacy_paths}
            small_paths = {path for path, size in sizes.items() if size <= MAX_DECODED_BYTES}
            self.undecoded_count += len(sizes) - len(small_paths)
            as_bytes = (match for match in matches if match.path not in small_paths)
            as_text = self._search_decoded(folder, sorted(small_paths, key=_by_names))
            yield from heapq.merge(as_bytes, as_text, key=lambda match: _by_names(match.path))

    def _sorted_matches(self, folder: Location, visible: VisibleFiles, option: str) -> Generator[LineMatch]:
        """Yield the visible matches inside a folder, sorted by path as ripgrep sorts: name by name, as bytes."""
        options = [option, *visible.options]
        first_matches: list[LineMatch] = []
        lines = 0
        with closing(self.ripgrep.matches(self.query, folder.path, (), *options)) as matches:
            for match in matches:
                first_matches.append(match)
                lines += len(match.lines)
                if lines > MAX_SORTED:
                    break
        if lines <= MAX_SORTED or self.ripgrep.timed_out:
            first_matches.sort(key=lambda match: _by_names(match.path))
            yield from (match for match in first_matches if visible.contains(match.path))
            return
        del first_matches
        with closing(self.ripgrep.matches(self.query, folder.path, (), "--sort=path", *options)) as matches:
            yield from (match for match in matches if visible.contains(match.path))

    def _drop_excluded(self, folder: Location, matches: Iterator[LineMatch], exclude: Query) -> Generator[LineMatch]:
        while batch := list(islice(matches, EXCLUDED_AT_ONCE)):
            match_by_path = {match.path: match for match in batch}
            option = f"--max-count={MAX_LINES_OF_FILE}"
            with closing(self.second_rg.matches(exclude, folder.path, list(match_by_path), option)) as exclude_matches:
                for exclude_match in (match for match in exclude_matches if match.path in match_by_path):
                    match, excluded_lines = match_by_path[exclude_match.path], frozenset(exclude_match.lines)
                    match_by_path[exclude_match.path] = match.only(len(match.lines), without=excluded_lines)
            if self.second_rg.timed_out:
                return  # the excluded lines are unknown
            yield from (match for match in match_by_path.values() if match.lines)

    def _search_decoded(self, folder: Location, paths: Iterable[str]) -> Generator[LineMatch]:
        """Yield the files whose decoded text matches, in the order of `paths`, which are relative to the folder.

        Files are decoded on demand until ripgrep's time is up. Files that match only in an encoding that
        `shown_text` does not use are added to `unshown_encodings`.
        """
        remaining_paths = iter(paths)
        while not self.second_rg.timed_out:
            # For each possible decoding of a file: path, data, encodings, and its last line in the joined text
            decodings: list[tuple[str, bytes, set[str], int]] = []
            with unnamed_file() as texts:
                size = number = 0
                for path in islice(remaining_paths, FILES_AT_ONCE):
                    data = self._read_or_empty(self.workspace.below(folder, path))
                    decoded = shown_text(data) if len(data) > MAX_READ_BYTES else None
                    encodings_by_text = (
                        possible_decodings(data) if decoded is None else {decoded.text: {decoded.encoding.name}}
                    )
                    for text, encodings in encodings_by_text.items():
                        body = text.encode("utf-8", "replace") + (b"" if text.endswith("\n") else b"\n")
                        texts.write(body)
                        size, number = size + len(body), number + body.count(b"\n")
                        decodings.append((path, data, encodings, number))
                    if size >= TEXT_AT_ONCE:
                        break
                if not decodings:
                    return
                hits = self._matching_lines(texts, folder, self.query)
                if self.exclude is not None and hits.lines:
                    exclude_hits = self._matching_lines(texts, folder, self.exclude)
                    hits = hits.only(len(hits.lines), without=frozenset(exclude_hits.lines))
            if self.second_rg.timed_out:
                return
            first = lines_before = 0
            shown_paths = set[str]()
            for path, data, encodings, last in decodings:
                end = bisect_right(hits.lines, last, first)
                if end > first and shown_text(data).encoding.name in encodings:
                    self.unshown_encodings.pop(path, None)
                    shown_paths.add(path)
                    lines = [line - lines_before for line in hits.lines[first:end]]
                    yield LineMatch(path, lines, hits.columns[first:end], is_decoded=True)
                elif end > first and path not in shown_paths and UNKNOWN_8BIT not in encodings:
                    self.unshown_encodings.setdefault(path, min(encodings))
                first, lines_before = end, last

    def _is_searched_by_bytes(self, location: Location) -> bool:
        """Return True for Unicode text, and for files that are too large to decode, not searchable or unreadable."""
        try:
            with self.workspace.open_file(location) as file:
                if file.info.st_size > MAX_DECODED_BYTES or not is_searchable(file):
                    return True
                decoded = decode(file.whole(AbortSignal()))
                return decoded is not None and decoded.encoding.is_known
        except (OSError, ToolError):
            return True  # the file is opened again before it is shown

    def _matching_lines(self, texts: IO[bytes], folder: Location, query: Query) -> LineMatch:
        texts.seek(0)
        matches = list(self.second_rg.matches(query, folder.path, (), f"--max-count={MAX_LINES_OF_FILE}", stdin=texts))
        return matches[0] if matches else LineMatch("", (), ())

    def _read_or_empty(self, location: Location) -> bytes:
        """Return a file's content, or empty bytes if it is too large or cannot be read."""
        try:
            with self.workspace.open_file(location) as file:
                is_small = file.info.st_size <= MAX_DECODED_BYTES
                return file.whole(self.second_rg.deadline.signal) if is_small else b""
        except OSError:
            return b""
        except ToolError as error:
            if error.code in (ToolErrorType.CANCELLED, ToolErrorType.RESOURCES_EXHAUSTED):
                raise
            return b""


def _by_names(path: str) -> list[bytes]:
    return os.fsencode(path).split(b"/")


@dataclass(frozen=True, slots=True)
class _ToLinks(folder_walk.Everything):
    """Selects only folders that may contain a symlink that the filter names."""

    position: Selection

    def select(self, _names: list[str], /) -> list[str]:
        return []

    def enter(self, name: str, /) -> Selection | None:
        subselection = self.position.enter(name)
        if isinstance(subselection, PatternPosition) and subselection.leads_to_links:
            return _ToLinks(subselection)
        return None

    def enter_link(self, name: str, /) -> Selection | None:
        return self.position.enter_link(name)


MAX_FOLDERS = 10_000  # maximum number of folders whose rules are cached
_FolderRules = tuple[IgnoreScope, Selection]  # the rules in a folder, and the selection there


class VisibleFiles:
    """The visible files inside a folder. The folder itself is searched even if git ignores it: the call named it."""

    def __init__(self, search: ContentSearch, folder: Location, selection: Selection) -> None:
        self._search = search
        self._path = os.path.join(folder.path, "")
        self._other_starts = frozenset(start.path for start in search.starts) - {folder.path}  # searched separately
        filters = search.filters
        self._top: _FolderRules = (scope_of(search.workspace, folder, git=filters.git, agent=filters.agent), selection)
        # Keyed by the path relative to the folder; `None` if a subfolder is hidden or nothing in it is wanted
        self._folders: dict[str, _FolderRules | None] = {"": self._top}

    @property
    def options(self) -> list[str]:
        """Return options that make ripgrep itself skip many of the hidden files, so that it searches less."""
        folders = [f"--glob=!{name}/" for name in sorted(self._search.filters.folders)]
        git_option = f"--glob=!{GIT_FOLDER}" if self._top[0].git is not None else "--no-ignore"
        return [*folders, git_option, *self._search.type_options]

    def contains(self, path: str) -> bool:
        """Return True if a file is wanted, and neither the file nor a folder above it is hidden."""
        parent, _, name = path.rpartition("/")
        rules = self._folders.get(parent, self._top)
        if parent not in self._folders:
            rules, folder = self._top, ""
            for part in parent.split("/"):
                outer, folder = rules, f"{folder}/{part}" if folder else part
                if folder not in self._folders:
                    if len(self._folders) >= MAX_FOLDERS:
                        self._folders = {"": self._top}
                    self._folders[folder] = outer and self._rules_below(outer, part, self._path + folder)
                rules = self._folders[folder]
        if rules is None or is_temporary(name):
            return False
        scope, selection = rules
        return bool(selection.select([name])) and scope.hides(name, is_folder=False) is None

    def _rules_below(self, outer: _FolderRules, name: str, folder: str) -> _FolderRules | None:
        folder, (parent_scope, selection) = folder.replace("/", os.sep), outer
        subselection = selection.enter(name)
        if subselection is None or folder in self._other_starts or name in self._search.filters.folders:
            return None
        if parent_scope.hides(name, is_folder=True) is not None:
            return None
        try:
            search, present_names = self._search, PresentNames(folder)
            scope = folder_walk.scope_below(search.workspace, search.filters, parent_scope, folder, present_names)
        except ToolError as error:
            if error.code is not ToolErrorType.PATH_IGNORED:
                raise
            return None  # it is unknown what is hidden; a call that names the folder reports why
        return scope, subselection
