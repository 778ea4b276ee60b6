"""Tells a client what a command is printing while it runs: now and then, and only when there is something new."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio

from tools.contract.threads import THREADS
from tools.shell.command import OUTPUT_CHARS
from tools.shell.output_files import Spill
from tools.shell.terminal_text import from_whole_character, plain_text, whole_characters

if TYPE_CHECKING:
    from tools.contract.limits import Progress


HEAD_SHARE = 5
"""One part in so many is kept for the beginning; what counts stands mostly at the end (both seeds' number)."""

HEAD_BYTES = 1 << 16
"""Bytes kept of the beginning: a fifth of the text, with room for colours."""

TAIL_BYTES = 1 << 18
"""Bytes kept of the end. An output that is no longer than this is in memory as a whole, and mostly in no file."""

SNIFFED_BYTES = 4096
"""A NUL among so many bytes at the beginning tells binary data (both seeds' number)."""

SMALL_BYTES = 4096
"""A smaller piece is joined with the one before, so that a million of them cost no more than their bytes."""


CUT_MARK = "[... what was printed here is left out ...]"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is in memory of an output at one moment. Making it text takes a while, and can be done in a thread.

    Args:
        head: Its beginning.
        tail: Its end; all of it where `is_whole`.
        is_whole: Whether nothing is missing.
    """

    head: bytes
    tail: bytes
    is_whole: bool

    def text(self, budget: int = OUTPUT_CHARS) -> tuple[str, bool]:
        """The output as text, without blank lines around it, and whether its middle was left out."""
        head_chars = budget // HEAD_SHARE
        if self.is_whole and len(self.tail) <= TAIL_BYTES:
            whole = plain_text(self.tail).strip("\n")
            if len(whole) <= budget:
                return whole, False
            return _joined(whole[:head_chars], whole[head_chars - budget :]), True
        head = plain_text(whole_characters(self.head)).lstrip("\n")[:head_chars]
        return _joined(head, self._last_text(budget - head_chars)), True

    def _last_text(self, chars: int) -> str:
        """As much of the end as is needed, since there may be ten times as many bytes as characters, or as few."""
        size = 2 * chars
        tail = self.tail[-TAIL_BYTES:]
        while True:
            text = plain_text(from_whole_character(tail[-size:])).strip("\n")
            if len(text) >= chars or size >= len(tail):
                return text[-chars:]
            size *= 4


def _joined(head: str, tail: str) -> str:
    """Beginning and end of a text, whole lines where they are not very long, and a mark between them."""
    kept = head.rpartition("\n")[0] or head
    line, ending, rest = tail.partition("\n")
    if ending and len(line) < len(tail) // 2:
        tail = rest
    return f"{kept}\n{CUT_MARK}\n{tail}"


class Output:
    """Takes over what was printed, on the event loop.

    Args:
        open_spill: Gives the file for an output that is too long, or `None` if nothing is kept.
        tail_bytes: Bytes kept of the end in memory; an output that is no longer is there as a whole.
    """

    def __init__(self, open_spill: Callable[[], Spill | None], tail_bytes: int = TAIL_BYTES) -> None:
        self.total = 0
        """Bytes printed so far."""
        self.changed_at = time.monotonic()
        """When something was printed last; at first, when this was made."""
        self.is_binary = False
        self.spill: Spill | None = None
        self._open_spill = open_spill
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._recent: deque[bytes | bytearray] = deque()
        self._recent_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take over what was printed next."""
        if self.total < SNIFFED_BYTES and b"\0" in data[: SNIFFED_BYTES - self.total]:
            self.is_binary = True
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        self.total += len(data)
        self.changed_at = time.monotonic()
        self._remember(data)
        if self.spill is not None:
            self.spill.write(data)
        elif self.total > self._tail_bytes and self.tail_start == 0:
            self.keep_all()
        self._forget()

    @property
    def tail_start(self) -> int:
        """Position of the first byte of the end that is in memory."""
        return self.total - self._recent_bytes

    @property
    def waiting(self) -> int:
        """Bytes of memory that wait for the disk."""
        return self.spill.waiting if self.spill is not None else 0

    def keep_all(self) -> None:
        """Write the output to a file from here on, with all that came before; in time, while that is in memory."""
        if self.spill is None and (spill := self._open_spill()) is not None:
            self.spill = spill
            spill.write(self.tail())

    def tail(self, size: int | None = None) -> bytes:
        """The last bytes, as many as there are in memory or as are asked for."""
        if size is None:
            return b"".join(self._recent)
        pieces: list[bytes | bytearray] = []
        for piece in reversed(self._recent):
            pieces.append(piece)
            size -= len(piece)
            if size <= 0:
                break
        pieces.reverse()
        return b"".join(pieces)[max(-size, 0) :]

    def snapshot(self) -> Snapshot:
        """What is in memory now."""
        return Snapshot(bytes(self._head), self.tail(), is_whole=self.tail_start == 0)

    def keep_only_end(self, size: int) -> None:
        """After the last of it: give back memory. What is dropped can be read from the file only."""
        self._head.clear()
        end = self.tail(size)
        self._recent = deque([end])
        self._recent_bytes = len(end)

    def _remember(self, data: bytes) -> None:
        self._recent_bytes += len(data)
        last = self._recent[-1] if self._recent else None
        if last is None or len(last) + len(data) > SMALL_BYTES:
            self._recent.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._recent[-1] = bytearray(last + data)

    def _forget(self) -> None:
        while self._recent_bytes - len(self._recent[0]) >= self._tail_bytes:
            self._recent_bytes -= len(self._recent.popleft())


READ_BYTES = 1 << 18
"""Most bytes read in one turn of the event loop; takes some 50 microseconds."""

PIPE_BYTES = 1 << 20
"""A pipe that is read in fewer turns; Linux gives as much to every user (/proc/sys/fs/pipe-max-size), but not to one
who has many such pipes."""

USUAL_PIPE_BYTES = 1 << 16
"""What a pipe holds at first. A command that fills it prints much."""

MOST_WAITING = 1 << 20
"""While more bytes wait for the disk, nothing is read, and the command waits."""


class OutputReader:
    """Fills an output from a descriptor, from now on until its end.

    Args:
        descriptor: Non-blocking; it is not closed here.
        output: What is to be filled.
    """

    def __init__(self, descriptor: int, output: Output) -> None:
        self._descriptor = descriptor
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._is_reading = False
        self._is_large = False
        self._resume()

    @property
    def is_ended(self) -> bool:
        """Whether the end was reached: nobody can print any more."""
        return self._ended.is_set()

    async def wait_ended(self, seconds: float) -> bool:
        """Wait for the end, but not for longer; whether it was reached."""
        if not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        return self._ended.is_set()

    def read_present(self) -> None:
        """Read what has been printed already, however much waits for the disk."""
        for _ in range(PIPE_BYTES // READ_BYTES + 1):
            if not self._read_piece():
                return

    def stop(self) -> None:
        """Read no more."""
        self._pause()
        self._ended.set()

    def _resume(self) -> None:
        if not self._is_reading and not self._ended.is_set():
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _on_readable(self) -> None:
        self._read_piece()
        if self._output.waiting > MOST_WAITING and self._output.spill is not None:
            self._output.spill.on_room = self._on_room
            self._pause()

    def _on_room(self) -> None:
        if self._output.waiting <= MOST_WAITING // 2:
            self._resume()

    def _read_piece(self) -> bool:
        """Read once; whether there may be more."""
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
        if len(data) >= USUAL_PIPE_BYTES and not self._is_large:
            self._is_large = True
            _enlarge(self._descriptor)
        return True


def _enlarge(descriptor: int) -> None:
    """Let a pipe hold more, where that is possible."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - only where it exists

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


WINDOW_BYTES = 1 << 15
"""Most bytes shown at once."""

FLUSH_SECONDS = 5.0
"""How long what was printed just now is waited for on its way to the disk."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an output.

    Args:
        text: What is shown, without a line ending at the end.
        start: Position of its first byte.
        end: Position after its last byte, where to go on.
        total: Bytes printed so far.
        lost: Bytes before it that were asked for and are not kept.
    """

    text: str
    start: int
    end: int
    total: int
    lost: int = 0


async def last_lines(output: Output, lines: int, *, is_over: bool) -> Window:
    """The last lines, the one that is being printed included."""
    end, data = output.total, output.tail(WINDOW_BYTES)
    if not is_over:
        whole = whole_characters(data)
        end, data = end - (len(data) - len(whole)), whole
    kept = data[_start_of_last(data, lines) :]
    if len(kept) == len(data) and end > len(data):
        kept = from_whole_character(kept)
    return Window(await _text(kept), end - len(kept), end, output.total)


async def lines_from(output: Output, position: int, lines: int, *, is_over: bool) -> Window:
    """The next lines from a position on.

    Args:
        output: Of the job.
        position: At most the bytes printed so far.
        lines: How many.
        is_over: Whether nothing is printed any more.
    """
    total = output.total
    start, data = await _bytes_from(output, position)
    reaches_end = start + len(data) >= total
    end = _end_of_first(data, lines)
    if end is not None:
        data = data[:end]
    elif not reaches_end:
        data = data[: data.rfind(b"\n") + 1] or whole_characters(data) or data
    elif not is_over:
        data = whole_characters(data)
    return Window(await _text(data), start, start + len(data), total, lost=start - position)


async def _text(data: bytes) -> str:
    return (await THREADS.run(lambda: plain_text(data))).removesuffix("\n")


async def _bytes_from(output: Output, position: int) -> tuple[int, bytes]:
    """Some bytes from a position on, or from the first one after it that is kept."""
    spill = output.spill
    if position < output.tail_start and spill is not None and position < spill.kept:
        with anyio.move_on_after(FLUSH_SECONDS):
            await spill.flush()
        length = min(WINDOW_BYTES, spill.kept - position)
        try:
            data = await THREADS.run(partial(spill.read_at, position, length))
        except OSError:
            data = b""
        if data:
            return position, data
    tail = output.tail()
    start = max(position, output.total - len(tail))
    return start, tail[len(tail) - (output.total - start) :][:WINDOW_BYTES]


def _start_of_last(data: bytes, lines: int) -> int:
    """Where the last lines begin; a line ending at the end ends the last line and starts no other one."""
    position = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1


def _end_of_first(data: bytes, lines: int) -> int | None:
    """Where the first lines end, or `None` where there are fewer."""
    for number, found in enumerate(re.finditer(rb"\n", data), 1):
        if number == lines:
            return found.end()
    return None


logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
"""Between two reports (Gemini CLI's number)."""

REPORT_BYTES = 4096
REPORT_CHARS = 1_000
"""How much of the end of the output is looked at and told."""

FAREWELL_SECONDS = 0.5
"""How long a report that is on its way may delay the result."""


class LiveOutput:
    """Reports on one command. A client that takes nothing slows nothing.

    Args:
        output: What is printed.
        progress: Tells the client: bytes so far, no total, and the last lines.
    """

    def __init__(self, output: Output, progress: Progress) -> None:
        self._output = output
        self._progress = progress
        self._told = 0
        self._told_at = float("-inf")
        self._telling: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Report if there is something new and it is time. To be called every now and then."""
        now = time.monotonic()
        is_busy = self._telling is not None and not self._telling.done()
        if self._output.total == self._told or now - self._told_at < INTERVAL_SECONDS or is_busy:
            return
        self._told, self._told_at = self._output.total, now
        self._telling = asyncio.create_task(self._tell(self._told, newest_text(self._output)))

    async def stop(self) -> None:
        """Report no more."""
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=FAREWELL_SECONDS)
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    async def _tell(self, count: int, text: str) -> None:
        try:
            await self._progress(count, None, text)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the client's
            # The client may have gone; the command shall not fail by that.
            logger.info("progress could not be told: %s", type(error).__name__)


def newest_text(output: Output) -> str:
    """The end of the output, as lines that are whole where they are not too long."""
    if output.is_binary:
        return f"(binary output, {output.total:,} bytes so far)"
    text = plain_text(whole_characters(from_whole_character(output.tail(REPORT_BYTES)))).strip("\n")
    if len(text) <= REPORT_CHARS and output.total <= REPORT_BYTES:
        return text
    _, ending, rest = text[-REPORT_CHARS:].partition("\n")
    return rest if ending else text[-REPORT_CHARS:]
