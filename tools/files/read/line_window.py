"""Selects lines of a file for the model, and adds a header if anything is left out or replaced."""

from __future__ import annotations

import codecs
import re
import threading
import time
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO, Self

from tools.contract.call_options import AbortSignal, Limits
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import Part, TextPart
from tools.files.path_opener import FileIdentity
from tools.files.read.media_files import FileKind
from tools.files.text_encodings import NUL_MARK, REPLACEMENT, UNKNOWN, Encoding, eol_style

BLOCK = 1 << 20  # number of bytes per read while lines are counted
# Maximum bytes that one call reads to find a line or the end. Reading this many takes half a second. Counts are cached
SOUGHT_BYTES = 1 << 29
STEP = 1 << 16  # bytes between cached counts; only one such step is searched for the beginning of a line
MAX_INDEXES = 64  # maximum number of files with cached line counts, which take 128 bytes per MB of file
# A file that has changed within this time may change again with the same timestamp, so its counts are not cached
SETTLED_NS = 100_000_000
TAKEN_BYTES = 1 << 16  # size of one read while extracting lines; a window is rarely larger
# If the rest of a file is larger, it is not read just to count its lines. Reading this many bytes takes about 10 ms
COUNTED_BYTES = 16 << 20
CUT_MARK = "... [truncated]"  # marks the end of a truncated line (as in Qwen Code and Gemini CLI)
MAX_UTF8_BYTES = 4
_CHAR_RANGE = re.compile(r"\s*(\d{1,12})\s*(?:-\s*(\d{1,12})?\s*)?")


