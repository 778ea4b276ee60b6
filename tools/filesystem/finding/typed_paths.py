"""Paths as people type them after an `@`: several in one line, with blanks in quotes or behind a backslash.

What separates paths is white space or a comma. Braces keep their commas, so that `src/*.{ts,tsx}` is one glob. Double
quotes may stand anywhere, single ones only around the beginning of a path, since names hold apostrophes. A backslash
protects a blank, a comma or a quote, as Qwen Code and Gemini CLI write it, and is otherwise part of the path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = re.compile(
    r"""\\(?P<escaped>[\s,"'])|"(?P<quoted>[^"]*)"|(?P<braces>\{[^{}\s"']*\})|(?P<plain>[^\s,"])|"(?P<open>[^"]*)\Z""",
    re.DOTALL,
)
_PIECE_WITHOUT_ESCAPES = re.compile(_PIECE.pattern.removeprefix(r"""\\(?P<escaped>[\s,"'])|"""), re.DOTALL)
"""Where the backslash separates folders it protects nothing."""

_SINGLE_QUOTED = re.compile(r"'(?P<quoted>[^']*)'(?=[\s,]|\Z)|'(?P<open>[^']*)\Z", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,]*")
_NEEDS_QUOTES = re.compile(r"[\s,\"']")


@dataclass(frozen=True, slots=True)
class TypedPath:
    """One path of a line.

    Args:
        path: What is meant, without quotes, protecting backslashes and a leading `@`.
        start: Where it begins in the line, the `@` included.
        has_at: Whether an `@` stood before it.
        is_open: Whether its quote is not closed (yet).
    """

    path: str
    start: int
    has_at: bool = False
    is_open: bool = False


def typed_paths(line: str) -> list[TypedPath]:
    """All paths of a line, those without a name left out."""
    return [item for item in _scan(line) if item.path]


def last_typed(line: str) -> TypedPath:
    """The path at the end of a line, which is still being typed; without a name after a separator."""
    last = TypedPath("", len(line))
    for item in _scan(line):
        last = item
    return last


def spelled(path: str) -> str:
    """A path the way it has to be typed to be taken for one path."""
    at = "@" if path.startswith("@") else ""
    if not _NEEDS_QUOTES.search(path):
        return at + path
    if '"' not in path:
        return f'{at}"{path}"'
    return at + _NEEDS_QUOTES.sub(lambda found: "\\" + found.group(), path)


def _scan(line: str) -> Iterator[TypedPath]:
    """Every path, and after a separator at the end an empty one."""
    position = _end_of(_SEPARATORS, line, 0)
    while position < len(line):
        item, position = _item(line, position)
        yield item
        after = _end_of(_SEPARATORS, line, position)
        if after > position and after == len(line):
            yield TypedPath("", after)
        position = after


def _item(line: str, start: int) -> tuple[TypedPath, int]:
    """The path that begins here, and where it ends."""
    has_at = line[start] == "@"
    position = start + has_at
    single = _SINGLE_QUOTED.match(line, position)
    if single is not None:
        text = single["quoted"] if single["open"] is None else single["open"]
        return TypedPath(text, start, has_at, single["open"] is not None), single.end()
    piece = _PIECE if os.sep != "\\" else _PIECE_WITHOUT_ESCAPES
    texts: list[str] = []
    is_open = False
    while (found := piece.match(line, position)) is not None:
        texts.append(found[found.lastgroup or 0])
        is_open = found.lastgroup == "open"
        position = found.end()
    return TypedPath("".join(texts), start, has_at, is_open), position


def _end_of(pattern: re.Pattern[str], line: str, position: int) -> int:
    found = pattern.match(line, position)
    return found.end() if found else position
