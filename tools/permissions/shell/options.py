"""Tells the options of a command from its operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.permissions.shell.words import Word, literal


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a command.

    Args:
        options: Each with its value, by name: `-o` or `--output`.
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
    """Tell options from operands by the GNU conventions.

    Args:
        arguments: The words behind the name.
        valued: The options that take a value: `o` or `output`.
    """
    names = frozenset(valued)
    options: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    has_open = False
    rest = iter(arguments)
    for word in rest:
        text = word.text
        if not word.is_literal:
            has_open = has_open or word.may_be_option
            operands.append(word)
        elif text == "--":
            operands.extend(rest)
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            given = literal(value) if equals else next(rest, None) if name[2:] in names else None
            options.append((name, given))
        elif text.startswith("-") and text != "-":
            options.extend(_cluster(text, names, rest))
        else:
            operands.append(word)
    return Arguments(tuple(options), tuple(operands), has_open)


def _cluster(text: str, valued: frozenset[str], rest: Iterable[Word]) -> list[tuple[str, Word | None]]:
    """The short options of one word; one with a value takes what is left of the word, or the next word."""
    found: list[tuple[str, Word | None]] = []
    for place, letter in enumerate(text[1:], start=2):
        if letter in valued:
            value = literal(text[place:]) if text[place:] else next(iter(rest), None)
            found.append((f"-{letter}", value))
            break
        found.append((f"-{letter}", None))
    return found
