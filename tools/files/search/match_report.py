"""The result of a search: matches grouped by file, read through the workspace, within all limits; what is left out.

Lines are read by their numbers, through the opener; no more of a file is held than is shown.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.file_names_in_text import one_line, shown_whole_path
from tools.contract.limits import AbortSignal, Limits
from tools.contract.results import ToolResult
from tools.files.find.patterns import glob_hint
from tools.files.find.walk import DEFAULT_EXCLUDED_FOLDERS, count
from tools.files.opener import BLOCK_BYTES, OpenedFile
from tools.files.read.line_window import CUT_MARK
from tools.files.search.pattern_hints import pattern_hint
from tools.files.search.ripgrep import MAX_FILE_BYTES, Match
from tools.files.text_encodings import SNIFFED_BYTES, Encoding, looks_binary, marked_encoding
from tools.files.workspace import Location, Workspace

MAX_LINE_BYTES = 1 << 16  # more of one line is never kept
WHOLE_BYTES = 1 << 20  # a smaller file is read at once
CHECK_EVERY = 10_000  # lines between two looks at the signal


def is_searchable(opened: OpenedFile) -> bool:
    """Whether a file is text that a search can show: no binary data, no UTF-32. The file is at its beginning again."""
    head = opened.head(SNIFFED_BYTES)
    encoding = marked_encoding(head)
    return not looks_binary(head) if encoding is None else not encoding.codec.startswith("utf-32")


class ExcerptLine(NamedTuple):
    number: int  # from 1
    text: str  # without its line ending, cut where it is very long
    is_match: bool  # whether it matched, or is a neighbour


def excerpt(
    opened: OpenedFile, lines: Sequence[int], before: int, after: int, line_chars: int, signal: AbortSignal
) -> Iterator[ExcerptLine]:
    """The lines with these numbers, which rise, and so many before and after each, cut to `line_chars`."""
    matching = frozenset(lines)

    def numbers() -> Iterator[int]:
        shown_until = 0
        for line in lines:
            yield from range(max(shown_until + 1, line - before), line + after + 1)
            shown_until = line + after

    for number, text in _texts(opened, numbers(), signal):
        shown = text if len(text) <= line_chars else f"{text[:line_chars]}{CUT_MARK}"
        yield ExcerptLine(number, shown, number in matching)


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
    """All lines of a file, of each at most its beginning."""
    if encoding is not None and encoding.is_wide:
        opened.stream.seek(len(encoding.bom))
        blocks = iter(lambda: opened.stream.read(BLOCK_BYTES), b"")
        wide = ""
        for text in codecs.iterdecode(blocks, encoding.codec, "replace"):
            first, *others = text.split("\n")
            wide = (wide + first)[:MAX_LINE_BYTES]
            for other in others:
                yield wide.removesuffix("\r")
                wide = other[:MAX_LINE_BYTES]
        if wide:
            yield wide.removesuffix("\r")
        return
    stream = io.BufferedReader(cast("io.RawIOBase", opened.stream), MAX_LINE_BYTES)
    try:
        if encoding is not None:
            stream.read(len(encoding.bom))
        while line := stream.readline(MAX_LINE_BYTES):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES)
            yield line.rstrip(b"\r\n").decode("utf-8", "replace")
    finally:
        stream.detach()


_MEGABYTES = MAX_FILE_BYTES // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentQuery:
    pattern: str
    path: str | None  # the folder or file to search, or `None` for all roots
    glob: str | None  # only files that fit this, or with a `!` before it, those that do not
    ignore_case: bool
    fixed_strings: bool
    exclude: str | None  # lines that match this regular expression as well are left out
    no_ignore: bool  # whether to search what the rules of git hide, and folders left out by default
    before: int
    after: int
    names_only: bool
    per_file: int | None
    limit: int  # most matches, or files with `names_only`, in all


class MatchReport:
    """Collects the matches of one file after the other; paths are absolute where several folders are searched."""

    def __init__(
        self, workspace: Workspace, query: ContentQuery, limits: Limits, signal: AbortSignal, starts: Sequence[Location]
    ) -> None:
        self._workspace = workspace
        self._query = query
        self._line_chars = limits.line_chars
        self._chars_left = limits.read_chars
        self._signal = signal
        self._starts = starts
        self._blocks: list[str] = []
        self.matches = 0  # matching lines shown; with `names_only` files
        self._files = 0
        self._binary = 0
        self._has_more = False  # there are more matches than were wanted
        self._is_cut = False  # the text became too long
        self._per_file_reached = False  # a file holds as many matches as were wanted of each

    @property
    def most_per_file(self) -> int:
        """Matches that have to be known of each file: one more than can be shown, to tell that there are more."""
        query = self._query
        return 1 if query.names_only else min(query.per_file or query.limit + 1, query.limit + 1)

    def add(self, folder: Location, match: Match) -> bool:
        """Add the matches of one file; whether more are wanted."""
        query, lines = self._query, match.lines
        location = self._workspace.below(folder, match.path)
        name = shown_whole_path(location.name if len(self._starts) > 1 else match.path)
        try:
            with self._workspace.open_file(location) as opened:
                if not is_searchable(opened):
                    self._binary += 1
                    return True
                wanted = lines[: query.limit - self.matches]
                self._has_more = len(wanted) < len(lines)
                if not wanted:
                    return False
                block = [name] if query.names_only else [f"File: {name}"]
                self._chars_left -= len(block[0]) + len("\n---\n")
                if self._chars_left < 0 and self._blocks:
                    self._is_cut = True
                    return False
                shown = 1
                if not query.names_only:
                    shown = 0
                    for line in excerpt(opened, wanted, query.before, query.after, self._line_chars, self._signal):
                        text = f"L{line.number}{':' if line.is_match else '-'} {line.text}"
                        self._chars_left -= len(text) + 1
                        if self._chars_left < 0 and (self._blocks or shown):
                            self._is_cut = True
                            break
                        block.append(text)
                        shown += line.is_match
                    block.append("---")
        except OSError:
            return True
        except ToolError as error:
            if error.code in (ToolErrorType.CANCELLED, ToolErrorType.RESOURCES_EXHAUSTED):
                raise
            return True  # it has gone meanwhile, or is not what was searched
        if shown:
            self._blocks.append("\n".join(block))
            self.matches += shown
            self._files += 1
            self._per_file_reached = self._per_file_reached or len(lines) == query.per_file
        return not (self._has_more or self._is_cut)

    def result(self, *, searched: int, timed_out: bool, seconds: float, huge: int, left_out_some: bool) -> ToolResult:
        """What the call returns; `searched` counts if the search came to its end, `huge` are named files left out."""
        query, first = self._query, shown_whole_path(self._starts[0].name)
        if query.path:
            where = f"within {first}"
        elif len(self._starts) == 1:
            where = f"in the workspace directory {first}"
        else:
            where = f"across {len(self._starts)} workspace directories"
        what = f'for pattern "{one_line(query.pattern)}" {where}'
        what += f' (filter: "{one_line(query.glob)}")' if query.glob else ""
        states = {"limited": self._has_more, "truncated": self._is_cut, "timed out": timed_out}
        incomplete = ", ".join(name for name, is_so in states.items() if is_so)
        noun = ("file with matches", "files with matches") if query.names_only else ("match", "matches")
        if self.matches:
            number = ("at least " if incomplete else "") + count(self.matches, *noun)
            text = [f"Found {number} {what}:", "---", *self._blocks]
        elif incomplete:
            text = [f"No matches found {what}."]
        else:
            text = [f"No matches found {what}; {count(searched, 'file')} searched."]
            if query.glob and not searched:
                hint = glob_hint(query.glob)
            else:
                hint = pattern_hint(query.pattern, fixed=query.fixed_strings)
            text += [hint] if hint else []

        if timed_out:
            text.append(
                f"[PARTIAL RESULT: the time limit of {seconds:g} s was reached before all files were searched. "
                "Name a folder as path, a glob, or a simpler pattern.]"
            )
        if self._is_cut:
            text.append(
                "[Cut: the result is too long. Search a narrower path or glob, or use names_only or less context.]"
            )
        if self._has_more:
            shown = count(self.matches, *(("file", "files") if query.names_only else noun))
            text.append(
                f"[Limited to {shown}, there are more. Raise limit, search a narrower path or glob, "
                "leave lines out with exclude_pattern, or use names_only or max_matches_per_file.]"
            )
        if self._per_file_reached:
            text.append(f"[At most {query.per_file:,} matches of each file were wanted; there may be more.]")
        skipped = [f"{count(self._binary, 'binary file')} with matches"] if self._binary else []
        skipped += [f"{count(huge, 'file')} over {_MEGABYTES} MB"] if huge else []
        if skipped:
            text.append(f"[Not shown or searched: {', '.join(skipped)}.]")
        if left_out_some:
            text.append("[Some files or folders could not be read.]")
        if not self.matches and not timed_out and query.no_ignore:
            text.append(f"[Not searched: what agent-ignore files hide, and files over {_MEGABYTES} MB.]")
        elif not self.matches and not timed_out:
            folders = ", ".join(sorted(DEFAULT_EXCLUDED_FOLDERS - {".git"}))
            text.append(
                f"[Not searched: what ignore files hide, {folders} and files over {_MEGABYTES} MB. Set no_ignore to "
                "search what .gitignore hides and these folders, too.]"
            )
        summary = f"Found {count(self.matches, *noun)}" if self.matches else "No matches found"
        return ToolResult(
            llm_content="\n".join(text),
            return_display=summary + (f" ({incomplete})" if incomplete else ""),
            facts={
                "matches": self.matches,
                "files": self._files,
                "searched": None if incomplete else searched,
                "complete": not incomplete,
                "timed_out": timed_out,
                "skipped": {"binary": self._binary, "huge": huge},
            },
        )
