"""Selects lines of a file for the model, with a header that mentions any lines left out."""

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

from tools.contract.limits import AbortSignal, Limits
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import Part, TextPart
from tools.files.path_opener import FileIdentity
from tools.files.read.media_files import FileKind
from tools.files.text_encodings import NUL_MARK, REPLACEMENT, UNKNOWN, Encoding, eol_style, has_short_lines

BLOCK = 1 << 20  # bytes of one read when lines are counted
# Maximum bytes that one call reads to find a line or the end. Reading this many takes half a second. Counts are cached
SOUGHT_BYTES = 1 << 29
STEP = 1 << 16  # bytes between cached counts; only one such step is searched for the beginning of a line
MAX_INDEXES = 64  # files with cached line counts, which take 128 bytes per MB of file
# A file that has changed within this time may change again with the same timestamp, so its counts are not cached
SETTLED_NS = 100_000_000
TAKEN_BYTES = 1 << 16  # size of one read while extracting lines; a window is rarely larger
# The rest of a file is not read just to count its lines if it is larger than this, which takes about 10 ms to read
COUNTED_BYTES = 16 << 20
CUT_MARK = "... [truncated]"  # marks the end of a truncated line (as in Qwen Code and Gemini CLI)
MAX_UTF8_BYTES = 4
_CHAR_RANGE = re.compile(r"\s*(\d{1,12})\s*(?:-\s*(\d{1,12})?\s*)?")


class Source:
    """Random access to a file's bytes (without a byte order mark), and the file's line separator."""

    def __init__(self, stream: BinaryIO, size: int, skipped: int = 0) -> None:
        self._stream = stream
        self._skipped = skipped
        self.size = size - skipped
        head = self.read_at(0, STEP)
        if b"\n" not in head:
            head = self.read_at(0, BLOCK)
        # Files from old Macs have CR instead of LF.
        self.separator = b"\r" if b"\n" not in head and b"\r" in head else b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Source:
        return cls(BytesIO(data), len(data))

    def read_at(self, position: int, length: int) -> bytes:
        """Return `length` bytes, fewer only at the end. Reads again if needed: one unbuffered read may return fewer."""
        self._stream.seek(position + self._skipped)
        data = self._stream.read(length)
        while len(data) < length and (more := self._stream.read(length - len(data))):
            data += more
        return data

    def position_from_end(self, lines: int, signal: AbortSignal) -> int:
        """Return the start of the last `lines` lines, found by reading backwards."""
        end = self.size
        if self.read_at(end - 1, 1) == self.separator:
            end -= 1
        missing = lines
        while end > 0:
            signal.raise_if_aborted()
            start = max(0, end - BLOCK)
            block = self.read_at(start, end - start)
            found = block.count(self.separator)
            if found >= missing:
                return start + len(block.rsplit(self.separator, missing)[0]) + 1
            missing -= found
            end = start
            if self.size - end >= SOUGHT_BYTES:
                known = f"the number of lines that start within that distance is {lines - missing:,}"
                raise _too_far(f"line {lines:,} from the end", "the end of the file", known)
        return 0


@dataclass(frozen=True, slots=True)
class LineIndex:
    """The number of line endings from the beginning of the file to the end of each step."""

    counts: array[int] = field(default_factory=lambda: array("Q"))  # running totals; never modified
    is_complete: bool = False  # whether the last step reaches the end of the file
    ends_open: bool = False  # whether the file ends with a line that has no line ending

    @property
    def counted(self) -> int:
        return self.counts[-1] if self.counts else 0

    @property
    def total(self) -> int | None:
        """The number of lines in the file, if all were counted."""
        return self.counted + self.ends_open if self.is_complete else None

    def extended(self, source: Source, endings: int | None, signal: AbortSignal) -> LineIndex:
        """Continue counting until `endings` line endings are known, the file ends, or `SOUGHT_BYTES` are read."""
        if self.is_complete or (endings is not None and self.counted >= endings):
            return self
        counts, counted, last = self.counts[:], self.counted, b""
        most = len(counts) + SOUGHT_BYTES // STEP
        is_complete = len(counts) * STEP >= source.size
        while not is_complete and len(counts) < most and (endings is None or counted < endings):
            signal.raise_if_aborted()
            block = source.read_at(len(counts) * STEP, BLOCK)
            for start in range(0, len(block), STEP):
                counted += block.count(source.separator, start, start + STEP)
                counts.append(counted)
            last = block[-1:]
            # If the file was truncated after it was opened, it ends early.
            is_complete = len(block) < BLOCK or len(counts) * STEP >= source.size
        if is_complete and not last and source.size:
            last = source.read_at(source.size - 1, 1)
        return LineIndex(counts, is_complete, is_complete and last not in (b"", source.separator))

    def position_of(self, line: int, source: Source) -> int | None:
        """Return where a line begins, or `None` past the end.

        Raises `file_too_large` if the lines before it have not all been counted.
        """
        if line == 0:
            return 0
        if self.counted < line:
            if self.is_complete:
                return None
            known = (
                f"lines before it that have been counted so far: {self.counted:,} (if the file does not change, "
                "repeating the call continues the count)"
            )
            raise _too_far(f"line {line + 1:,}", "the beginning of the file", known)
        number = bisect_left(self.counts, line)
        before = self.counts[number - 1] if number else 0
        step = source.read_at(number * STEP, STEP)
        rest = step.split(source.separator, line - before)[-1]
        return number * STEP + len(step) - len(rest)


