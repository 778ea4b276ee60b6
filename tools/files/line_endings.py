"""The line endings in text: their kinds, the kind for new lines, and how to split text into lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tools.machine.cached_properties import cached_property

Eol = Literal["lf", "crlf", "cr", "mixed"]
_ANY_ENDING = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class LineEndings:
    lf: int
    crlf: int
    cr: int

    @property
    def style(self) -> Eol | None:
        """The style of the line endings; `mixed` if they differ, `None` if there are none."""
        if (self.lf > 0) + (self.crlf > 0) + (self.cr > 0) > 1:
            return "mixed"
        if self.lf:
            return "lf"
        if self.crlf:
            return "crlf"
        return "cr" if self.cr else None

    @property
    def majority(self) -> str | None:
        """The most frequent ending. In a tie, LF comes before CRLF, and CRLF before CR."""
        counted = (("\n", self.lf), ("\r\n", self.crlf), ("\r", self.cr))
        ending, count = max(counted, key=lambda item: item[1])
        return ending if count else None


def line_endings(text: str) -> LineEndings:
    if "\r" not in text:
        return LineEndings(text.count("\n"), 0, 0)
    crlf = text.count("\r\n")
    return LineEndings(text.count("\n") - crlf, crlf, text.count("\r") - crlf)


def eol_style(text: str) -> Eol | None:
    """Return the style of the line endings in `text`. Counts them only if there are carriage returns."""
    if "\r" not in text:
        return "lf" if "\n" in text else None
    return line_endings(text).style


class NearbyEndings:
    """Finds the line ending near a position. Positions must ascend, so that no part of the text is searched twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._has_returns, self._has_feeds = "\r" in text, "\n" in text
        self._next = {"\n": -1, "\r": -1}

    @cached_property
    def _last(self) -> str:
        """The last line ending of the text, which must have at least one."""
        position = max(self._text.rfind("\n"), self._text.rfind("\r"))
        return "\r\n" if self._text[position - 1 : position + 1] == "\r\n" else self._text[position]

    def for_lines_at(self, start: int, end: int, new: str) -> str:
        """Return the line ending for `new`, which replaces a span of the text.

        This is the most frequent ending in the span, else the next one after the span, else the last one of the text.
        If the text has no line endings, it is CRLF if `new` contains a CRLF, else LF.
        """
        text = self._text
        inside = line_endings(text[start:end]).majority
        if inside is not None:
            return inside
        if not self._has_returns:
            return "\r\n" if "\r\n" in new and not self._has_feeds else "\n"
        for ending, position in self._next.items():
            if position < end:
                found = text.find(ending, end)
                self._next[ending] = len(text) if found < 0 else found
        line_feed, carriage_return = self._next["\n"], self._next["\r"]
        if carriage_return < line_feed:
            return "\r\n" if text.startswith("\r\n", carriage_return) else "\r"
        # If there is no ending in or after the span, the text's last ending is before it.
        return "\n" if line_feed < len(text) else self._last


def line_separator(text: str) -> str:
    """Return the separator used to count lines: LF, or CR in text without LF (from old Macs)."""
    return "\r" if "\n" not in text and "\r" in text else "\n"


def count_lines(text: str, separator: str | None = None) -> int:
    """Count the lines in `text`. A final line ending does not start another line."""
    ending = line_separator(text) if separator is None else separator
    return text.count(ending) + (bool(text) and not text.endswith(ending))


def to_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split_lines(text: str) -> tuple[list[str], list[str]]:
    """Split `text` into lines and their endings. Joined alternately, the two lists give the text.

    The last ending is always empty, so text that ends with a line ending has an empty last line.
    """
    if "\r" not in text:
        bodies = text.split("\n")
        return bodies, ["\n"] * (len(bodies) - 1) + [""]
    endings = line_endings(text)
    if not endings.lf and not endings.cr:
        bodies = text.split("\r\n")
        return bodies, ["\r\n"] * (len(bodies) - 1) + [""]
    pieces = _ANY_ENDING.split(text)
    return pieces[::2], [*pieces[1::2], ""]
