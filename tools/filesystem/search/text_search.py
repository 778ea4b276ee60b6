"""The work of `grep_search`: patterns and file filter are read, the files searched, and the matches told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolErrorType
from tools.contract.names import brief, one_line, shown_whole_path
from tools.contract.result import ToolResult
from tools.filesystem.finding.braces import PatternRefusedError
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.listing_text import count, walk_notes
from tools.filesystem.finding.patterns import PathPattern, compile_patterns
from tools.filesystem.finding.starts import Start, excluded_folders, search_starts
from tools.filesystem.finding.walk import Everything, Filters, Selection, Walk, Without
from tools.filesystem.search.cost import runaway_part
from tools.filesystem.search.dialect import PatternError, literal_pattern, parse_pattern
from tools.filesystem.search.engines.engine import Query
from tools.filesystem.search.engines.scan import MAX_FILE_BYTES
from tools.filesystem.search.match_lines import Neighbours
from tools.filesystem.search.report import MatchReport, ReportOptions
from tools.filesystem.search.run import Kept, Search, parts_of
from tools.filesystem.workspace import explain

if TYPE_CHECKING:
    from tools.filesystem.grep_search import GrepParams

MAX_LIMIT = 1_000_000
"""Matches that can be asked for; the characters of a result are limited long before."""

MAX_CONTEXT = 1_000
"""Neighbours of a match that are shown at most."""


class TextSearch:
    """Finds lines by a pattern of their text, and keeps its search engines for the next call.

    Args:
        tool: The name of the tool, for errors.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._kept = Kept()

    def check(self, params: GrepParams, spelled: Mapping[str, str]) -> None:
        """Both patterns and the file filter must be understood.

        Args:
            params: The call's.
            spelled: For each parameter given, the spelling that was used.

        Raises:
            InvalidToolParamsError: One of them is not.
        """
        self._query(params.pattern, params, spelled["pattern"], fixed=params.fixed_strings)
        if params.exclude_pattern is not None:
            self._query(params.exclude_pattern, params, spelled["exclude_pattern"])
        if params.glob is not None:
            self._filter(params.glob)

    def run(self, params: GrepParams, context: ToolContext, seconds: float) -> ToolResult:
        """Search, blocking.

        Args:
            params: What to find, checked.
            context: Where, and for whom.
            seconds: How long it may take before it returns what it has.
        """
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
        deadline = Deadline(context.signal, seconds)
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

    def _query(
        self, pattern: str, params: GrepParams, spelled: str, *, fixed: bool = False, most: int | None = None
    ) -> Query:
        try:
            read = literal_pattern(pattern) if fixed else parse_pattern(pattern)
        except PatternError as error:
            hint = "" if fixed else " To search for it as literal text set fixed_strings to true."
            raise InvalidToolParamsError(
                self._tool, f"'{spelled}' '{brief(pattern)}' cannot be used: {error}.{hint}"
            ) from None
        return Query(read, read.ignore_case or not params.case_sensitive, most)

    def _filter(self, glob: str) -> PathPattern:
        try:
            return compile_patterns([glob.removeprefix("!")], ignore_case=False, at_any_depth=True)
        except PatternRefusedError as error:
            raise InvalidToolParamsError(self._tool, f"'glob' '{brief(glob)}' cannot be used: {error}.") from None

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
