"""Braces in glob patterns: all the patterns that `{a,b}` and `{1..3}` stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

MAX_ALTERNATIVES = 256
"""Patterns that braces may stand for."""

MAX_EXPANDED_CHARS = 32_768
"""Characters of all those together: eight of the longest patterns, or 128 for each of the most."""

_BRACE = re.compile(r"\\.|[{},]", re.DOTALL)
"""What braces are made of; a backslash takes the character behind it along."""

_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})|([A-Za-z])\.\.([A-Za-z])")


class PatternRefusedError(ValueError):
    """A pattern that is not accepted; the text is a sentence for the model."""


def expand_braces(pattern: str) -> list[str]:
    """All patterns that `{a,b}` and `{1..3}` stand for; braces without a comma or a range stay as they are.

    One pass over the pattern; what it may grow to is bounded, so its cost is as well.

    Raises:
        PatternRefusedError: There are too many, or they are too long together.
    """
    groups = [_Group()]
    for piece in _brace_pieces(pattern):
        if not isinstance(piece, _Brace):
            groups[-1].append([piece] if isinstance(piece, str) else piece)
        elif piece is _Brace.OPEN:
            groups.append(_Group())
        else:
            groups[-1].next_choice()
            if piece is _Brace.CLOSE:
                done = groups.pop().done
                groups[-1].append(done)
    return list(dict.fromkeys(groups[0].current))


class _Brace(Enum):
    """What is special about a pattern with braces."""

    OPEN = "{"
    NEXT = ","
    CLOSE = "}"


@dataclass(slots=True)
class _Group:
    """Braces that are being read.

    Args:
        done: What the choices before the current one stand for.
        current: What the current choice stands for so far.
    """

    done: list[str] = field(default_factory=list[str])
    current: list[str] = field(default_factory=lambda: [""])

    def append(self, ends: Sequence[str]) -> None:
        """Let one of these follow."""
        count = len(self.current) * len(ends)
        chars = sum(map(len, self.current)) * len(ends) + sum(map(len, ends)) * len(self.current)
        _check_size(count, chars)
        self.current = [start + end for start in self.current for end in ends]

    def next_choice(self) -> None:
        """Begin another choice."""
        self.done += self.current
        self.current = [""]
        _check_size(len(self.done), sum(map(len, self.done)))


def _check_size(count: int, chars: int) -> None:
    if count > MAX_ALTERNATIVES:
        raise PatternRefusedError(f"its braces stand for more than {MAX_ALTERNATIVES} patterns; use fewer")
    if chars > MAX_EXPANDED_CHARS:
        raise PatternRefusedError(f"its braces stand for more than {MAX_EXPANDED_CHARS} characters; use fewer")


def _brace_pieces(pattern: str) -> Iterator[_Brace | str | list[str]]:
    """The pattern in pieces: the braces that mean something and their commas, ranges, and the text between."""
    marks = _brace_marks(pattern)
    start = 0
    for index in sorted(marks):
        if index > start:
            yield pattern[start:index]
        mark = marks[index]
        start = index + 1
        if isinstance(mark, re.Match):
            yield _range(mark)
            start = mark.end() + 1
        else:
            yield mark
    if start < len(pattern):
        yield pattern[start:]


def _brace_marks(pattern: str) -> dict[int, _Brace | re.Match[str]]:
    """Where braces that mean something open, part and close; where a range opens, the range."""
    marks: dict[int, _Brace | re.Match[str]] = {}
    opened: list[tuple[int, list[int]]] = []
    for found in _BRACE.finditer(pattern):
        index = found.start()
        match found.group():
            case "{":
                opened.append((index, []))
            case "," if opened:
                opened[-1][1].append(index)
            case "}" if opened:
                start, commas = opened.pop()
                if commas:
                    marks |= {start: _Brace.OPEN, index: _Brace.CLOSE} | dict.fromkeys(commas, _Brace.NEXT)
                elif values := _RANGE.fullmatch(pattern, start + 1, index):
                    marks[start] = values
            case _:
                pass
    return marks


def _range(found: re.Match[str]) -> list[str]:
    if found[1] is not None:
        first, last = int(found[1]), int(found[2])
    else:
        first, last = ord(found[3]), ord(found[4])
    step = 1 if first <= last else -1
    if abs(last - first) >= MAX_ALTERNATIVES:
        raise PatternRefusedError(f"its braces stand for more than {MAX_ALTERNATIVES} patterns; use fewer")
    values = range(first, last + step, step)
    return [str(value) if found[1] is not None else chr(value) for value in values]