_indexes: OrderedDict[FileIdentity, LineIndex] = OrderedDict()
_indexes_guard = threading.Lock()


def _too_far(what: str, side: str, known: str) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_TOO_LARGE,
        f"Nothing was read: {what} is more than {SOUGHT_BYTES:,} bytes from {side}, and one call does not scan more "
        f"than that; {known}. Use an offset near the beginning, or a negative one near the end.",
    )


@dataclass(frozen=True, slots=True)
class CharRange:
    """Characters of one line, counted from 0."""

    start: int
    end: int | None  # exclusive end; `None` for the end of the line

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `2000-4000` or `2000-`. Raises a `ValueError` for anything else."""
        found = _CHAR_RANGE.fullmatch(text)
        if found is None:
            raise ValueError
        chars = cls(int(found[1]), int(found[2]) if found[2] else None)
        if chars.end is not None and chars.end <= chars.start:
            raise ValueError
        return chars


@dataclass(frozen=True, slots=True)
class WantedLines:
    offset: int  # the first line, from 0; a negative offset counts from the end
    limit: int
    limits: Limits  # `line_chars` truncates long lines; `read_chars` ends the window before a line that does not fit
    signal: AbortSignal  # checked between blocks
    chars: CharRange | None = None  # characters to select from the line at the offset


@dataclass(frozen=True, slots=True)
class LineWindow:
    text: str  # the lines with their endings; the last one has an ending only if it ends the file
    first: int  # number of the first line, from 0; negative, from the end, if lines were not counted
    count: int  # number of lines; 0 if the window is past the end
    total: int | None  # number of lines in the file, or `None` if not counted
    at_least: int  # the known minimum number of lines in the file
    reaches_end: bool
    cut: int | None  # index of the first truncated line, from 0
    is_decodable: bool  # whether the lines are valid UTF-8
    chars: int  # number of characters of `text` that come from the file
    part: LinePart | None = None  # the part of a line, if one was requested

    @property
    def shortened(self) -> bool:
        return self.cut is not None


def window(source: Source, wanted: WantedLines, identity: FileIdentity | None = None) -> LineWindow:
    """Return the requested lines, within the character limits.

    The file must be in UTF-8 or another superset of ASCII. Line counts are cached by `identity`, if given.
    Raises `file_too_large` if the first line is too far from where counting started.
    """
    offset, signal = wanted.offset, wanted.signal
    with _indexes_guard:
        index = (_indexes.get(identity) if identity else None) or LineIndex()
    index = index.extended(source, max(0, offset), signal)
    if source.size - len(index.counts) * STEP <= COUNTED_BYTES:
        index = index.extended(source, None, signal)
    if identity is not None and time.time_ns() - max(identity.mtime_ns, identity.ctime_ns) >= SETTLED_NS:
        with _indexes_guard:
            other = _indexes.get(identity)
            if other is None or len(other.counts) <= len(index.counts):
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
        return LineWindow("", offset, 0, index.total, index.counted, True, None, True, 0)
    if wanted.chars is not None:
        part = line_part(source, position, wanted.chars, wanted.limits.read_chars, signal)
        at_least = max(index.counted, offset + 1) if offset >= 0 else -offset
        return LineWindow(
            part.text, offset, 1, index.total, at_least, part.is_end, None, part.is_decodable, len(part.text), part
        )
    lines = _Lines(source.separator, wanted)
    reaches_end = lines.take(source, position)
    text, total = "".join(lines.texts), index.total
    if total is None and reaches_end and offset >= 0:
        total = offset + lines.count
    at_least = max(index.counted, offset + lines.count + (not reaches_end)) if offset >= 0 else -offset
    if not reaches_end:
        separator = source.separator.decode()
        is_ended = text.endswith(separator)
        text = text.removesuffix(separator)
        text = text.removesuffix("\r") if is_ended and separator == "\n" else text
    return LineWindow(
        text, offset, lines.count, total, at_least, reaches_end, lines.cut, lines.is_decodable, lines.chars
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


def line_part(source: Source, position: int, chars: CharRange, most: int, signal: AbortSignal) -> LinePart:
    """Return at most `most` characters of the line that begins at a position.

    The line is decoded from its beginning, like a line shown in full. Characters after the part are counted if that is
    quick. Raises `file_too_large` if the part is too far from the beginning.
    """
    end = chars.start + most if chars.end is None else min(chars.end, chars.start + most)
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts: list[str] = []
    length, first, last = 0, position, ""
    is_ended = False
    while not is_ended and not (length >= end and position - first >= COUNTED_BYTES):
        signal.raise_if_aborted()
        if length <= chars.start and position - first >= SOUGHT_BYTES:
            raise _too_far(
                f"character {chars.start:,}", "the beginning of the line", f"{length:,} characters were counted"
            )
        block = source.read_at(position, TAKEN_BYTES if length >= chars.start else BLOCK)
        found = block.find(source.separator)
        is_ended = not block or found >= 0
        data = block if found < 0 else block[:found]
        try:
            text = decoder.decode(data, is_ended)
        except UnicodeDecodeError:
            decoder.errors = "replace"
            text = decoder.decode(data, is_ended)
        texts.append(text[max(0, chars.start - length) : max(0, end - length)])
        length += len(text)
        position += len(block)
        last = text[-1:] or last
        if found >= 0 and source.separator == b"\n" and last == "\r":
            length -= 1  # the carriage return belongs to the line ending
    shown = "".join(texts)[: max(0, length - chars.start)]
    return LinePart(shown, chars.start, length, is_ended, decoder.errors == "strict")


class _Lines:
    """Collects lines until there are enough. Keeps only the part of each line that is shown."""

    def __init__(self, separator: bytes, wanted: WantedLines) -> None:
        self._separator = separator
        self._wanted = wanted
        self._line_chars = max(1, min(wanted.limits.line_chars, wanted.limits.read_chars))
        self._room = wanted.limits.read_chars
        self.texts: list[str] = []
        self.count = 0
        self.chars = 0
        self.cut: int | None = None
        self.is_decodable = True

    def take(self, source: Source, position: int) -> bool:
        """Collect lines, starting at the beginning of one. Return True at the end of the file."""
        most_bytes = (self._line_chars + 1) * MAX_UTF8_BYTES
        last_position = position + SOUGHT_BYTES
        line = last = b""
        length = 0
        while True:
            self._wanted.signal.raise_if_aborted()
            block = source.read_at(position, TAKEN_BYTES)
            if not block:
                return not length or self._add(line, length, b"")
            if position >= last_position:
                # This line is truncated anyway, and only its end is still being searched for.
                self._add(line, length, b"")
                return False
            start = 0 if length else self._add_plain(block)
            while start < len(block):
                if self.count >= self._wanted.limit:
                    return False
                found = block.find(self._separator, start)
                end = len(block) if found < 0 else found
                line += block[start : min(end, start + most_bytes - len(line))]
                length += end - start
                last = block[end - 1 : end] if end > start else last
                start = end
                if found >= 0:
                    has_return = self._separator == b"\n" and last == b"\r"
                    ending = b"\r\n" if has_return else self._separator
                    if not self._add(line.removesuffix(b"\r") if has_return else line, length - has_return, ending):
                        return False
                    line = last = b""
                    length, start = 0, end + 1
            position += len(block)

    def _add_plain(self, block: bytes) -> int:
        """Add all whole lines at the beginning of a block at once. Return the number of bytes used.

        The number is 0 if a line is too long, bytes cannot be decoded, or there is no more room.
        """
        head = block[: block.rfind(self._separator) + 1]
        missing = self._wanted.limit - self.count
        count = head.count(self._separator)
        if count > missing:
            head = head[: len(head) - len(head.split(self._separator, missing)[-1])]
            count = missing
        try:
            text = head.decode()
        except UnicodeDecodeError:
            return 0
        if len(text) > self._room or not has_short_lines(text, self._separator.decode(), self._line_chars):
            return 0
        self._room -= len(text)
        self.chars += len(text)
        self.count += count
        self.texts.append(text)
        return len(head)

    def _add(self, line: bytes, length: int, ending: bytes) -> bool:
        """Add a line. Return False if there is no room for it."""
        is_whole = length == len(line)
        try:
            # A character that is incomplete at the end of the kept bytes comes after the shown part.
            text = codecs.getincrementaldecoder("utf-8")().decode(line, final=is_whole)
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
        if is_cut and self.cut is None:
            self.cut = self.count
        self.count += 1
        self.texts.append(text + (CUT_MARK if is_cut else "") + ending.decode())
        return True


@dataclass(slots=True)
class Reading:
    """The result of one read. Treat it as immutable; a frozen class would triple the cost of creating one."""

    # The content for the model, never empty. Text is a single `TextPart`: a header if something was left out, and the
    # unchanged lines of the file.
    parts: tuple[Part, ...]
    kind: FileKind  # how the file is shown
    # Number of the first line shown, from 1; 0 if none is shown (empty files, media). If the file is too large to count
    # its lines, the number is negative and counts from the end (-1 is the last line).
    start: int = 0
    end: int = 0  # number of the last line shown, counted like `start`
    # Lines in the file, or `None` if unknown or not text. A final line ending does not start another line.
    total: int | None = None
    truncated: bool = False  # whether lines after `end` were left out; continue with `next_offset`
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
    is_text: bool = True  # whether the file is shown as text, as a PDF may be
    content: bytes | None = None  # the whole file, if it was read in full


def reading_of(found: LineWindow, encoding: Encoding, limits: Limits, notes: Sequence[str] = ()) -> Reading:
    """Build the reading for a window of lines. Notes go into the header."""
    is_known = found.is_decodable and encoding.is_known
    start = (found.first + 1 if found.first >= 0 else found.first) if found.count else 0
    end = start + found.count - 1 if found.count else 0
    following = None if found.reaches_end or found.part is not None else found.first + found.count
    next_char = None
    header: list[str] = []
    text = found.text.replace("\0", NUL_MARK)
    if not found.count and found.total == 0:
        text = "" if found.first <= 0 else f"The file is empty; offset {found.first} is past its end."
    elif not found.count:
        text = (
            f"The file has {found.total} {'line' if found.total == 1 else 'lines'}; offset {found.first} is past its "
            f"end. The last line is at offset {(found.total or 1) - 1}, and at offset -1."
        )
    else:
        total = f"{found.total}" if found.total is not None else f"at least {found.at_least}"
        if (part := found.part) is not None:
            length = f"{part.length}" if part.is_counted else f"at least {part.length}"
            shown = f"characters {part.start}-{part.end} of {length}" if text else f"none of {length} characters"
            header.append(f"Showing {shown} in line {start}{f' of {total}' if start > 0 else ''}.")
            if not part.is_end and text:
                next_char = part.end
                header.append(f"To read more of it, continue with offset={found.first} and chars='{next_char}-'.")
        elif start < 0:
            header.append(f"Showing lines {start} to {end}, counted from the end (-1 is the last line).")
        elif start > 1 or not found.reaches_end or found.shortened or not is_known or text != found.text:
            header.append(f"Showing lines {start}-{end} of {total} total lines.")
        if following is not None:
            header.append(f"To read more, continue with offset={following}.")
        if found.cut is not None:
            cut = min(limits.line_chars, limits.read_chars)
            header.append(
                f"Lines longer than {cut} characters were cut. The first of them is line {start + found.cut}; to read "
                f"more of it, use offset={found.first + found.cut} and chars='{cut}-'."
            )
        if text != found.text:
            header.append(f"NUL characters are shown as {NUL_MARK}.")
        if not is_known:
            header.append(
                "The file is not UTF-8, and has no UTF-16 or UTF-32 byte order mark: bytes that could not be "
                f"decoded are shown as {REPLACEMENT}."
            )
        header += notes
        text = f"{' '.join(header)}\n\n---\n\n{text}" if header else text
    return Reading(
        parts=(TextPart(text),),
        kind=FileKind.TEXT,
        start=start,
        end=end,
        total=found.total,
        truncated=following is not None or next_char is not None,
        shortened=found.shortened,
        chars=found.chars,
        encoding=encoding.name if is_known else UNKNOWN.name,
        eol=eol_style(found.text),
        next_offset=following,
        next_char=next_char,
    )
