"""`grep_search`: lines found by a pattern of their text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from pydantic import Field

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolErrorType
from tools.contract.names import brief, one_line, shown_whole_path
from tools.contract.parameters import ToolParams
from tools.contract.result import ToolResult
from tools.contract.subject import Subject
from tools.filesystem.finding.braces import PatternRefusedError
from tools.filesystem.finding.deadline import SEARCH_SECONDS, Deadline
from tools.filesystem.finding.listing_text import count, walk_notes
from tools.filesystem.finding.options import OPTIONS, gather_options
from tools.filesystem.finding.patterns import PathPattern, compile_patterns
from tools.filesystem.finding.starts import Start, excluded_folders, search_starts, start_subjects
from tools.filesystem.finding.walk import Everything, Filters, Selection, Walk, Without
from tools.filesystem.paths import FOLDER_ALIASES, shown
from tools.filesystem.search.cost import runaway_part
from tools.filesystem.search.dialect import PatternError, literal_pattern, parse_pattern
from tools.filesystem.search.engines.engine import Query
from tools.filesystem.search.engines.scan import MAX_FILE_BYTES
from tools.filesystem.search.match_lines import Neighbours
from tools.filesystem.search.report import MatchReport, ReportOptions
from tools.filesystem.search.run import Kept, Search, parts_of
from tools.filesystem.workspace import explain

MAX_LIMIT = 1_000_000
"""Matches that can be asked for; the characters of a result are limited long before."""

MAX_CONTEXT = 1_000
"""Neighbours of a match that are shown at most."""


class GrepParams(ToolParams):
    """What to search for."""

    pattern: str = Field(
        description="Regular expression, matched within single lines: 'function\\s+\\w+', 'TODO|FIXME'. No look-around "
        "and no back-references. Escape ( ) [ ] { } . * + ? | ^ $ with a backslash, or set fixed_strings."
    )
    path: str | None = Field(
        default=None, description="Folder or file to search, absolute or relative. Default: the whole workspace."
    )
    glob: str | None = Field(
        default=None,
        description="Only files that fit this glob: '*.py' (any folder), 'src/**/*.{ts,tsx}'; '!*.min.js' leaves out.",
    )
    case_sensitive: bool = Field(default=False, description="Whether upper and lower case differ.")
    fixed_strings: bool = Field(default=False, description="Take the pattern as literal text.")
    context: int | None = Field(default=None, ge=0, description="Lines to show before and after each match.")
    before: int | None = Field(default=None, ge=0, description="Lines to show before each match.")
    after: int | None = Field(default=None, ge=0, description="Lines to show after each match.")
    names_only: bool = Field(default=False, description="Return only the paths of the files with matches.")
    max_matches_per_file: int | None = Field(default=None, ge=1, description="Most matches to return of one file.")
    limit: int | None = Field(
        default=None, ge=1, description="Most matches (with names_only: files) to return in all; 100 by default."
    )
    exclude_pattern: str | None = Field(
        default=None, description="Regular expression; lines that match it as well are left out."
    )
    no_ignore: bool = Field(default=False, description="Also search what .gitignore hides, node_modules and the like.")


class GrepTool(BuiltinTool[GrepParams]):
    """Searches the content of files."""

    seconds = SEARCH_SECONDS
    """How long one search may take before it returns what it has."""

    name = "grep_search"
    display_name = "SearchText"
    aliases = ("GrepTool", "Grep", "SearchText", "search_file_content", "SearchFiles")
    description = (
        "Search file contents with a regular expression or literal text (grep, ripgrep, rg, full text code search): "
        "find where a function, class, variable, import, string or error message occurs. Returns matching lines "
        "grouped by file, with line numbers, paths relative to the folder searched. Case-insensitive by default. "
        "Dot-folders are searched; what .gitignore and agent-ignore files hide, node_modules, version control folders "
        "and binary files are not. To find files by name use glob."
    )
    kind = Kind.SEARCH
    behaviour = READS
    params_model = GrepParams
    parameter_aliases: Mapping[str, str] = {
        **FOLDER_ALIASES,
        "include": "glob",
        "include_pattern": "glob",
        "total_max_matches": "limit",
        "maxResults": "limit",
        "max_results": "limit",
    }

    def __init__(self) -> None:
        self._kept = Kept()

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Read the option of the other tools that says the same as `no_ignore`."""
        gathered = gather_options(arguments)
        options = gathered.pop(OPTIONS, None)
        if isinstance(options, dict) and cast("dict[str, Any]", options).get("respect_git_ignore") in (False, "false"):
            gathered.setdefault("no_ignore", True)
        return gathered

    def check(self, params: GrepParams, spelled: Mapping[str, str]) -> None:
        """Both patterns and the file filter must be understood."""
        self._query(params.pattern, params, spelled["pattern"], fixed=params.fixed_strings)
        if params.exclude_pattern is not None:
            self._query(params.exclude_pattern, params, spelled["exclude_pattern"])
        if params.glob is not None:
            self._filter(params.glob)

    def get_description(self, params: GrepParams, context: ToolContext) -> str:
        """The pattern, and where."""
        files = f" in {brief(params.glob)}" if params.glob else ""
        where = f" within {shown(params.path, context.workspace)}" if params.path else ""
        return f"Search '{brief(params.pattern)}'{files}{where}"

    def subjects(self, params: GrepParams, context: ToolContext) -> Sequence[Subject]:
        """Where the search begins."""
        return start_subjects(context.workspace, params.path)

    async def execute(self, params: GrepParams, context: ToolContext) -> ToolResult:
        """Search in one thread hop."""
        return await run_blocking(context.signal, lambda: self._search(params, context))

    def _query(
        self, pattern: str, params: GrepParams, spelled: str, *, fixed: bool = False, most: int | None = None
    ) -> Query:
        try:
            read = literal_pattern(pattern) if fixed else parse_pattern(pattern)
        except PatternError as error:
            hint = "" if fixed else " To search for it as literal text set fixed_strings to true."
            raise InvalidToolParamsError(
                self.name, f"'{spelled}' '{brief(pattern)}' cannot be used: {error}.{hint}"
            ) from None
        return Query(read, read.ignore_case or not params.case_sensitive, most)

    def _filter(self, glob: str) -> PathPattern:
        try:
            return compile_patterns([glob.removeprefix("!")], ignore_case=False, at_any_depth=True)
        except PatternRefusedError as error:
            raise InvalidToolParamsError(self.name, f"'glob' '{brief(glob)}' cannot be used: {error}.") from None

    def _search(self, params: GrepParams, context: ToolContext) -> ToolResult:
        workspace = context.workspace
        agent = workspace.respect_agent_ignore
        starts = search_starts(workspace, params.path, agent=agent)
        selection, named = self._selection(params.glob)
        folders = frozenset({".git"}) if params.no_ignore else None
        filters = Filters(
            git=workspace.respect_git_ignore and not params.no_ignore,
            agent=agent,
            folders=excluded_folders(starts, named, folders),
        )
        deadline = Deadline(context.signal, self.seconds)
        walk = Walk(workspace, filters, deadline)
        search = Search(workspace, deadline, self._kept)
        report = MatchReport(context, _options(params, context, absolute=len(starts) > 1))
        query = self._query(params.pattern, params, "pattern", fixed=params.fixed_strings, most=report.options.most)
        exclude = params.exclude_pattern
        excluded = self._query(exclude, params, "exclude_pattern") if exclude is not None else None
        try:
            with closing(search.find(parts_of(walk, starts, selection), query, excluded)) as found:
                for hits in found:
                    if not report.add(hits):
                        break
        except OSError as error:
            raise explain(error, starts[0].location.shown, ToolErrorType.GREP_EXECUTION_ERROR) from None
        return _result(params, starts, _Done(report, walk, search))

    def _selection(self, glob: str | None) -> tuple[Selection, frozenset[str]]:
        """What the file filter wants, and the folders it names."""
        if glob is None:
            return Everything(), frozenset()
        pattern = self._filter(glob)
        position = pattern.start()
        if position is None:
            return Everything(), frozenset()
        if glob.startswith("!"):
            return Without(Everything(), position), frozenset()
        return position, pattern.literals


