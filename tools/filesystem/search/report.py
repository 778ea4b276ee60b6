"""The result of a search: matches grouped by file, read through the workspace, within all limits; what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import one_line, shown_whole_path
from tools.contract.result import ToolResult
from tools.filesystem.descriptors import OpenedFile
from tools.filesystem.finding.listing_text import count
from tools.filesystem.finding.starts import Start
from tools.filesystem.finding.walk import DEFAULT_EXCLUDED_FOLDERS
from tools.filesystem.search.content_search import ContentSearch, FileMatch
from tools.filesystem.search.match_lines import Neighbours, excerpt, is_searchable
from tools.filesystem.search.ripgrep import MAX_FILE_BYTES

if TYPE_CHECKING:
    from tools.filesystem.grep_search import GrepParams


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How matches are reported.

    Args:
        limit: Matches, or files with `names_only`, in all.
        per_file: Matches of each file, or `None`.
        neighbours: Lines shown beside each match.
        names_only: Only the paths of files.
        absolute: Paths are absolute, since several folders were searched.
    """

    limit: int
    per_file: int | None
    neighbours: Neighbours
    names_only: bool
    absolute: bool

    @property
    def most(self) -> int:
        """Matches that have to be known of each file: one more than can be shown, to tell that there are more."""
        return 1 if self.names_only else min(self.per_file or self.limit + 1, self.limit + 1)