class Source:
    """Random access to a file's bytes (without a byte order mark), and the file's line separator."""

    def __init__(self, stream: BinaryIO, size: int, bom_length: int = 0) -> None:
        self._stream = stream
        self._bom_length = bom_length
        self.size = size - bom_length
        head = self.read_at(0, STEP)
        if b"\n" not in head:
            head = self.read_at(0, BLOCK)
        # Files from old Macs have CR instead of LF.
        self.separator = b"\r" if b"\n" not in head and b"\r" in head else b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Source:
        return cls(BytesIO(data), len(data))

    def read_at(self, position: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end. One unbuffered read may return fewer, so reads are repeated."""
        self._stream.seek(position + self._bom_length)
        data = self._stream.read(length)
        while len(data) < length and (block := self._stream.read(length - len(data))):
            data += block
        return data

    def position_from_end(self, lines: int, signal: AbortSignal) -> int:
        """Return the start of the last `lines` lines, found by reading backwards."""
        end = self.size
        if self.read_at(end - 1, 1) == self.separator:
            end -= 1
        missing_lines = lines
        while end > 0:
            signal.raise_if_aborted()
            start = max(0, end - BLOCK)
            block = self.read_at(start, end - start)
            endings = block.count(self.separator)
            if endings >= missing_lines:
                return start + len(block.rsplit(self.separator, missing_lines)[0]) + 1
            missing_lines -= endings
            end = start
            if self.size - end >= SOUGHT_BYTES:
                progress = f"lines that start within that distance: {lines - missing_lines:,}"
                raise _too_far(f"line {lines:,} from the end", "the end of the file", progress)
        return 0


@dataclass(frozen=True, slots=True)
class LineIndex:
    """The number of line endings from the beginning of the file to the end of each step."""

    counts: array[int] = field(default_factory=lambda: array("Q"))  # running totals; never modified
    total: int | None = None  # the number of lines in the file, if the last step reaches its end

    @property
    def ending_count(self) -> int:
        return self.counts[-1] if self.counts else 0

    def extended(self, source: Source, endings: int | None, signal: AbortSignal) -> LineIndex:
        """Continue counting until `endings` line endings are counted, the file ends, or `SOUGHT_BYTES` have been read.

        Returns the resulting index; this index is not changed. If `endings` is `None`, the number of line endings is
        not limited.
        """
        if self.total is not None or (endings is not None and self.ending_count >= endings):
            return self
        counts, running_total, last = self.counts[:], self.ending_count, b""
        max_steps = len(counts) + SOUGHT_BYTES // STEP
        is_complete = len(counts) * STEP >= source.size
        while not is_complete and len(counts) < max_steps and (endings is None or running_total < endings):
            signal.raise_if_aborted()
            block = source.read_at(len(counts) * STEP, BLOCK)
            for start in range(0, len(block), STEP):
                running_total += block.count(source.separator, start, start + STEP)
                counts.append(running_total)
            last = block[-1:]
            # If the file was truncated after it was opened, reading ends early.
            is_complete = len(block) < BLOCK or len(counts) * STEP >= source.size
        if is_complete and not last and source.size:
            last = source.read_at(source.size - 1, 1)
        return LineIndex(counts, running_total + (last not in (b"", source.separator)) if is_complete else None)

    def position_of(self, line: int, source: Source) -> int | None:
        """Return where a line begins, or `None` past the end. Raises `file_too_large` past the counted lines."""
        if line == 0:
            return 0
        if self.ending_count < line:
            if self.total is not None:
                return None
            progress = (
                f"lines counted so far: {self.ending_count:,} (if the file does not change, "
                "repeating the call continues the count)"
            )
            raise _too_far(f"line {line + 1:,}", "the beginning of the file", progress)
        number = bisect_left(self.counts, line)
        endings_before = self.counts[number - 1] if number else 0
        step = source.read_at(number * STEP, STEP)
        tail = step.split(source.separator, line - endings_before)[-1]
        return number * STEP + len(step) - len(tail)


_indexes: OrderedDict[FileIdentity, LineIndex] = OrderedDict()
_indexes_guard = threading.Lock()
_OFFSET_ADVICE = "Use an offset near the beginning, or a negative one near the end."


def _too_far(target: str, side: str, progress: str, advice: str = _OFFSET_ADVICE) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_TOO_LARGE,
        f"Nothing was read: {target} is more than {SOUGHT_BYTES:,} bytes from {side}, and one call does not scan more "
        f"than that; {progress}. {advice}",
    )


@dataclass(frozen=True, slots=True)
class CharRange:
    """Characters of one line, counted from 0."""

    start: int
    end: int | None  # exclusive end; `None` for the end of the line

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `2000-4000`, or `2000-` or `2000` for the rest of the line. Raises a `ValueError` for other text."""
        match = _CHAR_RANGE.fullmatch(text)
        if match is None:
            raise ValueError
        chars = cls(int(match[1]), int(match[2]) if match[2] else None)
        if chars.end is not None and chars.end <= chars.start:
            raise ValueError
        return chars


@dataclass(frozen=True, slots=True)
class LineRequest:
    offset: int  # the first line, from 0; a negative offset counts from the end
    limit: int
    limits: Limits  # `line_chars` truncates long lines; `read_chars` ends the window before a line that does not fit
    signal: AbortSignal  # checked for cancellation between blocks
    chars: CharRange | None = None  # characters to select from the line at the offset


@dataclass(frozen=True, slots=True)
class LineWindow:
    text: str  # the lines with their endings; the last one has an ending only if it ends the file
    first: int  # number of the first line, from 0; negative (counted from the end) if lines were not counted
    count: int  # number of lines; 0 if the window is past the end
    total: int | None  # number of lines in the file, or `None` if not counted
    at_least: int  # the known minimum number of lines in the file
    reaches_end: bool
    first_truncated: int | None  # index of the first truncated line, from 0
    is_decodable: bool  # whether the lines are valid UTF-8
    chars: int  # number of characters of `text` that come from the file
    part: LinePart | None = None  # the part of a line, if one was requested


def window(source: Source, request: LineRequest, identity: FileIdentity | None = None) -> LineWindow:
    """Return the requested lines, within the character limits.

    The file must be in UTF-8 or another superset of ASCII. Line counts are cached by `identity`, if given.
    Raises `file_too_large` if the first line is more than `SOUGHT_BYTES` away from where counting starts.
    """
    offset, signal = request.offset, request.signal
    with _indexes_guard:
        index = (_indexes.get(identity) if identity else None) or LineIndex()
    index = index.extended(source, max(0, offset), signal)
    if source.size - len(index.counts) * STEP <= COUNTED_BYTES:
        index = index.extended(source, None, signal)
    if identity is not None and time.time_ns() - max(identity.mtime_ns, identity.ctime_ns) >= SETTLED_NS:
        with _indexes_guard:
            cached_index = _indexes.get(identity)
            if cached_index is None or len(cached_index.counts) <= len(index.counts):
                _indexes[identity] = index
                _indexes.move_to_end(identity)
                if len(_indexes) > MAX_INDEXES:
                    _indexes.popitem(last=False)
    if offset < 0 and index.total is not None:
        offset = max(0, index.total + offset)
    if offset < 0:
        position = source.position_from_end(-offset, signal)
        offset = 0 if position == 0 else offset
    else:
        position = index.position_of(offset, source)
    if position is None or position >= source.size:
        return LineWindow("", offset, 0, index.total, index.ending_count, True, None, True, 0)
    if request.chars is not None:
        part = line_part(source, position, request.chars, request.limits.read_chars, signal)
        at_least = max(index.ending_count, offset + 1) if offset >= 0 else -offset
        return LineWindow(
            part.text, offset, 1, index.total, at_least, part.is_end, None, part.is_decodable, len(part.text), part
        )
    lines = _Lines(source.separator, request)
    reaches_end = lines.take(source, position)
    text, total = "".join(lines.texts), index.total
    if total is None and reaches_end and offset >= 0:
        total = offset + lines.count
    at_least = max(index.ending_count, offset + lines.count + (not reaches_end)) if offset >= 0 else -offset
    if not reaches_end:
        separator = source.separator.decode()
        is_ended = text.endswith(separator)
        text = text.removesuffix(separator)
        text = text.removesuffix("\r") if is_ended and separator == "\n" else text
    return LineWindow(
        text, offset, lines.count, total, at_least, reaches_end, lines.first_truncated, lines.is_decodable, lines.chars
    )


@dataclass(frozen=True, slots=True)
class LinePart:
    """A part of one line, without its ending."""

    text: str
    start: int  # number of the first character, from 0
    length: int  # number of characters of the line that were counted
    is_counted: bool  # whether all characters were counted
    is_decodable: bool

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def is_end(self) -> bool:
        """True if the part includes the end of the line."""
        return self.is_counted and self.end >= self.length


def line_part(source: Source, position: int, chars: CharRange, max_chars: int, signal: AbortSignal) -> LinePart:
    """Return at most `max_chars` characters of the line that begins at a position.

    The line is decoded from its beginning, like a line shown in full. Characters after the part are counted if that is
    quick. Raises `file_too_large` if the part is too far from the beginning.
    """
    end = chars.start + max_chars if chars.end is None else min(chars.end, chars.start + max_chars)
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts: list[str] = []
    length, first, last = 0, position, ""
    is_ended = False
    while not is_ended and not (length >= end and position - first >= COUNTED_BYTES):
        signal.raise_if_aborted()
        if length <= chars.start and position - first >= SOUGHT_BYTES:
            raise _too_far(
                f"character {chars.start:,}",
                "the beginning of the line",
                f"characters counted: {length:,}",
                "Use a chars range nearer to the beginning of the line.",
            )
        block = source.read_at(position, TAKEN_BYTES if length >= chars.start else BLOCK)
        ending_position = block.find(source.separator)
        is_ended = not block or ending_position >= 0
        data = block if ending_position < 0 else block[:ending_position]
        try:
            text = decoder.decode(data, is_ended)
        except UnicodeDecodeError:
            decoder.errors = "replace"
            text = decoder.decode(data, is_ended)
        texts.append(text[max(0, chars.start - length) : max(0, end - length)])
        length += len(text)
        position += len(block)
        last = text[-1:] or last
        if ending_position >= 0 and source.separator == b"\n" and last == "\r":
            length -= 1  # the carriage return belongs to the line ending
    part_text = "".join(texts)[: max(0, length - chars.start)]
    return LinePart(part_text, chars.start, length, is_ended, decoder.errors == "strict")


class _Lines:
    """Collects lines up to the limits of the request. Keeps only the part of each line that is shown."""

    def __init__(self, separator: bytes, request: LineRequest) -> None:
        self._separator = separator
        self._request = request
        self._line_chars = max(1, min(request.limits.line_chars, request.limits.read_chars))
        self._room = request.limits.read_chars
        self.texts: list[str] = []
        self.count = 0
        self.chars = 0
        self.first_truncated: int | None = None
        self.is_decodable = True

    def take(self, source: Source, position: int) -> bool:
        """Collect lines, starting at `position`, where a line begins. Return True at the end of the file."""
        most_bytes = (self._line_chars + 1) * MAX_UTF8_BYTES
        last_position = position + SOUGHT_BYTES
        line = last = b""
        length = 0
        while True:
            self._request.signal.raise_if_aborted()
            block = source.read_at(position, TAKEN_BYTES)
            if not block:
                return not length or self._add(line, length, b"")
            if position >= last_position:
                # This line is truncated anyway, and only its end is still being searched for.
                self._add(line, length, b"")
                return False
            start = 0
            while start < len(block):
                if self.count >= self._request.limit:
                    return False
                ending_position = block.find(self._separator, start)
                end = len(block) if ending_position < 0 else ending_position
                line += block[start : min(end, start + most_bytes - len(line))]
                length += end - start
                last = block[end - 1 : end] if end > start else last
                start = end
                if ending_position >= 0:
                    has_return = self._separator == b"\n" and last == b"\r"
                    ending = b"\r\n" if has_return else self._separator
                    if not self._add(line.removesuffix(b"\r") if has_return else line, length - has_return, ending):
                        return False
                    line = last = b""
                    length, start = 0, end + 1
            position += len(block)

    def _add(self, line: bytes, length: int, ending: bytes) -> bool:
        """Add a line. Return False if there is no room for it."""
        is_whole = length == len(line)
        try:
            # A character that is incomplete at the end of the kept bytes comes after the shown part.
            text = line.decode() if is_whole else codecs.getincrementaldecoder("utf-8")().decode(line)
        except UnicodeDecodeError:
            self.is_decodable = False
            text = line.decode("utf-8", "replace")
        is_cut = not is_whole or len(text) > self._line_chars
        text = text[: self._line_chars]
        chars = len(text) + len(ending)
        if self.count and chars > self._room:
            return False
        self._room -= chars
        self.chars += chars
        if is_cut and self.first_truncated is None:
            self.first_truncated = self.count
        self.count += 1
        self.texts.append(text + (CUT_MARK if is_cut else "") + ending.decode())
        return True


@dataclass(slots=True)
class Reading:
    """The result of one read. Treat it as immutable; a frozen class would triple the cost of creating one."""

    # The content for the model, never empty. Text is one `TextPart`: a header if anything is left out or replaced, and
    # the lines of the file. Notes may follow as further parts.
    parts: tuple[Part, ...]
    kind: FileKind  # how the file is shown
    # Number of the first line shown, from 1; 0 if none is shown (empty files, media). If the file is too large to count
    # its lines, the number is negative and counts from the end (-1 is the last line).
    start: int = 0
    end: int = 0  # number of the last line shown, counted like `start`
    # Lines in the file, or `None` if unknown or not text. A final line ending does not start another line.
    total: int | None = None
    truncated: bool = False  # whether something after the shown part was left out; see `next_offset` and `next_char`
    shortened: bool = False  # whether at least one line was truncated at `Limits.line_chars`
    chars: int = 0  # number of characters of the file's text in `parts`, without the header; 0 for media
    # Name of the encoding, `unknown-8bit` if unknown, `None` for media and binary files
    encoding: str | None = None
    # Hex digest of the whole content; `None` for media and PDFs, and for most files above 8 MB
    sha256: str | None = None
    # `lf`, `crlf`, `cr` or `mixed`, based on the examined part; `None` without line endings
    eol: str | None = None
    next_offset: int | None = None  # the `offset` after `end`, or `None` if nothing follows
    next_char: int | None = None  # where `chars` continues if a part of a line was requested
    pages: int | None = None  # number of pages of a PDF that is shown as text, else `None`
    is_guess: bool = False  # whether `encoding` is a guess; the text says so
    is_text: bool = True  # whether the file is shown as text (a PDF may be, too)
    content: bytes | None = None  # the whole file; `None` for media, PDFs and most files above 8 MB


def reading_of(lines: LineWindow, encoding: Encoding, limits: Limits, notes: Sequence[str] = ()) -> Reading:
    """Return the `Reading` for a window of lines. The notes are added to its header."""
    is_known = lines.is_decodable and encoding.is_known
    start = (lines.first + 1 if lines.first >= 0 else lines.first) if lines.count else 0
    end = start + lines.count - 1 if lines.count else 0
    next_offset = None if lines.reaches_end or lines.part is not None else lines.first + lines.count
    next_char, cut = None, lines.first_truncated
    header: list[str] = []
    text = lines.text.replace("\0", NUL_MARK)
    if not lines.count and lines.total == 0:
        text = "" if lines.first <= 0 else f"The file is empty; offset {lines.first} is past its end."
    elif not lines.count:
        text = (
            f"The file has {lines.total} {'line' if lines.total == 1 else 'lines'}; offset {lines.first} is past its "
            f"end. The last line is at offset {(lines.total or 1) - 1} (or -1)."
        )
    else:
        total = f"{lines.total}" if lines.total is not None else f"at least {lines.at_least}"
        if (part := lines.part) is not None:
            length = f"{part.length}" if part.is_counted else f"at least {part.length}"
            shown_range = f"characters {part.start}-{part.end} of {length}" if text else f"none of {length} characters"
            header.append(f"Showing {shown_range} in line {start}{f' of {total}' if start > 0 else ''}.")
            if not part.is_end and text:
                next_char = part.end
                header.append(f"To read more of it, continue with offset={lines.first} and chars='{next_char}-'.")
        elif start < 0:
            header.append(f"Showing lines {start} to {end}, counted from the end (-1 is the last line).")
        elif start > 1 or not lines.reaches_end or cut is not None or not is_known or text != lines.text:
            header.append(f"Showing lines {start}-{end} of {total} total lines.")
        if next_offset is not None:
            header.append(f"To read more, continue with offset={next_offset}.")
        if cut is not None:
            line_chars = min(limits.line_chars, limits.read_chars)
            header.append(
                f"Lines longer than {line_chars} characters were cut. The first of them is line {start + cut}; to read "
                f"more of it, use offset={lines.first + cut} and chars='{line_chars}-'."
            )
        if text != lines.text:
            header.append(f"NUL characters are shown as {NUL_MARK}.")
        if not is_known:
            header.append(
                "The file is neither valid UTF-8, nor valid UTF-16 or UTF-32 with a byte order mark: bytes that could "
                f"not be decoded are shown as {REPLACEMENT}."
            )
        header += notes
        text = f"{' '.join(header)}\n\n---\n\n{text}" if header else text
    return Reading(
        parts=(TextPart(text),),
        kind=FileKind.TEXT,
        start=start,
        end=end,
        total=lines.total,
        truncated=next_offset is not None or next_char is not None,
        shortened=cut is not None,
        chars=lines.chars,
        encoding=encoding.name if is_known else UNKNOWN.name,
        eol=eol_style(lines.text),
        next_offset=next_offset,
        next_char=next_char,
    )
