"""Wildcard patterns of any length and number, matched all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tools.filesystem.finding.tokens import CharacterSet, Mark, Token


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
        "_ignore_case",
        "_lasting",
        "_literals",
        "_masks",
        "_owners",
        "_sets",
        "_shortest",
        "_stars",
        "_starts",
        "_trees",
    )

    def __init__(self, patterns: Sequence[Sequence[Token]], *, ignore_case: bool = False) -> None:
        self._ignore_case = ignore_case
        self._literals: dict[str, list[int]] = {}
        self._sets: dict[CharacterSet, list[int]] = {}
        self._masks: dict[str, int] = {}
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
                    self._add(token, place)
                    place += 1
            if trees and trees[-1] == place:
                lasting.append(trees.pop())
            lengths.append(place - starts[-1])
            self._owners[place] = owner
            place += 1
        self._shortest = min(lengths, default=0)
        self._starts, self._stars, self._trees = _bits(starts), _bits(stars), _bits(trees)
        self._lasting, self._ends = _bits(lasting), _bits(self._owners)

    def _add(self, token: Token, place: int) -> None:
        if isinstance(token, CharacterSet):
            self._sets.setdefault(token, []).append(place)
            return
        character = token.value if isinstance(token, Mark) else token
        self._literals.setdefault(_folded(character) if self._ignore_case else character, []).append(place)

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
            mask = self._masks[character] = _bits(self._places(character))
        return mask

    def _places(self, character: str) -> Iterator[int]:
        yield from self._literals.get(_folded(character) if self._ignore_case else character, ())
        spellings = _spellings(character) if self._ignore_case else (character,)
        for characters, places in self._sets.items() if character != "/" else ():
            if characters.holds(spellings):
                yield from places


def _folded(character: str) -> str:
    """The one of its spellings in upper and lower case that stands for all of them."""
    upper = character.upper()
    lower = (upper if len(upper) == 1 else character).lower()
    return lower if len(lower) == 1 else character


def _spellings(character: str) -> set[str]:
    cases = (character, character.upper(), character.lower(), _folded(character))
    return {case for case in cases if len(case) == 1}


def _bits(places: Iterable[int]) -> int:
    """A number in which these bits are set."""
    wanted = [*places]
    data = bytearray(max(wanted, default=0) // 8 + 1)
    for place in wanted:
        data[place // 8] |= 1 << place % 8
    return int.from_bytes(data, "little")
