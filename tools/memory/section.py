"""The section of a memory file: what a fact becomes as its entry, and where the entry goes.

A memory file is read into later conversations as instructions. So a fact is exactly one entry: nothing in it begins
another entry, a heading or a comment, names a file to be read in, or stays unseen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.contract.unseen import UNSEEN
from tools.filesystem.text import line_endings, split_lines

_JOINERS = "\u200c\u200d"
"""Unseen too, but words of some languages and many emoji are not written without them."""

_IMPORT = re.compile(r"(?<!\S)@")
"""Qwen Code and Gemini CLI read in the file that is named behind it."""

_MARKUP = re.compile(r"<(?=[!?])")
"""Begins a comment, a declaration or an instruction of HTML, which hides what follows."""

_BLOCK = re.compile(r"#|>|[*+](?=\s|$)|[*_]{3,}$|```|~~~|\[[^\]]*\]:")
"""Begins a heading, a quotation, a list, a rule, code, or a definition that is not shown."""

_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
"""Begins a numbered list."""

_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ITEM = re.compile(r"\s*[-*+]\s+(.*)")
_HEADING = re.compile(r"#{1,2}(\s|$)")
"""What ends a section: a heading of its own level or of the one above."""


def entry_of(fact: str) -> str:
    """A fact as one line of a Markdown list, or an empty text if nothing is left of it."""
    seen = UNSEEN.sub(lambda found: found[0] if found[0] in _JOINERS else " ", fact)
    line = " ".join(seen.split()).lstrip("- ")
    if not line:
        return ""
    line = _IMPORT.sub(r"\\@", _MARKUP.sub("&lt;", line))
    if _BLOCK.match(line):
        line = f"\\{line}"
    return "- " + _NUMBER.sub(r"\1\\\2", line, count=1) if _NUMBER.match(line) else f"- {line}"


def holds_entry(text: str, entry: str) -> bool:
    """Whether some list of the text has this entry, however it is escaped there."""
    wanted = _meaning(entry)
    return any(_meaning(line) == wanted for line in split_lines(text)[0])


def _meaning(line: str) -> str | None:
    item = _ITEM.fullmatch(line)
    if item is None:
        return None
    return " ".join(_ESCAPED.sub(r"\1", item[1]).replace("&lt;", "<").split())


def heading_in(text: str, headings: Sequence[str]) -> str | None:
    """The first of these headings that the text has."""
    lines = {line.rstrip() for line in split_lines(text)[0]}
    return next((heading for heading in headings if heading in lines), None)


def with_entry(text: str, entry: str, headings: Sequence[str]) -> str:
    """The text with one more entry at the end of its section; all that was there stays, character by character.

    The section ends at the next heading of its level or above. Without one it is made at the end of the text, a blank
    line before it.

    Args:
        text: The file's text.
        entry: As `entry_of` made it.
        headings: The lines that begin the section; the first is used where the text has none of them.
    """
    bodies, endings = split_lines(text)
    eol = line_endings(text).majority or "\n"
    heading = heading_in(text, headings)
    if heading is None:
        return f"{text}{_separation(bodies, eol)}{headings[0]}{eol}{entry}{eol}"
    start = next(number for number, line in enumerate(bodies) if line.rstrip() == heading)
    below = range(start + 1, len(bodies))
    end = next((number for number in below if _HEADING.match(bodies[number])), len(bodies))
    last = max(number for number in range(start, end) if bodies[number].strip() or number == start)
    place = sum(map(len, bodies[: last + 1])) + sum(map(len, endings[: last + 1]))
    before = "" if endings[last] else eol
    after = eol if last + 1 == end < len(bodies) else ""
    return f"{text[:place]}{before}{entry}{eol}{after}{text[place:]}"


def _separation(bodies: Sequence[str], eol: str) -> str:
    """The line endings that leave one blank line, at least, behind the lines of a text."""
    if not any(body.strip() for body in bodies):
        return ""
    if bodies[-1].strip():
        return eol * 2
    return eol if bodies[-1] or bodies[-2].strip() else ""
