"""Wildcards as regular expressions that cannot run away: stars, question marks, brackets, escapes, `**`.

The one translation behind ignore files, glob patterns and file filters. A star is followed by pieces of fixed
length, so its first possible end is as good as any later one and is never tried again (atomic groups): a hostile
pattern costs at most its length times the path's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
"""The POSIX classes within brackets, for ASCII, as git has them."""

SPECIAL = frozenset("*?[\\")
"""Characters that make a pattern more than a literal."""

_NEVER = "(?!)"


class Mark(Enum):
    """What is not a single character of a pattern."""

    STAR = "*"
    TREE = "**"
    SLASH = "/"


Token = Mark | str
"""A mark, or a regular expression for exactly one character."""


class MalformedPatternError(ValueError):
    """A pattern that can match nothing: an open bracket, an unknown class, a backslash at the end."""


def is_literal(pattern: str) -> bool:
    """Whether a pattern holds no wildcard and no escape."""
    return SPECIAL.isdisjoint(pattern)


def quote(character: str) -> str:
    """A regular expression for one character, within and without brackets."""
    plain = character.isalnum() or not character.isascii()
    return character if plain else f"\\x{ord(character):02x}"


def tokenize(pattern: str) -> list[Token]:
    """Split a pattern.

    `**` is a tree where it stands between slashes or at an end; git also takes it for one right after the literal
    beginning of a pattern (`foo**/bar`), and so does this. Elsewhere it is a star.

    Raises:
        MalformedPatternError: The pattern can match nothing.
    """
    tokens: list[Token] = []
    literal_end = next((index for index, character in enumerate(pattern) if character in SPECIAL), len(pattern))
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "*":
            end = index
            while end < len(pattern) and pattern[end] == "*":
                end += 1
            at_boundary = index == literal_end or tokens[-1] is Mark.SLASH
            closed = end == len(pattern) or pattern[end] == "/" or pattern.startswith("\\/", end)
            is_tree = end - index > 1 and at_boundary and closed
            tokens.append(Mark.TREE if is_tree else Mark.STAR)
            index = end
        elif character == "[":
            token, index = _bracket(pattern, index + 1)
            tokens.append(token)
        else:
            token, index = _single(pattern, index)
            tokens.append(token)
    return tokens


def _single(pattern: str, index: int) -> tuple[Token, int]:
    character = pattern[index]
    if character == "?":
        return "[^/]", index + 1
    if character == "\\":
        index += 1
        if index == len(pattern):
            raise MalformedPatternError
        character = pattern[index]
    return (Mark.SLASH if character == "/" else quote(character)), index + 1


def _bracket(pattern: str, index: int) -> tuple[str, int]:
    """The class that begins behind an opening bracket, and where it ends."""
    negated = pattern[index : index + 1] in ("!", "^") and index < len(pattern)
    index += negated
    start = index
    body: list[str] = []
    previous = ""
    while index == start or pattern[index : index + 1] != "]":
        if index >= len(pattern):
            raise MalformedPatternError
        if pattern.startswith("[:", index) and (end := _class_end(pattern, index)) is not None:
            body.append(_posix(pattern[index + 2 : end]))
            previous, index = "", end + 2
            continue
        is_range = previous and pattern[index] == "-" and pattern[index + 1 : index + 2] not in ("", "]")
        last, index = _class_character(pattern, index + bool(is_range))
        if is_range:
            body.append(f"{quote(previous)}-{quote(last)}" if previous <= last else "")
            previous = ""
        else:
            body.append(quote(last))
            previous = last
    inside = "".join(body)
    if negated:
        return f"[^/{inside}]", index + 1
    return (f"(?!/)[{inside}]" if inside else _NEVER), index + 1


def _class_end(pattern: str, index: int) -> int | None:
    """Where `[:name:]` closes, or `None` where the bracket is a plain character after all."""
    end = pattern.find("]", index + 2)
    return end - 1 if end > index + 2 and pattern[end - 1] == ":" else None


def _posix(name: str) -> str:
    if name not in _CLASSES:
        raise MalformedPatternError
    return _CLASSES[name]


def _class_character(pattern: str, index: int) -> tuple[str, int]:
    if pattern[index] == "\\":
        index += 1
    if index >= len(pattern):
        raise MalformedPatternError
    return pattern[index], index + 1


def segment_regex(tokens: Sequence[Token]) -> str:
    """The expression for tokens between two slashes. What follows it must be a slash or the end."""
    pieces: list[list[str]] = [[]]
    for token in tokens:
        if isinstance(token, Mark):
            pieces.append([])
        else:
            pieces[-1].append(token)
    first, *rest = ("".join(piece) for piece in pieces)
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


def path_regex(tokens: Sequence[Token]) -> str:
    """The expression for a whole path with slashes, to be used with `fullmatch` and `re.DOTALL`."""
    groups: list[list[Token]] = [[]]
    for index, token in enumerate(tokens):
        follows_tree = index > 0 and tokens[index - 1] is Mark.TREE
        if token is Mark.TREE:
            groups.append([])
        elif not (token is Mark.SLASH and follows_tree):
            groups[-1].append(token)
    first, *rest = (_segments_regex(group) for group in groups)
    if not rest:
        return first
    *middle, last = rest
    between = "".join(f"(?>(?:.*?/)??{group})" for group in middle if group)
    return first + between + (f"(?:.*/)?{last}" if last else ".*")


def _segments_regex(tokens: Sequence[Token]) -> str:
    cuts = [-1, *(index for index, token in enumerate(tokens) if token is Mark.SLASH), len(tokens)]
    return "/".join(segment_regex(tokens[before + 1 : after]) for before, after in pairwise(cuts))


def base_name_regex(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One expression for base names of which `*` and `?` alone are special; `None` for no pattern."""
    wanted: list[str] = []
    for pattern in patterns:
        marks: dict[str, Token] = {"*": Mark.STAR, "?": "."}
        wanted.append(segment_regex([marks.get(character) or quote(character) for character in pattern]))
    return re.compile("|".join(wanted), re.DOTALL) if wanted else None
