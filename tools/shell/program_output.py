"""The output of a program: it is read as it arrives, limited in size, shown in parts, and reported as progress.

The shown part is plain text: without colours, cursor movements or overwritten text, and with invisible characters
marked. At most a few hundred kilobytes are converted at once, however long the output is.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio

from tools.contract.display import visible
from tools.files.text_encodings import SNIFFED_BYTES, UTF_8, is_utf8, looks_binary, marked_encoding, shown_text
from tools.machine.threads import THREADS
from tools.shell.private_folders import OutputFile, PrivateFolder
from tools.text.terminal_text import terminal_text

MAX_UTF8_BYTES = 4
_PLAIN = bytes([*b"\t\n", *range(0x20, 0x7F)])  # text bytes that need no conversion
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\r\n]*\x1b?|[ -/]*)\Z")
LONGEST_SEQUENCE = 256  # bytes to hold back for an incomplete escape sequence; real ones are shorter


def plain_text(data: bytes, codec: str = "utf-8") -> str:
    """Return the text that a person would see on a terminal, line by line.

    Undecodable bytes become U+FFFD. Overwritten or erased text is dropped. Other invisible characters become marks.
    """
    if not data.translate(None, _PLAIN):
        return data.decode("ascii")
    return visible(terminal_text(data.decode(codec, "replace").removeprefix("\ufeff")))


def whole_characters(data: bytes) -> bytes:
    """Remove an incomplete character or escape sequence at the end."""
    end = len(data)
    for back in range(1, min(MAX_UTF8_BYTES, end + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        end -= back if length > back else 0
        break
    partial_sequence = _UNFINISHED.search(data, max(0, end - LONGEST_SEQUENCE), end)
    return data[: partial_sequence.start() if partial_sequence else end]


def from_whole_character(data: bytes) -> bytes:
    """Remove the rest of a character whose beginning is missing."""
    start = 0
    while start < min(MAX_UTF8_BYTES - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


OUTPUT_CHARS = 40_000  # maximum characters of an output to show (as in Gemini CLI)
# A fifth of the shown characters are from the beginning, because the end is usually more important (as in Qwen Code and
# Gemini CLI)
HEAD_SHARE = 5
HEAD_BYTES = 1 << 16  # bytes kept from the beginning: enough for a fifth of the shown text, with its colour codes
TAIL_BYTES = 1 << 18  # bytes kept from the end; shorter output is completely in memory
SMALL_BYTES = 4096  # pieces are joined up to this size, because a million tiny pieces would need much more memory
QUICK_BYTES = 1 << 15  # longer output is converted to text in a thread
FLUSH_SECONDS = 10.0  # how long a result waits for a slow disk
CUT_MARK = "[... output omitted here ...]"


@dataclass(frozen=True, slots=True)
class ShownOutput:
    text: str  # the text to show, without surrounding blank lines
    total: int
    is_cut: bool = False  # whether the middle was omitted
    is_binary: bool = False  # whether the output is not text; if so, nothing is shown
    note: str = ""  # a sentence about the encoding, if the encoding is a guess
    file: str | None = None  # the path of the file with the output, or `None` without a file
    missing: int = 0  # bytes at the end of the output that are not in the file


@dataclass(frozen=True, slots=True)
class OutputSnapshot:
    """The output in memory at one moment. Converting it to text may take a while, and can be done in a thread."""

    head: bytes
    tail: bytes  # the end, or everything if `is_whole`
    is_whole: bool  # whether nothing is missing

    def decoding(self) -> tuple[str, str]:
        """Return the codec of the output, detected as for files, and a note about the codec if it is a guess."""
        whole = self.tail
        if not self.is_whole:
            whole = b"%s\n%s" % (whole_characters(self.head), from_whole_character(self.tail))
        if is_utf8(whole):
            return UTF_8.codec, ""
        decoded = shown_text(whole)
        encoding = decoded.encoding
        if decoded.note:
            return encoding.codec, f"The output is not UTF-8; it is shown as {encoding.name}, {decoded.note}."
        return encoding.codec if encoding.is_known and self.is_whole else UTF_8.codec, ""

    def text(self, budget: int = OUTPUT_CHARS, codec: str = UTF_8.codec) -> tuple[str, bool]:
        """Return the output as text without surrounding blank lines, and whether the middle was omitted."""
        head_chars = budget // HEAD_SHARE
        if self.is_whole and len(self.tail) <= TAIL_BYTES:
            whole = plain_text(self.tail, codec).strip("\n")
            if len(whole) <= budget:
                return whole, False
            head, tail = whole[:head_chars], whole[head_chars - budget :]
        else:
            head = plain_text(whole_characters(self.head), codec).lstrip("\n")[:head_chars]
            # The number of bytes per character varies by a factor of ten, so convert a growing part of the end until it
            # contains enough characters.
            tail_chars, end = budget - head_chars, self.tail[-TAIL_BYTES:]
            size = 2 * tail_chars
            while True:
                tail = plain_text(from_whole_character(end[-size:]), codec).strip("\n")
                if len(tail) >= tail_chars or size >= len(end):
                    break
                size *= 4
            tail = tail[-tail_chars:]
        # Show whole lines, unless they are very long.
        head = head.rpartition("\n")[0] or head
        line, ending, rest = tail.partition("\n")
        if ending and len(line) < len(tail) // 2:
            tail = rest
        return f"{head}\n{CUT_MARK}\n{tail}", True


class Output:
    """Collects output on the event loop. Without a folder, output beyond the memory limits is dropped."""

    def __init__(self, folder: PrivateFolder | None, tail_bytes: int = TAIL_BYTES) -> None:
        self.total = 0  # bytes printed so far
        self.changed_at = time.monotonic()  # time of the last output; initially the creation time
        self.is_binary = False
        self.file: OutputFile | None = None
        self._folder = folder
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._recent: deque[bytes | bytearray] = deque()
        self._recent_bytes = 0

    def feed(self, data: bytes) -> None:
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        if self.total < SNIFFED_BYTES and b"\0" in self._head:
            sample = bytes(self._head[:SNIFFED_BYTES])
            self.is_binary = b"\0" in sample and marked_encoding(sample) is None and looks_binary(sample)
        self.total += len(data)
        self.changed_at = time.monotonic()
        self._recent_bytes += len(data)
        last = self._recent[-1] if self._recent else None
        if last is None or len(last) + len(data) > SMALL_BYTES:
            self._recent.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._recent[-1] = bytearray(last + data)
        if self.file is not None:
            self.file.write(data)
        elif self.total > self._tail_bytes and self.tail_start == 0:
            self.keep_all()
        while self._recent_bytes - len(self._recent[0]) >= self._tail_bytes:
            self._recent_bytes -= len(self._recent.popleft())

    @property
    def tail_start(self) -> int:
        """The offset, within the whole output, of the first byte of the tail kept in memory."""
        return self.total - self._recent_bytes

    @property
    def file_path(self) -> str | None:
        """The path of the file with the output, if it has content."""
        return self.file.path if self.file is not None and self.file.kept_bytes else None

    def keep_all(self) -> None:
        """Write all output to a file. Call this while everything is still in memory."""
        if self.file is None and self._folder is not None:
            self.file = self._folder.open()
            self.file.write(self.tail())

    def tail(self, size: int | None = None) -> bytes:
        """Return the last `size` bytes, or all that are in memory."""
        data = b"".join(self._recent)
        return data if size is None else data[max(len(data) - size, 0) :]

    def snapshot(self) -> OutputSnapshot:
        return OutputSnapshot(bytes(self._head), self.tail(), is_whole=self.tail_start == 0)

    async def shown(self, budget: int = OUTPUT_CHARS) -> ShownOutput:
        """Return the output so far for a result, in about `budget` characters. Longer output is kept in a file."""
        text, is_cut, note = "", False, ""
        if not self.is_binary:
            snapshot = self.snapshot()
            if len(snapshot.tail) <= QUICK_BYTES and is_utf8(snapshot.tail):
                text, is_cut = snapshot.text(budget)
            else:
                codec, note = await THREADS.run(snapshot.decoding)
                text, is_cut = await THREADS.run(partial(snapshot.text, budget, codec))
        if is_cut or self.is_binary:
            self.keep_all()
        if self.file is not None:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self.file.flush()
        missing = self.file.missing if self.file is not None else 0
        return ShownOutput(text, self.total, is_cut, self.is_binary, note, self.file_path, missing)

    def keep_only_end(self, size: int) -> None:
        """Keep only the last `size` bytes in memory. Called when the output has ended; the rest is in the file."""
        self._head.clear()
        end = self.tail(size)
        self._recent = deque([end])
        self._recent_bytes = len(end)


READ_BYTES = 1 << 18  # bytes read per turn of the event loop; reading them takes about 50 microseconds
# A larger pipe needs fewer turns. Linux allows this size (/proc/sys/fs/pipe-max-size) for every user except those with
# many such pipes.
PIPE_BYTES = 1 << 20
USUAL_PIPE_BYTES = 1 << 16  # initial size of a pipe, which is enlarged once a read returns this many bytes
MAX_WAITING = 1 << 20  # while more bytes wait for the disk, reading pauses and the command waits


class OutputReader:
    """Reads a non-blocking descriptor into an `Output` until end of file. Does not close the descriptor."""

    def __init__(self, descriptor: int, output: Output) -> None:
        self._descriptor = descriptor
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._is_large = False
        self._loop.add_reader(descriptor, self._on_readable)

    async def wait_ended(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of the output. Return True if it was reached."""
        with anyio.move_on_after(seconds):
            await self._ended.wait()
        return self._ended.is_set()

    def read_present(self) -> None:
        """Read what has already been printed, even if a lot of data is waiting for the disk."""
        for _ in range(PIPE_BYTES // READ_BYTES + 1):
            if not self._read_piece():
                return

    def stop(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._ended.set()

    def _on_readable(self) -> None:
        self._read_piece()
        if self._output.file is not None and self._output.file.waiting > MAX_WAITING:
            self._output.file.on_written = self._on_written
            self._loop.remove_reader(self._descriptor)

    def _on_written(self) -> None:
        file = self._output.file
        if file is not None and file.waiting <= MAX_WAITING // 2 and not self._ended.is_set():
            file.on_written = None
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _read_piece(self) -> bool:
        """Read once. Return True if there may be more."""
        if self._ended.is_set():
            return False
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.stop()
            return False
        self._output.feed(data)
        if len(data) >= USUAL_PIPE_BYTES and not self._is_large and sys.platform == "linux":
            import fcntl  # noqa: PLC0415 - POSIX only

            self._is_large = True
            with suppress(OSError):
                fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return True


WINDOW_BYTES = 1 << 15  # bytes shown in one result


@dataclass(frozen=True, slots=True)
class OutputWindow:
    text: str  # the shown text, without a final line ending
    start: int  # position of the first shown byte
    end: int  # position after the last shown byte, where the next window can start
    total: int  # bytes printed so far
    lost_bytes: int = 0  # requested bytes before `start` that were not kept
    note: str = ""  # a sentence about the encoding, if the encoding is a guess


async def last_lines(output: Output, lines: int, *, is_over: bool) -> OutputWindow:
    """Return the last lines, including an incomplete line at the end."""
    data = output.tail(WINDOW_BYTES)
    end = output.total
    if not is_over:
        size = len(data)
        data = whole_characters(data)
        end -= size - len(data)
    # A final line ending does not start another line.
    position = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            break
    last_part = data[position + 1 :]
    if position < 0 and end > len(data):
        last_part = from_whole_character(last_part)
    text, note = await THREADS.run(partial(_text, last_part))
    return OutputWindow(text, end - len(last_part), end, output.total, note=note)


async def lines_from(output: Output, position: int, lines: int, *, is_over: bool) -> OutputWindow:
    """Return up to `lines` lines from a position (at most `output.total`), or from the first kept byte after it."""
    total, file = output.total, output.file
    start, data = position, b""
    if position < output.tail_start and file is not None and position < file.kept_bytes:
        with anyio.move_on_after(FLUSH_SECONDS):
            await file.flush()
        with suppress(OSError):
            data = await THREADS.run(partial(file.read_at, position, min(WINDOW_BYTES, file.kept_bytes - position)))
    if not data:
        tail = output.tail()
        start = max(position, output.total - len(tail))
        data = tail[len(tail) - (output.total - start) :][:WINDOW_BYTES]
    reaches_end = start + len(data) >= total
    endings = [newline.end() for newline in re.finditer(rb"\n", data)]
    if len(endings) >= lines:
        data = data[: endings[lines - 1]]
    elif not reaches_end:
        data = data[: endings[-1] if endings else 0] or whole_characters(data) or data
    elif not is_over:
        data = whole_characters(data)
    text, note = await THREADS.run(partial(_text, data))
    return OutputWindow(text, start, start + len(data), total, lost_bytes=start - position, note=note)


def _text(data: bytes) -> tuple[str, str]:
    codec, note = OutputSnapshot(b"", data, is_whole=True).decoding()
    return plain_text(data, codec).removesuffix("\n"), note


REPORT_BYTES = 4096  # bytes at the end of the output to examine
REPORT_CHARS = 1_000  # characters to report


def newest_text(output: Output) -> str:
    """Return the end of the output, in whole lines unless they are too long."""
    if output.is_binary:
        return f"(binary output, {output.total:,} byte{'' if output.total == 1 else 's'} so far)"
    text = plain_text(whole_characters(from_whole_character(output.tail(REPORT_BYTES)))).strip("\n")
    if len(text) <= REPORT_CHARS and output.total <= REPORT_BYTES:
        return text
    _, ending, rest = text[-REPORT_CHARS:].partition("\n")
    return rest if ending else text[-REPORT_CHARS:]
