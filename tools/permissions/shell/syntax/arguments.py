"""Tells the options of a command from its operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

TAR_VALUED = "bfgCFHIKLNTVX"
"""The letters of tar that take a word."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a command.

    Args:
        options: Each with its value, by name: `-o` or `--output`. What is shorter than a known name stands for every
            one that begins with it.
        operands: What is no option and no value of one.
        has_open: Whether a word may turn out to be an option that is not listed.
    """

    options: tuple[tuple[str, Word | None], ...]
    operands: tuple[Word, ...]
    has_open: bool

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return any(name in names for name, _ in self.options)


def parse(arguments: Sequence[Word], valued: Iterable[str] = ()) -> Arguments:
    """Tell options from operands by the GNU conventions, which let long options be shortened.

    Args:
        arguments: The words behind the name.
        valued: The options that take a value: `o` or `output`.
    """
    reading = _Reading(arguments, frozenset(valued))
    reading.read()
    return Arguments(tuple(reading.options), tuple(reading.operands), reading.has_open)


def dashed(arguments: Sequence[Word], valued: str) -> Sequence[Word]:
    """The same with dashes: in `tar cfI a gzip b` each letter of the first word takes the next of the words behind it.

    Args:
        arguments: The words behind the name.
        valued: The letters that take a word.
    """
    if not arguments or not arguments[0].text[:1].isalpha():
        return arguments
    words: list[Word] = []
    rest = iter(arguments[1:])
    for letter in arguments[0].text:
        words.append(literal(f"-{letter}"))
        if letter in valued:
            words.extend(islice(rest, 1))
    return [*words, *rest]


class _Reading:
    """Goes through the words of a command from left to right."""

    def __init__(self, arguments: Sequence[Word], valued: frozenset[str]) -> None:
        self._words = arguments
        self._valued = valued
        self._at = 0
        self.options: list[tuple[str, Word | None]] = []
        self.operands: list[Word] = []
        self.has_open = False

    def read(self) -> None:
        while (word := self._next()) is not None:
            text = word.text
            if not word.is_literal:
                self.has_open = self.has_open or word.may_be_option
                self._take_open(word)
                self.operands.append(word)
            elif text == "--":
                self.operands.extend(self._words[self._at :])
                return
            elif text.startswith("--"):
                self._take_long(text)
            elif text.startswith("-") and text != "-":
                self._take_short(text)
            else:
                self.operands.append(word)

    def _next(self) -> Word | None:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else None

    def _take_long(self, text: str) -> None:
        name, equals, value = text.partition("=")
        given = literal(value) if equals else None
        if name[2:] in self._valued:
            self.options.append((name, given or self._next()))
            return
        self.options.append((name, given))
        # It may as well be the beginning of a name. Whether it takes the next word is not known: that counts as both.
        value_word = given or (self._words[self._at] if self._at < len(self._words) else None)
        for known in self._valued:
            if len(known) > 1 and name != "--" and known.startswith(name[2:]):
                self.options.append((f"--{known}", value_word))

    def _take_open(self, word: Word) -> None:
        """An option of which only the beginning is known: `-o$X`, `--output=$X`."""
        known, source = word.prefix, word.source
        if known.startswith("--") and "=" in known:
            name, value = known[2:].partition("=")[0], read_word(source.partition("=")[2])
            found = [each for each in self._valued if len(each) > 1 and each.startswith(name)]
            self.options += [(f"--{each}", value) for each in found or [name]]
        elif known.startswith("-") and not known.startswith("--"):
            for place, letter in enumerate(known[1:], start=2):
                if letter in self._valued:
                    is_plain = source.startswith(known[:place])
                    self.options.append((f"-{letter}", read_word(source[place:]) if is_plain else unknown(source)))
                    return

    def _take_short(self, text: str) -> None:
        """The options of one word; one with a value takes what is left of the word, or the next word."""
        for place, letter in enumerate(text[1:], start=2):
            if letter in self._valued:
                rest = text[place:]
                self.options.append((f"-{letter}", literal(rest) if rest else self._next()))
                return
            self.options.append((f"-{letter}", None))