def _where(params: GrepParams, starts: Sequence[Start]) -> str:
    if params.path:
        where = f"within {shown_whole_path(starts[0].location.path)}"
    elif len(starts) == 1:
        where = f"in the workspace directory {shown_whole_path(starts[0].location.path)}"
    else:
        where = f"across {len(starts)} workspace directories"
    return where + (f' (filter: "{one_line(params.glob)}")' if params.glob else "")


def _options(params: GrepParams, context: ToolContext, *, absolute: bool) -> ReportOptions:
    around = params.context or 0
    before = params.before if params.before is not None else around
    after = params.after if params.after is not None else around
    return ReportOptions(
        limit=min(params.limit or context.limits.grep_matches, MAX_LIMIT),
        per_file=params.max_matches_per_file,
        neighbours=Neighbours(min(before, MAX_CONTEXT), min(after, MAX_CONTEXT)),
        names_only=params.names_only,
        absolute=absolute,
    )


@dataclass(frozen=True, slots=True)
class _Done:
    """A finished search: what was found, and what was left out on each of its ways."""

    report: MatchReport
    walk: Walk
    search: Search

    @property
    def timed_out(self) -> bool:
        """Whether the time did not suffice."""
        return self.search.timed_out or self.walk.timed_out


def _result(params: GrepParams, starts: Sequence[Start], done: _Done) -> ToolResult:
    report = done.report
    noun, plural = ("file with matches", "files with matches") if params.names_only else ("match", "matches")
    states = {
        "limited": report.limited,
        "truncated": report.cut,
        "timed out": done.timed_out,
        "not all searched": bool(done.search.runaways.files),
    }
    what = f'for pattern "{one_line(params.pattern)}" {_where(params, starts)}'
    searched = done.search.tally.searched
    if report.matches:
        number = ("at least " if any(states.values()) else "") + count(report.matches, noun, plural)
        text = [f"Found {number} {what}:", "---", *report.blocks]
    else:
        text = [f"No matches found {what}; {count(searched, 'file')} searched."]
    told = ", ".join(name for name, is_so in states.items() if is_so)
    summary = f"Found {count(report.matches, noun, plural)}" if report.matches else "No matches found"
    return ToolResult(
        llm_content="\n".join([*text, *_notes(params, done)]),
        return_display=summary + (f" ({told})" if told else ""),
        facts={
            "matches": report.matches,
            "files": report.files,
            "searched": searched,
            "complete": not told,
            "timed_out": done.timed_out,
            "engines": sorted(done.search.used),
            "skipped": {
                "binary": report.binary,
                "huge": done.search.tally.huge,
                "slow": len(done.search.runaways.files),
            },
            "hidden": {by.value: number for by, number in done.walk.hidden.items()},
        },
    )


