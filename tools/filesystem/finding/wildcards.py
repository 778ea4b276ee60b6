"""Wildcards as regular expressions that cannot run away: stars, question marks, brackets, escapes, `**`.

The one translation behind ignore files, glob patterns and file filters. A star is followed by pieces of fixed
length, so its first possible end is as good as any later one and is never tried again (atomic groups): a hostile
pattern costs at most its length times the path's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
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
    closing = index
    while index == start or pattern[index : index + 1] != "]":
        if index >= len(pattern):
            raise MalformedPatternError
        if pattern.startswith("[:", index):
            if closing < index + 2:
                # Looked for once for all that come before it: otherwise many of them cost their number squared.
                closing = _closing(pattern, index + 2)
            if closing > index + 2 and pattern[closing - 1] == ":":
                body.append(_posix(pattern[index + 2 : closing - 1]))
                previous, index = "", closing + 1
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


def _closing(pattern: str, index: int) -> int:
    end = pattern.find("]", index)
    if end < 0:
        raise MalformedPatternError
    return end


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
    between = "".join(f"(?>[^/]*?{piece})" for piece in middle if piece)
    if not last:
        return f"{first}{between}[^/]*"
    # The last piece is looked at once, at the end of the name, not at every place that it could begin.
    return f"{first}{between}(?=[^/]{{{len(pieces[-1])}}})[^/]*+(?<={last})"


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


def as_name(tokens: Sequence[Token]) -> list[Token]:
    """A pattern for a name: there are no folders, so `**` is a star."""
    return [Mark.STAR if token is Mark.TREE else token for token in tokens]


class Automaton:
    """Patterns of any length and number, matched all at once in one pass over a path.

    Each place in a pattern is a bit of a large number that is set while the path so far fits up to there, so a
    character costs a few operations on numbers, however many stars there are, and nothing is ever tried again.

    Args:
        patterns: The tokens of each.
        ignore_case: Whether upper and lower case are the same.
    """

    __slots__ = (
        "_ends",
        "_flags",
        "_lasting",
        "_masks",
        "_owners",
        "_places",
        "_shortest",
        "_stars",
        "_starts",
        "_tests",
        "_trees",
    )

    def __init__(self, patterns: Sequence[Sequence[Token]], *, ignore_case: bool = False) -> None:
        self._flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        self._places: dict[Token, list[int]] = {}
        self._masks: dict[str, int] = {}
        self._tests: dict[str, re.Pattern[str]] = {}
        self._owners: dict[int, int] = {}
        starts: list[int] = []
        stars: list[int] = []
        trees: list[int] = []
        place = 0
        lengths: list[int] = []
        lasting: list[int] = []
        for owner, tokens in enumerate(patterns):
            starts.append(place)
            for index, token in enumerate(tokens):
                if token is Mark.STAR:
                    stars.append(place)
                elif token is Mark.TREE:
                    trees.append(place)
                elif not (token is Mark.SLASH and index > 0 and tokens[index - 1] is Mark.TREE):
                    self._places.setdefault(token, []).append(place)
                    place += 1
            if trees and trees[-1] == place:
                lasting.append(trees.pop())
            lengths.append(place - starts[-1])
            self._owners[place] = owner
            place += 1
        self._shortest = min(lengths, default=0)
        self._starts, self._stars, self._trees = _bits(starts), _bits(stars), _bits(trees)
        self._lasting, self._ends = _bits(lasting), _bits(self._owners)

    def fits(self, path: str) -> bool:
        """Whether one of the patterns fits a whole path."""
        return self.last(path) is not None

    def last(self, path: str) -> int | None:
        """The index of the last pattern that fits a whole path."""
        if len(path) < self._shortest:
            return None
        here = self._starts
        below = here & self._trees
        for character in path:
            is_slash = character == "/"
            stay = self._lasting if is_slash else self._stars | self._lasting
            here = ((here & self._mask(character)) << 1) | (here & stay) | (below if is_slash else 0)
            below |= here & self._trees
            if not here and not below:
                return None
        ended = here & self._ends
        return self._owners[ended.bit_length() - 1] if ended else None

    def _mask(self, character: str) -> int:
        """The places that this character fits."""
        mask = self._masks.get(character)
        if mask is None:
            mask = self._masks[character] = _bits(
                place for token, places in self._places.items() if self._is(token, character) for place in places
            )
        return mask

    def _is(self, token: Token, character: str) -> bool:
        if isinstance(token, Mark):
            return character == "/"
        if token == quote(character):
            return True
        test = self._tests.get(token)
        if test is None:
            test = self._tests[token] = re.compile(token, self._flags)
        return test.fullmatch(character) is not None


def _bits(places: Iterable[int]) -> int:
    """A number in which these bits are set."""
    wanted = [*places]
    data = bytearray(max(wanted, default=0) // 8 + 1)
    for place in wanted:
        data[place // 8] |= 1 << place % 8
    return int.from_bytes(data, "little")


def base_name_test(patterns: Sequence[str]) -> Callable[[str], object] | None:
    """What tells whether a base name fits patterns in which `*` and `?` alone are special; `None` for no pattern."""
    marks: dict[str, Token] = {"*": Mark.STAR, "?": "."}
    wanted = [[marks.get(character) or quote(character) for character in pattern] for pattern in patterns]
    if not wanted:
        return None
    if not all(map(suits_regex, wanted)):
        return Automaton(wanted).fits
    return re.compile("|".join(map(segment_regex, wanted)), re.DOTALL).fullmatch
