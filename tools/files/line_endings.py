"""The line endings of a text: which there are, and the lines between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Eol = Literal["lf", "crlf", "cr", "mixed"]
_ANY_ENDING = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class LineEndings:
    lf: int
    crlf: int
    cr: int

    @property
    def style(self) -> Eol | None:
        """The one style of all endings, `mixed` if there are several, `None` if there is no ending."""
        if (self.lf > 0) + (self.crlf > 0) + (self.cr > 0) > 1:
            return "mixed"
        if self.lf:
            return "lf"
        if self.crlf:
            return "crlf"
        return "cr" if self.cr else None

    @property
    def majority(self) -> str | None:
        """The most frequent ending itself; LF before CRLF before CR where they are equally frequent."""
        counted = (("\n", self.lf), ("\r\n", self.crlf), ("\r", self.cr))
        ending, count = max(counted, key=lambda item: item[1])
        return ending if count else None


def line_endings(text: str) -> LineEndings:
    if "\r" not in text:
        return LineEndings(text.count("\n"), 0, 0)
    crlf = text.count("\r\n")
    return LineEndings(text.count("\n") - crlf, crlf, text.count("\r") - crlf)


def eol_style(text: str) -> Eol | None:
    """The style of a text's line endings, counted only where there is a choice."""
    if "\r" not in text:
        return "lf" if "\n" in text else None
    return line_endings(text).style


def line_separator(text: str) -> str:
    """What lines are counted by: LF, or CR in texts that have no LF (those of old Macs)."""
    return "\r" if "\n" not in text and "\r" in text else "\n"


def count_lines(text: str, separator: str | None = None) -> int:
    """The lines of a text; a final line ending ends the last line and starts no other one."""
    ending = line_separator(text) if separator is None else separator
    return text.count(ending) + (bool(text) and not text.endswith(ending))


def to_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split_lines(text: str) -> tuple[list[str], list[str]]:
    """The lines of a text without their endings, and these, equally many; joined in turn they are the text again.

    The last ending is always empty, so a text that ends with a line ending has an empty last line.
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
