"""Builds the result of a search: matches grouped by file, within all limits, and a list of omissions.

Lines are read by number through the workspace, and look the same as in `read_file`.
"""

from __future__ import annotations

import codecs
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tools.contract.call_options import AbortSignal, Deadline, Limits
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_walk import DEFAULT_EXCLUDED_FOLDERS, count
from tools.files.find.glob_search import glob_hint
from tools.files.notebook_cells import MAX_NOTEBOOK_BYTES, NOTEBOOK_ENDING, cell_finder
from tools.files.path_opener import BLOCK_BYTES, OpenedFile, PathKind
from tools.files.read.file_reader import MAX_WIDE_BYTES
from tools.files.read.line_window import MAX_UTF8_BYTES, STEP, CharRange, LineIndex, Source, line_part
from tools.files.search.ripgrep import MAX_FILE_BYTES, MAX_LINES_OF_FILE, LineMatch, pattern_hint
from tools.files.text_encodings import NUL_MARK, SNIFFED_BYTES, looks_binary, marked_encoding, shown_text
from tools.files.workspace import Location, Workspace
from tools.text.file_names import one_line, shown_whole_path

MAX_DECODED_BYTES = 16 << 20  # larger files in unknown encodings are searched as bytes, and shown as damaged UTF-8
BEFORE_SHARE = 4  # a quarter of the shown part of a long line precedes the match


def is_searchable(file: OpenedFile) -> bool:
    """Return True if a search can show a file: it is not binary, UTF-32, or large UTF-16."""
    head = file.head(SNIFFED_BYTES)
    encoding = marked_encoding(head)
    if encoding is None:
        return not looks_binary(head)
    return not (encoding.codec.startswith("utf-32") or (encoding.is_wide and file.info.st_size > MAX_WIDE_BYTES))


def excerpt(
    file: OpenedFile, match: LineMatch, before: int, after: int, line_chars: int, signal: AbortSignal
) -> Iterator[tuple[int, str, str, bool]]:
    """Yield matching lines with their context. A long line is reduced to the text around its first match.

    Yields the number of each line (from 1), its text, the range of shown characters if it is reduced, and whether it is
    a match.
    """
    size, encoding = file.info.st_size, marked_encoding(file.head(MAX_UTF8_BYTES))
    if size <= MAX_DECODED_BYTES or (encoding and encoding.is_wide):
        decoded = shown_text(file.whole(signal))
        source = Source.from_bytes(decoded.text.encode() if match.is_decoded else decoded.body)
    else:
        source = Source(file.stream, size, len(encoding.bom) if encoding else 0)
    source.separator = b"\n"  # ripgrep counts only LF as a line ending
    columns = dict(zip(match.lines, match.columns, strict=True))

    def numbers() -> Iterator[int]:
        shown_until = 0
        for line in match.lines:
            yield from range(max(shown_until + 1, line - before), line + after + 1)
            shown_until = line + after

    index = LineIndex().extended(source, match.lines[-1] + after, signal)

    @lru_cache(1)
    def starts(step: int) -> list[int]:
        """Return the position after each line ending within one step of the index."""
        data = source.read_at(step * STEP, STEP)
        return [step * STEP + ending.end() for ending in re.finditer(b"\n", data)]

    def chars_before(position: int, column: int) -> int:
        end = position + column - 1
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        blocks = (source.read_at(at, min(BLOCK_BYTES, end - at)) for at in range(position, end, BLOCK_BYTES))
        return sum(len(decoder.decode(block)) for block in blocks)

    for number in numbers():
        signal.raise_if_aborted()
        step = bisect_left(index.counts, number - 1) if number > 1 else 0
        if step == len(index.counts):
            return
        position = starts(step)[number - 2 - (index.counts[step - 1] if step else 0)] if number > 1 else 0
        if position >= source.size:
            return
        column = columns.get(number)
        part = line_part(source, position, CharRange(0, None), line_chars, signal)
        if column is not None and not part.is_end:
            start = chars_before(position, column) - line_chars // BEFORE_SHARE
            start = max(0, min(start, part.length - line_chars) if part.is_counted else start)
            part = line_part(source, position, CharRange(start, None), line_chars, signal) if start else part
        label = "" if not part.start and part.is_end else f"[{part.start}-{part.end}]"
        yield number, part.text.replace("\0", NUL_MARK), label, column is not None


