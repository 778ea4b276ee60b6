"""Wildcards as regular expressions that cannot run away.

A star is followed by pieces of fixed length, so its first possible end is as good as any later one and is never tried
again (atomic groups): a hostile pattern costs at most its length times the path's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from tools.filesystem.finding.automaton import Automaton
from tools.filesystem.finding.tokens import ANY_CHARACTER, CharacterSet, Mark, Token, as_name


def _quoted(character: str) -> str:
    """A regular expression for one character, within and without brackets."""
    plain = character.isalnum() or not character.isascii()
    return character if plain else f"\\x{ord(character):02x}"


def segment_regex(tokens: Sequence[Token]) -> str:
    """The expression for tokens between two slashes. What follows it must be a slash or the end."""
    pieces: list[list[str]] = [[]]
    for token in tokens:
        if isinstance(token, Mark):
            pieces.append([])
        else:
            pieces[-1].append(_set_regex(token) if isinstance(token, CharacterSet) else _quoted(token))
    first, *rest = ("".join(piece) for piece in pieces)
    if not rest:
        return first
    *middle, last = rest
    between = "".join(f"(?>[^/]*?{piece})" for piece in middle if piece)
    if not last:
        return f"{first}{between}[^/]*"
    # The last piece is looked at once, at the end of the name, not at every place that it could begin.
    return f"{first}{between}(?=[^/]{{{len(pieces[-1])}}})[^/]*+(?<={last})"


def _set_regex(characters: CharacterSet) -> str:
    ranges = (
        _quoted(first) if first == last else f"{_quoted(first)}-{_quoted(last)}" for first, last in characters.ranges
    )
    inside = "".join(ranges)
    return f"[^/{inside}]" if characters.negated else f"(?!/)[{inside}]"


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


MAX_REGEX_MARKS = 16
"""Stars and trees of a pattern that becomes a regular expression; compiling one costs about 15 microseconds."""

MAX_REGEX_TOKENS = 512
"""Tokens of such a pattern; no name is longer than 255 bytes."""


def suits_regex(tokens: Sequence[Token]) -> bool:
    """Whether a pattern is as somebody would write it; else `Automaton` matches it."""
    return len(tokens) <= MAX_REGEX_TOKENS and sum(isinstance(token, Mark) for token in tokens) <= MAX_REGEX_MARKS


def name_matcher(tokens: Sequence[Token], *, ignore_case: bool) -> Callable[[str], bool]:
    """What tells whether a name without slashes fits; it takes time of the order of the name's length."""
    if not suits_regex(tokens):
        return Automaton([as_name(tokens)], ignore_case=ignore_case).fits
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    expression = re.compile(segment_regex(tokens), flags)
    return lambda name: expression.fullmatch(name) is not None


def base_name_test(patterns: Sequence[str]) -> Callable[[str], object] | None:
    """What tells whether a base name fits patterns in which `*` and `?` alone are special; `None` for no pattern."""
    marks: dict[str, Token] = {"*": Mark.STAR, "?": ANY_CHARACTER}
    wanted = [[marks.get(character) or character for character in pattern] for pattern in patterns]
    if not wanted:
        return None
    if not all(map(suits_regex, wanted)):
        return Automaton(wanted).fits
    return re.compile("|".join(map(segment_regex, wanted)), re.DOTALL).fullmatch
