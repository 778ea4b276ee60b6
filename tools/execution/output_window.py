"""A part of a job's output: its last lines, or what follows a position, from memory or from its file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import anyio

from tools.contract.threads import THREADS
from tools.execution.output import Output
from tools.execution.terminal_text import from_whole_character, plain_text, whole_characters

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
