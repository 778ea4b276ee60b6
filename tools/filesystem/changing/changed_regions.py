"""Pieces of a text to show: the lines around a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.filesystem.changing.matching import Span
from tools.filesystem.text import line_separator

CONTEXT_LINES = 5
"""Unchanged lines shown around each change (Gemini CLI's)."""


@dataclass(frozen=True, slots=True)
class Region:
    """Whole lines of a text.

    Args:
        first: Number of the first line, from 1.
        last: Number of the last line.
        text: The lines, without the last line's ending.
    """

    first: int
    last: int
    text: str


def regions(text: str, spans: Sequence[Span], size: int) -> list[Region]:
    """The lines around changes; overlapping ones as one region.

    Args:
        text: The whole text.
        spans: Places in it, in order.
        size: After this many characters no other region is begun.
    """
    separator = line_separator(text)
    shown: list[Region] = []
    start = stop = line = counted = 0
    for number, span in enumerate(spans):
        begin = _begin(text, span.start, separator)
        if number and begin <= stop:
            if stop - start > size:
                break  # more than is shown
            stop = max(stop, _end(text, span.end, separator))
            continue
        if number:
            line += text.count(separator, counted, start)
            counted = start
            size -= _add(shown, text, (start, stop), line + 1, separator)
        if size <= 0:
            return shown
        start, stop = begin, _end(text, span.end, separator)
    if spans:
        line += text.count(separator, counted, start)
        _add(shown, text, (start, stop), line + 1, separator)
    return shown


def _add(shown: list[Region], text: str, place: tuple[int, int], first: int, separator: str) -> int:
    start, stop = place
    lines = text[start:stop].removesuffix(separator).removesuffix("\r")
    shown.append(Region(first, first + lines.count(separator), lines))
    return len(lines)


def _begin(text: str, position: int, separator: str) -> int:
    position = text.rfind(separator, 0, position) + 1
    for _ in range(CONTEXT_LINES):
        if position == 0:
            break
        position = text.rfind(separator, 0, position - 1) + 1
    return position


def _end(text: str, position: int, separator: str) -> int:
    for _ in range(CONTEXT_LINES + 1):
        found = text.find(separator, position)
        if found < 0:
            return len(text)
        position = found + 1
    return position
