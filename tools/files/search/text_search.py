"""The work of `grep_search`: parameters become a query and a file filter, ripgrep searches, a report is the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from tools.call.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.limits import Deadline
from tools.contract.names_on_one_line import brief
from tools.contract.results import ToolResult
from tools.files.find.patterns import PathPattern, PatternRefusedError, compile_patterns, expand_braces
from tools.files.find.walk import Everything, Filters, Selection, Without, excluded_folders, search_starts
from tools.files.search.content_search import ContentSearch, FileFilter
from tools.files.search.match_report import MatchReport, Neighbours, ReportOptions
from tools.files.search.ripgrep import Query, RefusedQueryError, ripgrep

if TYPE_CHECKING:
    from tools.builtin.grep_search import GrepParams


MAX_PATTERN_CHARS = 10_000
"""Far more than anybody means; a command line takes it on every system."""

MAX_LIMIT = 1_000_000
"""Matches that can be asked for; the characters of a result are limited long before."""

MAX_CONTEXT = 1_000
"""Neighbours of a match that are shown at most."""

_PLAIN_NAME = re.compile(r"[\w .+@=~-]*(?:\*[\w .+@=~-]+)*\*?")
"""A name in a glob that means the same to ripgrep: literal text and single stars."""


class TextSearch:
    """Finds lines by a pattern of their text.

    Args:
        tool: The name of the tool, for errors.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def check(self, params: GrepParams, spelled: Mapping[str, str]) -> None:
        """Both patterns must be something that ripgrep can be given, and the file filter must be understood.

        Args:
            params: The call's.
            spelled: For each parameter given, the spelling that was used.

        Raises:
            InvalidToolParamsError: One of them is not.
        """
        for name, pattern in (("pattern", params.pattern), ("exclude_pattern", params.exclude_pattern)):
            if pattern is not None and (problem := _problem_of(pattern)):
                raise self._unusable(spelled[name], pattern, problem)
        if params.glob is not None:
            self._path_pattern(params.glob)

    def run(self, params: GrepParams, context: ToolContext, seconds: float) -> ToolResult:
        """Search, blocking.

        Args:
            params: What to find, checked.
            context: Where, and for whom.
            seconds: How long it may take before it returns what it has.

        Raises:
            InvalidToolParamsError: ripgrep does not take a pattern.
            ToolError: The search cannot be carried out, or was cancelled.
        """
        workspace = context.workspace
        starts = search_starts(workspace, params.path, agent=workspace.respect_agent_ignore)
        program = ripgrep(workspace.roots)
        selection, named = self._selection(params.glob)
        filters = Filters(
            git=workspace.respect_git_ignore and not params.no_ignore,
            agent=workspace.respect_agent_ignore,
            folders=excluded_folders(starts, named, frozenset({".git"}) if params.no_ignore else None),
        )
        files = FileFilter(filters, selection, _type_options(params.glob))
        search = ContentSearch(workspace, program, Deadline(context.signal, seconds), files)
        report = MatchReport(context, _report_options(params, context, absolute=len(starts) > 1))
        query = Query(params.pattern, params.fixed_strings, not params.case_sensitive)
        exclude = params.exclude_pattern
        excluded = Query(exclude, fixed=False, ignore_case=query.ignore_case) if exclude is not None else None
        try:
            with closing(search.matches(starts, query, excluded, report.options.most)) as found:
                for match in found:
                    if not report.add(match):
                        break
        except RefusedQueryError as error:
            name = "pattern" if error.query is query else "exclude_pattern"
            hint = "" if error.query.fixed else " To search for it as literal text set fixed_strings to true."
            raise self._unusable(name, error.query.pattern, f"ripgrep says: {error}.{hint}") from None
        has_none = not report.matches and not search.timed_out
        searched = search.count_files(starts) if has_none and params.glob is not None else search.searched
        return report.result(params, starts, search, seconds, searched)

    def _unusable(self, spelled: str, pattern: str, problem: str) -> InvalidToolParamsError:
        return InvalidToolParamsError(self._tool, f"'{spelled}' '{brief(pattern)}' cannot be used: {problem}")

    def _path_pattern(self, glob: str) -> PathPattern:
        try:
            return compile_patterns([glob.removeprefix("!")], ignore_case=False, at_any_depth=True)
        except PatternRefusedError as error:
            raise InvalidToolParamsError(self._tool, f"'glob' '{brief(glob)}' cannot be used: {error}.") from None

    def _selection(self, glob: str | None) -> tuple[Selection, frozenset[str]]:
        """What the file filter wants, and the folders it names."""
        pattern = self._path_pattern(glob) if glob is not None else None
        position = pattern.start() if pattern is not None else None
        if glob is None or pattern is None or position is None:
            return Everything(), frozenset()
        if glob.startswith("!"):
            return Without(Everything(), position), frozenset()
        return position, pattern.literals


def _problem_of(pattern: str) -> str | None:
    """Why a pattern cannot be given to ripgrep, as a sentence."""
    if not pattern:
        return "it is empty; give the text or expression to search for."
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it is longer than {MAX_PATTERN_CHARS:,} characters; use a shorter one."
    if "\n" in pattern or "\r" in pattern:
        return "it contains a line break, but files are searched line by line; search for one of its lines."
    if "\0" in pattern:
        return "it contains a NUL character, which only binary files do."
    try:
        pattern.encode()
    except UnicodeEncodeError:
        return "it contains half of a surrogate pair, which no text file does."
    return None


def _type_options(glob: str | None) -> list[str]:
    """The names that a file filter can fit, as a file type of ripgrep.

    A type, unlike a glob of ripgrep, brings back nothing that ignore files hide. It knows names only: paths, and what
    ripgrep might read in another way, are left to our own reading of the glob.
    """
    if glob is None or glob.startswith("!"):
        return []
    names = {path.rpartition("/")[2] for path in expand_braces(glob)}
    if not all(name and _PLAIN_NAME.fullmatch(name) for name in names):
        return []
    return [*(f"--type-add=wanted:{name}" for name in sorted(names)), "--type=wanted"]


def _report_options(params: GrepParams, context: ToolContext, *, absolute: bool) -> ReportOptions:
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
