"""What an edit puts in place of a match, and the text that comes out.

What the model did not change stays as it is in the file, byte for byte: the endings of lines on both sides of an
edit, the trailing blanks and look-alikes of lines that `old_string` and `new_string` have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tools.filesystem.changing.text_match import (
    BLANKS,
    Haystack,
    Match,
    Span,
    Strategy,
    find_text,
    indentation_map,
    indentation_of,
)
from tools.filesystem.text import line_endings, split_lines, to_lf


@dataclass(frozen=True, slots=True)
class Edited:
    """The outcome of an edit.

    Args:
        text: The whole new text.
        spans: What was put in, in the new text, in order.
    """

    text: str
    spans: tuple[Span, ...]


def apply_edit(haystack: Haystack, match: Match, old: str, new: str) -> Edited:
    """Put `new` in place of every match.

    An empty `new` deletes; where a match covers whole lines, the ending of the last one goes with them.

    Args:
        haystack: The file's text.
        match: Where.
        old: As the model gave it.
        new: As the model gave it. LF becomes the ending of the lines around.
    """
    pieces: list[str] = []
    spans: list[Span] = []
    done = length = 0
    around = _Endings(haystack.text)
    for span in match.spans:
        haystack.checkpoint()
        put = _replacement(around, match.strategy, span, old, new)
        stop = span.end if new or old.endswith(("\n", "\r")) else _end_with_line(haystack.text, span)
        pieces += (haystack.text[done : span.start], put)
        length += span.start - done
        spans.append(Span(length, length + len(put)))
        length += len(put)
        done = stop
    pieces.append(haystack.text[done:])
    return Edited("".join(pieces), tuple(spans))


def _end_with_line(text: str, span: Span) -> int:
    """The end of a span, with the line ending behind it if the span covers whole lines."""
    begins_line = span.start == 0 or text[span.start - 1] in "\r\n"
    if not begins_line or span.start == span.end:
        return span.end
    if text.startswith("\r\n", span.end):
        return span.end + 2
    return span.end + 1 if text[span.end : span.end + 1] in {"\n", "\r"} else span.end


class _Endings:
    """The line endings beside places that are asked for in order, so that no part of the text is searched twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._next: dict[str, int] = {}

    def has(self, ending: str) -> bool:
        return self._first[ending] >= 0

    @cached_property
    def _first(self) -> dict[str, int]:
        return {ending: find_text(self.text, ending) for ending in "\r\n"}

    def after(self, ending: str, position: int) -> int:
        """The first such character from a place on, or the text's length."""
        found = self._next.get(ending, -1)
        if found < position:
            found = find_text(self.text, ending, position)
            self._next[ending] = found = len(self.text) if found < 0 else found
        return found

    @cached_property
    def last(self) -> str:
        """The last line ending of the text, which has one."""
        place = max(self.text.rfind("\n"), self.text.rfind("\r"))
        return "\r\n" if self.text[place - 1 : place + 1] == "\r\n" else self.text[place]


def _replacement(around: _Endings, strategy: Strategy, span: Span, old: str, new: str) -> str:
    if strategy is Strategy.EXACT and ("\r" in old or "\n" not in new):
        # Whoever writes the carriage returns out means them; and without line endings there is nothing to adapt.
        return new
    style = _style(around, span, new)
    if strategy is Strategy.EXACT and not around.has("\r"):
        return new.replace("\r\n", "\n") if style == "\n" else new
    wanted, given = to_lf(old), to_lf(new) if "\r" in old else new.replace("\r\n", "\n")
    if strategy is Strategy.FINAL_NEWLINE:
        wanted, given = wanted.removesuffix("\n"), given.removesuffix("\n")
    return _rebuilt(around.text[span.start : span.end], strategy, wanted, given, style)


def _style(around: _Endings, span: Span, new: str) -> str:
    """The line ending for new lines: that of the lines touched, else of the line the span lies in, else before."""
    inside = line_endings(around.text[span.start : span.end]).majority
    if inside is not None:
        return inside
    if not around.has("\r"):
        return "\n" if around.has("\n") or "\r\n" not in new else "\r\n"
    if not around.has("\n"):
        return "\r"
    line_feed, carriage_return = around.after("\n", span.end), around.after("\r", span.end)
    if carriage_return < line_feed:
        return "\r\n" if around.text.startswith("\r\n", carriage_return) else "\r"
    # With none inside and none behind, the last one of the text is the one before.
    return "\n" if line_feed < len(around.text) else around.last


def _rebuilt(raw: str, strategy: Strategy, old: str, new: str, style: str) -> str:
    """The new lines, of which those in common with the old ones at both ends are taken from the file."""
    raw_bodies, raw_endings = split_lines(raw)
    old_lines, new_lines = old.split("\n"), new.split("\n")
    head, tail = _common_ends(old_lines, new_lines)
    indentations = indentation_map(old, raw) if strategy is Strategy.INDENTATION else None
    pieces: list[str] = []
    for number, line in enumerate(new_lines):
        source: int | None = number if number < head or len(old_lines) == len(new_lines) else None
        if number >= len(new_lines) - tail:
            source = len(old_lines) - len(new_lines) + number
        if source is not None and (number < head or number >= len(new_lines) - tail):
            body = raw_bodies[source]
        elif indentations is not None:
            body = _indented(line, indentations)
        elif source is not None and strategy is Strategy.LOOK_ALIKES:
            body = _keeping_ends(raw_bodies[source], old_lines[source], line)
        else:
            body = line
        pieces.append(body)
        if number < len(new_lines) - 1:
            pieces.append((raw_endings[source] if source is not None else "") or style)
    return "".join(pieces)


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines, or characters, both begin with, and how many of the others both end with."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _keeping_ends(raw: str, old: str, new: str) -> str:
    """The new line with the file's own characters where old and new begin and end alike."""
    head, tail = _common_ends(old, new)
    return raw[:head] + new[head : len(new) - tail] + raw[len(raw) - tail :]


def _indented(line: str, indentations: dict[str, str]) -> str:
    """A new line with the file's indentation in place of the one the model thought of."""
    if not line.strip(BLANKS):
        return ""
    own = indentation_of(line)
    rest = line[len(own) :]
    known = max((known for known in indentations if own.startswith(known)), key=len, default=None)
    if known is not None:
        return indentations[known] + _converted(own[len(known) :], indentations) + rest
    # Less indented than anything in old_string: keep the distance where the file's indentation has room for it.
    shortest = min(indentations, key=len)
    target = indentations[shortest]
    missing = shortest.removeprefix(own) if shortest.startswith(own) else ""
    return target.removesuffix(missing) + rest


def _converted(extra: str, indentations: dict[str, str]) -> str:
    """Further indentation in the file's characters: tabs for as many spaces as one tab stands for, or the reverse."""
    for old, raw in indentations.items():
        if old and raw and set(old) == {" "} and set(raw) == {"\t"} and len(old) % len(raw) == 0:
            width = len(old) // len(raw)
            return "\t" * (len(extra) // width) if set(extra) == {" "} and len(extra) % width == 0 else extra
        if old and raw and set(old) == {"\t"} and set(raw) == {" "} and len(raw) % len(old) == 0:
            return extra.replace("\t", " " * (len(raw) // len(old)))
    return extra