_MEGABYTES = MAX_FILE_BYTES // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentQuery:
    pattern: str
    path: str | None  # the folder or file to search; `None` for all roots
    glob: str | None  # filter for the files to search; with a leading `!`, matching files are not searched
    ignore_case: bool
    fixed_strings: bool
    exclude: str | None  # a regular expression; lines that also match it are dropped
    no_ignore: bool  # whether to search git-ignored files and folders skipped by default
    before: int
    after: int
    names_only: bool
    counts: bool  # whether to show the number of matches per file instead of the matches
    per_file: int | None
    limit: int  # maximum number of matches in total; with `names_only` or `counts`, maximum number of files


class MatchReport:
    """Collects the matches file by file. Paths are absolute if several folders are searched."""

    def __init__(
        self, workspace: Workspace, query: ContentQuery, limits: Limits, deadline: Deadline, starts: Sequence[Location]
    ) -> None:
        self._workspace = workspace
        self._query = query
        self._line_chars = limits.line_chars
        self._chars_left = limits.read_chars
        self._deadline = deadline
        self._starts = starts
        self._blocks: list[str] = []
        self.matches = 0  # number of matching lines shown; with `names_only` or `counts`, number of files
        self._counted = 0  # with `counts`, number of matching lines in all these files
        self._files = 0
        self._binary = 0
        self._notebook_bytes_left = MAX_NOTEBOOK_BYTES  # limited, because parsing takes longer than searching
        self._has_more = False  # whether there are more matches than the limit
        self._is_cut = False  # whether the text was truncated
        self._per_file_reached = False  # whether any file has reached the limit per file
        self._part = ""  # arguments for `read_file` that read the shown part of the first long line
        folder = starts[0].name if len(starts) == 1 else ""
        is_file = len(starts) == 1 and workspace.kind_of(starts[0]) is PathKind.FILE
        self._base = os.path.join(os.path.dirname(folder) if is_file else folder, "")

    @property
    def most_per_file(self) -> int:
        """How many matches per file are needed.

        Without `counts`, at most `limit` + 1: enough to tell whether there are more than `limit`.
        """
        query = self._query
        if query.counts:
            return query.per_file or MAX_LINES_OF_FILE
        return 1 if query.names_only else min(query.per_file or query.limit + 1, query.limit + 1)

    def add(self, folder: Location, match: LineMatch) -> bool:
        """Add the matches of one file. Return True if more files are wanted."""
        query, lines, signal = self._query, match.lines, self._deadline.signal
        location = self._workspace.below(folder, match.path)
        name = shown_whole_path(location.name.removeprefix(self._base))
        try:
            with self._workspace.open_file(location) as file:
                if not is_searchable(file):
                    self._binary += 1
                    return True
                room = query.limit - self.matches
                shown_match = match if room and query.counts else match.only(room)
                self._has_more = len(shown_match.lines) < len(match.lines)
                if not shown_match.lines:
                    return False
                shows_lines = not (query.names_only or query.counts)
                block = [f"File: {name}" if shows_lines else name]
                if query.counts:
                    block[0] += f": {count(len(lines), 'match', 'matches')}"
                self._chars_left -= len(block[0]) + len("\n---\n")
                if self._chars_left < 0 and self._blocks:
                    self._is_cut = True
                    return False
                shown_count = 1
                if shows_lines:
                    shown_count, columns = 0, dict(zip(shown_match.lines, shown_match.columns, strict=True))
                    cell_at, size = None, file.info.st_size
                    if location.path.lower().endswith(NOTEBOOK_ENDING) and size <= self._notebook_bytes_left:
                        self._notebook_bytes_left -= size
                        cell_at = cell_finder(file.whole(signal))
                    excerpts = excerpt(file, shown_match, query.before, query.after, self._line_chars, signal)
                    for number, line, part, is_match in excerpts:
                        cell = cell_at(number, columns.get(number)) if cell_at is not None else ""
                        mark = f"{f' (cell {cell})' if cell else ''}{':' if is_match else '-'}"
                        text = f"L{number}{part}{mark} {line}"
                        if part and not self._part:
                            self._part = f"offset={number - 1} and chars='{part[1:-1]}' for the first such line"
                        self._chars_left -= len(text) + 1
                        if self._chars_left < 0 and (self._blocks or shown_count):
                            self._is_cut = True
                            break
                        block.append(text)
                        shown_count += is_match
                    block.append("---")
        except OSError:
            return True
        except ToolError as error:
            if error.code in (ToolErrorType.CANCELLED, ToolErrorType.RESOURCES_EXHAUSTED):
                raise
            return True  # the file has been removed or replaced since the search
        if shown_count:
            self._blocks.append("\n".join(block))
            self.matches += shown_count
            self._counted += len(lines)
            self._files += 1
            self._per_file_reached = self._per_file_reached or (not query.names_only and len(lines) == query.per_file)
        return not (self._has_more or self._is_cut)

    def result(self, *, searched_count: int, timed_out: bool, huge: int, notes: Sequence[str]) -> ToolResult:
        """Build the result.

        `searched_count` is the number of files searched, if the search was complete. `huge` is the number of files that
        the call named but that are too large to search.
        """
        query, first = self._query, shown_whole_path(self._starts[0].name)
        if query.path:
            location_text = f"within {first}"
        elif len(self._starts) == 1:
            location_text = f"in the workspace directory {first}"
        else:
            location_text = f"across {len(self._starts)} workspace directories"
        description = f'for pattern "{one_line(query.pattern)}" {location_text}'
        description += f' (filter: "{one_line(query.glob)}")' if query.glob else ""
        states = {"limited": self._has_more, "truncated": self._is_cut, "timed out": timed_out}
        incomplete = ", ".join(name for name, is_set in states.items() if is_set)
        by_file = query.names_only or query.counts
        noun = ("file with matches", "files with matches") if by_file else ("match", "matches")
        if self.matches:
            number = ("at least " if incomplete else "") + count(self.matches, *noun)
            total = f" ({count(self._counted, 'match', 'matches')})" if query.counts else ""
            text = [f"Found {number}{total} {description}:", "---", *self._blocks]
        elif incomplete:
            text = [f"No matches found {description}."]
        else:
            text = [f"No matches found {description}; {count(searched_count, 'file')} searched."]
            if query.glob and not searched_count:
                hint = glob_hint(query.glob)
            else:
                hint = pattern_hint(query.pattern, fixed=query.fixed_strings)
            text += [hint] if hint else []

        if timed_out:
            text.append(
                f"[PARTIAL RESULT: the time limit of {self._deadline.seconds:g} s was reached before all files were "
                "searched. Set path to a folder, or give a glob or a simpler pattern.]"
            )
        if self._is_cut:
            shorter_form = "" if query.names_only else ", or use names_only" + " or less context" * (not query.counts)
            text.append(f"[Cut: the result is too long. Search a narrower path or glob{shorter_form}.]")
        if self._has_more:
            shown_total = count(self.matches, *(("file", "files") if by_file else noun))
            text.append(
                f"[Limited to {shown_total}; there are more. Raise limit, search a narrower path or glob, "
                + ("or exclude " if by_file else "exclude ")
                + "lines with exclude_pattern"
                + (".]" if by_file else ", or use names_only or max_matches_per_file.]")
            )
        if self._per_file_reached:
            text.append(f"[Each file is shown with at most {query.per_file:,} of its matches; there may be more.]")
        omissions = [f"{count(self._binary, 'binary file')} with matches"] if self._binary else []
        omissions += [f"{count(huge, 'file')} over {_MEGABYTES} MB"] if huge else []
        if omissions:
            text.append(f"[Not shown or searched: {', '.join(omissions)}.]")
        if self._part:
            text.append(
                f"[Lines longer than {self._line_chars:,} characters are shown only in part: in a matching line, the "
                f"text around its first match. To see more, use read_file with {self._part}.]"
            )
        text += [f"[{note}]" for note in notes]
        if not self.matches and not timed_out and query.no_ignore:
            text.append(
                f"[Not searched: files hidden from agents, symlinks, binary files, and files over {_MEGABYTES} MB.]"
            )
        elif not self.matches and not timed_out:
            folders = ", ".join(sorted(DEFAULT_EXCLUDED_FOLDERS - {".git"}))
            text.append(
                f"[Not searched: ignored files, symlinks, {folders}, binary files (including UTF-32) and files over "
                f"{_MEGABYTES} MB. Set no_ignore to include these folders, and files hidden by .gitignore.]"
            )
        summary = f"Found {count(self.matches, *noun)}" if self.matches else "No matches found"
        return ToolResult(
            llm_content="\n".join(text),
            return_display=summary + (f" ({incomplete})" if incomplete else ""),
            facts={
                "matches": self.matches,
                "files": self._files,
                "searched": None if incomplete else searched_count,
                "complete": not incomplete,
                "timed_out": timed_out,
                "skipped": {"binary": self._binary, "huge": huge},
            },
        )