class MatchReport:
    """Collects the matches of one file after the other.

    Args:
        context: Opens files and sets the limits.
        options: How matches are reported.
    """

    def __init__(self, context: ToolContext, options: ReportOptions) -> None:
        self._context = context
        self._room = context.limits.read_chars
        self.options = options
        self.blocks: list[str] = []
        self.matches = 0
        """Matching lines shown; with `names_only` files."""
        self.files = 0
        self.binary = 0
        """Files that match but are no text."""
        self.limited = False
        """There are more matches than were wanted."""
        self.cut = False
        """The text became too long."""
        self.per_file_reached = False
        """A file holds as many matches as were wanted of each."""

    def add(self, hits: FileMatch) -> bool:
        """Add the matches of one file; whether more are wanted.

        Raises:
            ToolError: `cancelled`.
        """
        location = self._context.workspace.below(hits.folder, hits.path)
        name = shown_whole_path(location.path if self.options.absolute else hits.path)
        try:
            with self._context.workspace.open_file(location) as opened:
                return self._add(opened, hits, name)
        except OSError:
            return True
        except ToolError as error:
            if error.code in (ToolErrorType.CANCELLED, ToolErrorType.RESOURCES_EXHAUSTED):
                raise
            return True  # it has gone meanwhile, or is not what was searched

    def _add(self, opened: OpenedFile, hits: FileMatch, name: str) -> bool:
        if not is_searchable(opened):
            self.binary += 1
            return True
        wanted = hits.lines[: self.options.limit - self.matches]
        self.limited = len(wanted) < len(hits.lines)
        if not wanted:
            return False
        lines = [name] if self.options.names_only else [f"File: {name}"]
        self._room -= len(lines[0]) + len("\n---\n")
        shown = 1 if self.options.names_only else 0
        if self._room < 0 and self.blocks:
            self.cut = True
            return False
        if not self.options.names_only:
            chars = self._context.limits.line_chars
            for line in excerpt(opened, wanted, self.options.neighbours, chars, self._context.signal):
                text = f"L{line.number}{':' if line.is_match else '-'} {line.text}"
                self._room -= len(text) + 1
                if self._room < 0 and (self.blocks or shown):
                    self.cut = True
                    break
                lines.append(text)
                shown += line.is_match
            lines.append("---")
        if shown:
            self.blocks.append("\n".join(lines))
            self.matches += shown
            self.files += 1
            self.per_file_reached = self.per_file_reached or len(hits.lines) == self.options.per_file
        return not (self.limited or self.cut)

    def result(
        self, params: GrepParams, starts: Sequence[Start], search: ContentSearch, seconds: float, searched: int
    ) -> ToolResult:
        """What the call returns.

        Args:
            params: The call's.
            starts: Where was searched.
            search: The search, over.
            seconds: How long it was allowed to take.
            searched: How many files were searched, if the search has come to its end.
        """
        noun, plural = ("file with matches", "files with matches") if params.names_only else ("match", "matches")
        states = {"limited": self.limited, "truncated": self.cut, "timed out": search.timed_out}
        told = ", ".join(name for name, is_so in states.items() if is_so)
        what = f'for pattern "{one_line(params.pattern)}" {_where(params, starts)}'
        if self.matches:
            number = ("at least " if told else "") + count(self.matches, noun, plural)
            text = [f"Found {number} {what}:", "---", *self.blocks]
        elif told:
            text = [f"No matches found {what}."]
        else:
            text = [f"No matches found {what}; {count(searched, 'file')} searched."]
        summary = f"Found {count(self.matches, noun, plural)}" if self.matches else "No matches found"
        return ToolResult(
            llm_content="\n".join([*text, *self._notes(params, search, seconds)]),
            return_display=summary + (f" ({told})" if told else ""),
            facts={
                "matches": self.matches,
                "files": self.files,
                "searched": None if told else searched,
                "complete": not told,
                "timed_out": search.timed_out,
                "skipped": {"binary": self.binary, "huge": search.huge},
            },
        )

    def _notes(self, params: GrepParams, search: ContentSearch, seconds: float) -> list[str]:
        """What was left out and how to get it, as lines."""
        notes: list[str] = []
        if search.timed_out:
            notes.append(
                f"[PARTIAL RESULT: the time limit of {seconds:g} s was reached before all files were searched. "
                "Name a folder as path, a glob, or a simpler pattern.]"
            )
        if self.cut:
            notes.append(
                "[Cut: the result is too long. Search a narrower path or glob, or use names_only or less context.]"
            )
        if self.limited:
            shown = count(self.matches, *(("file", "files") if params.names_only else ("match", "matches")))
            notes.append(
                f"[Limited to {shown}, there are more. Raise limit, search a narrower path or glob, "
                "leave lines out with exclude_pattern, or use names_only or max_matches_per_file.]"
            )
        if self.per_file_reached:
            notes.append(
                f"[At most {params.max_matches_per_file:,} matches of each file were wanted; there may be more.]"
            )
        skipped = [
            f"{count(self.binary, 'binary file')} with matches" if self.binary else "",
            f"{count(search.huge, 'file')} over {MAX_FILE_BYTES // 1_000_000} MB" if search.huge else "",
        ]
        if any(skipped):
            notes.append(f"[Not shown or searched: {', '.join(filter(None, skipped))}.]")
        if search.left_out_some:
            notes.append("[Some files or folders could not be read.]")
        if not self.matches and not search.timed_out:
            notes.append(_HIDDEN_WITHOUT_RULES if params.no_ignore else _HIDDEN)
        return notes


_HIDDEN = (
    f"[Not searched: what ignore files hide, {', '.join(sorted(DEFAULT_EXCLUDED_FOLDERS - {'.git'}))} and files over "
    f"{MAX_FILE_BYTES // 1_000_000} MB. Set no_ignore to search what .gitignore hides and these folders, too.]"
)
_HIDDEN_WITHOUT_RULES = (
    f"[Not searched: what agent-ignore files hide, and files over {MAX_FILE_BYTES // 1_000_000} MB.]"
)


def _where(params: GrepParams, starts: Sequence[Start]) -> str:
    if params.path:
        where = f"within {shown_whole_path(starts[0].location.path)}"
    elif len(starts) == 1:
        where = f"in the workspace directory {shown_whole_path(starts[0].location.path)}"
    else:
        where = f"across {len(starts)} workspace directories"
    return where + (f' (filter: "{one_line(params.glob)}")' if params.glob else "")
