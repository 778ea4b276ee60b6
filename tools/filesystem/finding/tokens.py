"""Wildcard patterns as tokens: stars, question marks, brackets, escapes, `**`.

The one reading of what is behind ignore files, glob patterns and file filters. What the tokens fit is told by
`tools.filesystem.finding.wildcards` and, for very many of them, by `tools.filesystem.finding.automaton`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

_CLASSES: dict[str, tuple[str, ...]] = {
    "alnum": ("09", "AZ", "az"),
    "alpha": ("AZ", "az"),
    "blank": ("  ", "\t\t"),
    "cntrl": ("\x00\x1f", "\x7f\x7f"),
    "digit": ("09",),
    "graph": ("!~",),
    "lower": ("az",),
    "print": (" ~",),
    "punct": ("!/", ":@", "[`", "{~"),
    "space": ("\t\r", "  "),
    "upper": ("AZ",),
    "xdigit": ("09", "AF", "af"),
}
"""The POSIX classes within brackets, for ASCII, as git has them; each range by its first and last character."""

SPECIAL = frozenset("*?[\\")
"""Characters that make a pattern more than a literal."""


class Mark(Enum):
    """What is not a single character of a pattern."""

    STAR = "*"
    TREE = "**"
    SLASH = "/"


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """One character of a set, which never is a slash.

    Args:
        ranges: The first and the last character of each, as written.
        negated: The characters outside are meant.
    """

    ranges: tuple[str, ...]
    negated: bool = False

    def holds(self, characters: Iterable[str]) -> bool:
        """Whether a character is in it, given in all its spellings in upper and lower case that count as one."""
        within = any(ends[0] <= character <= ends[1] for character in characters for ends in self.ranges)
        return within is not self.negated


ANY_CHARACTER = CharacterSet((), negated=True)
"""`?`"""

Token = Mark | str | CharacterSet
"""A mark, a literal character, or a set of characters."""


class MalformedPatternError(ValueError):
    """A pattern that can match nothing: an open bracket, an unknown class, a backslash at the end."""


def is_literal(pattern: str) -> bool:
    """Whether a pattern holds no wildcard and no escape."""
    return SPECIAL.isdisjoint(pattern)


def literal_start(pattern: str) -> str:
    """What everything begins with that a pattern fits."""
    return pattern[: _literal_end(pattern)]


def _literal_end(pattern: str) -> int:
    return next((index for index, character in enumerate(pattern) if character in SPECIAL), len(pattern))


def tokenize(pattern: str) -> list[Token]:
    """Split a pattern.

    `**` is a tree where it stands between slashes or at an end; git also takes it for one right after the literal
    beginning of a pattern (`foo**/bar`), and so does this. Elsewhere it is a star.

    Raises:
        MalformedPatternError: The pattern can match nothing.
    """
    tokens: list[Token] = []
    literal_end = _literal_end(pattern)
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
        return ANY_CHARACTER, index + 1
    if character == "\\":
        index += 1
        if index == len(pattern):
            raise MalformedPatternError
        character = pattern[index]
    return (Mark.SLASH if character == "/" else character), index + 1


def _bracket(pattern: str, index: int) -> tuple[CharacterSet, int]:
    """The set that begins behind an opening bracket, and where it ends."""
    negated = pattern[index : index + 1] in ("!", "^") and index < len(pattern)
    index += negated
    start = index
    ranges: list[str] = []
    previous = ""
    closing = index
    while index == start or pattern[index : index + 1] != "]":
        if index >= len(pattern):
            raise MalformedPatternError
        if pattern.startswith("[:", index):
            if closing < index + 2:
                # Looked for once for all that come before it: otherwise many of them cost their number squared.
                closing = _closing(pattern, index + 2)
            if closing > index + 2 and pattern[closing - 1] == ":":
                ranges += _posix(pattern[index + 2 : closing - 1])
                previous, index = "", closing + 1
                continue
        is_range = previous and pattern[index] == "-" and pattern[index + 1 : index + 2] not in ("", "]")
        last, index = _class_character(pattern, index + bool(is_range))
        if is_range:
            if previous <= last:
                ranges[-1] = previous + last  # what was taken for a character by itself was the first of a range
            previous = ""
        else:
            ranges.append(last * 2)
            previous = last
    return CharacterSet(tuple(ranges), negated), index + 1


def _closing(pattern: str, index: int) -> int:
    end = pattern.find("]", index)
    if end < 0:
        raise MalformedPatternError
    return end


def _posix(name: str) -> tuple[str, ...]:
    if name not in _CLASSES:
        raise MalformedPatternError
    return _CLASSES[name]


def _class_character(pattern: str, index: int) -> tuple[str, int]:
    if pattern[index] == "\\":
        index += 1
    if index >= len(pattern):
        raise MalformedPatternError
    return pattern[index], index + 1


def as_name(tokens: Iterable[Token]) -> list[Token]:
    """A pattern for a name: there are no folders, so `**` is a star."""
    return [Mark.STAR if token is Mark.TREE else token for token in tokens]
