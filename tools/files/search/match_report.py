"""The result of a search: matches grouped by file, read through the workspace, within all limits; what is left out."""

from __future__ import annotations

import codecs
import io
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tools.call.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import AbortSignal
from tools.contract.names_on_one_line import one_line, shown_whole_path
from tools.contract.results import ToolResult
from tools.files.find.walk import DEFAULT_EXCLUDED_FOLDERS, Start, count
from tools.files.opener import BLOCK_BYTES, OpenedFile
from tools.files.read.line_window import CUT_MARK
from tools.files.search.content_search import ContentSearch, FileMatch
from tools.files.search.ripgrep import MAX_FILE_BYTES
from tools.files.text_encodings import SNIFFED_BYTES, Encoding, looks_binary, marked_encoding

if TYPE_CHECKING:
    from tools.builtin.grep_search import GrepParams


MAX_LINE_BYTES = 1 << 16
"""More of one line is never kept."""

WHOLE_BYTES = 1 << 20
"""A smaller file is read at once."""

CHECK_EVERY = 10_000
"""Lines between two looks at the signal."""


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """A line of a file.

    Args:
        number: From 1.
        text: Without its line ending, cut where it is very long.
        is_match: Whether it matched, or is a neighbour.
    """

    number: int
    text: str
    is_match: bool


def is_searchable(opened: OpenedFile) -> bool:
    """Whether a file is text that a search can show: no binary data, no UTF-32. The file is at its beginning again."""
    head = opened.head(SNIFFED_BYTES)
    encoding = marked_encoding(head)
    return not looks_binary(head) if encoding is None else not encoding.codec.startswith("utf-32")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """How many lines before and after a match are shown with it."""

    before: int = 0
    after: int = 0


def excerpt(
    opened: OpenedFile, lines: Sequence[int], neighbours: Neighbours, line_chars: int, signal: AbortSignal
) -> Iterator[ExcerptLine]:
    """The lines with these numbers, and so many before and after each.

    Args:
        opened: A searchable file at its beginning.
        lines: Line numbers, rising.
        neighbours: What is shown beside each of them.
        line_chars: Where a line is cut.
        signal: Looked at now and then.
    """
    for number, text in _texts(opened, _numbers(lines, neighbours), signal):
        shown = text if len(text) <= line_chars else f"{text[:line_chars]}{CUT_MARK}"
        yield ExcerptLine(number, shown, is_match=_is_in(lines, number))


def _numbers(lines: Sequence[int], neighbours: Neighbours) -> Iterator[int]:
    """The numbers of the lines to be shown, rising."""
    shown_until = 0
    for line in lines:
        yield from range(max(shown_until + 1, line - neighbours.before), line + neighbours.after + 1)
        shown_until = line + neighbours.after


def _is_in(lines: Sequence[int], number: int) -> bool:
    at = bisect_left(lines, number)
    return at < len(lines) and lines[at] == number


def _texts(opened: OpenedFile, numbers: Iterator[int], signal: AbortSignal) -> Iterator[tuple[int, str]]:
    """The texts of some lines; a line after the end is left out."""
    encoding = marked_encoding(opened.head(4))
    if opened.info.st_size <= WHOLE_BYTES and not (encoding and encoding.is_wide):
        # What may be read at most is set aside first, and where the size is known that is a waste.
        content = opened.stream.read(opened.info.st_size + 1 if opened.info.st_size else WHOLE_BYTES)
        all_lines = content[len(encoding.bom) if encoding else 0 :].removesuffix(b"\n").split(b"\n")
        for number in numbers:
            if number > len(all_lines):
                return
            yield number, all_lines[number - 1][:MAX_LINE_BYTES].rstrip(b"\r").decode("utf-8", "replace")
        return
    coming = next(numbers, None)
    for number, text in enumerate(_lines(opened, encoding), 1):
        if number % CHECK_EVERY == 0:
            signal.raise_if_aborted()
        if coming is None:
            return
        if number == coming:
            yield number, text
            coming = next(numbers, None)


def _lines(opened: OpenedFile, encoding: Encoding | None) -> Iterator[str]:
    if encoding is not None and encoding.is_wide:
        yield from _wide_lines(opened, encoding)
        return
    stream = io.BufferedReader(cast("io.RawIOBase", opened.stream), MAX_LINE_BYTES)
    try:
        if encoding is not None:
            stream.read(len(encoding.bom))
        while line := stream.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                _skip_line(stream.readline)
            yield line.rstrip(b"\r\n").decode("utf-8", "replace")
    finally:
        stream.detach()


def _wide_lines(opened: OpenedFile, encoding: Encoding) -> Iterator[str]:
    opened.stream.seek(len(encoding.bom))
    blocks = iter(lambda: opened.stream.read(BLOCK_BYTES), b"")
    line = ""
    for text in codecs.iterdecode(blocks, encoding.codec, "replace"):
        first, *others = text.split("\n")
        line = (line + first)[:MAX_LINE_BYTES]
        for other in others:
            yield line.removesuffix("\r")
            line = other[:MAX_LINE_BYTES]
    if line:
        yield line.removesuffix("\r")


def _skip_line(read_line: Callable[[int], bytes]) -> None:
    """Go behind the end of a line of which only the beginning was kept."""
    while (rest := read_line(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


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