def _notes(params: GrepParams, done: _Done) -> list[str]:
    """What was left out and how to get it, as lines."""
    report, walk = done.report, done.walk
    notes: list[str] = []
    if done.search.timed_out and not walk.timed_out:
        notes.append(
            f"[PARTIAL RESULT: the time limit of {walk.deadline.seconds:g} s was reached before all files were "
            "searched. Name a folder as path, a glob, or a simpler pattern.]"
        )
    notes += _runaway_notes(done)
    if report.cut:
        notes.append(
            "[Cut: the result is too long. Search a narrower path or glob, or use names_only or less context.]"
        )
    if report.limited:
        shown_number = count(report.matches, *(("file", "files") if params.names_only else ("match", "matches")))
        notes.append(
            f"[Limited to {shown_number}, there are more. Raise limit, search a narrower path or glob, "
            "leave lines out with exclude_pattern, or use names_only or max_matches_per_file.]"
        )
    if report.per_file_reached:
        notes.append(f"[At most {params.max_matches_per_file:,} matches of each file were wanted; there may be more.]")
    skipped = [
        f"{count(report.binary, 'binary file')} with matches" if report.binary else "",
        f"{count(done.search.tally.huge, 'file')} over {MAX_FILE_BYTES // 1_000_000} MB"
        if done.search.tally.huge
        else "",
    ]
    if any(skipped):
        notes.append(f"[Not shown or searched: {', '.join(filter(None, skipped))}.]")
    return [*notes, *(f"[{note}]" for note in walk_notes(walk))]


def _runaway_notes(done: _Done) -> list[str]:
    """Which files a pattern took too long on, what of the pattern does that, and what to do."""
    files = done.search.runaways.files
    if not files:
        return []
    absolute = done.report.options.absolute
    paths = [os.path.join(file.folder.path, file.path) if absolute else file.path for file in files]
    parts = sorted({brief(runaway_part(file.query.pattern.tree)) for file in files} - {""})
    cause = " and ".join(f"'{part}'" for part in parts) or "the pattern"
    text = (
        f"[Not searched, since it took too long for this pattern: {', '.join(map(shown_whole_path, paths))}. "
        f"There {cause} can match in too many ways. Simplify the pattern, or install ripgrep, which takes any.]"
    )
    if not done.search.runaways.are_too_many:
        return [text]
    return [text, f"[PARTIAL RESULT: after {len(files)} such files the search was ended before all were searched.]"]
