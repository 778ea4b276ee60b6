"""Tells the options of a command from its operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

TAR_VALUED = "bfgCFHIKLNTVX"  # the letters of tar that take a word


@dataclass(frozen=True, slots=True)
class Arguments:
    # Each with its value, by name: `-o` or `--output`. What is shorter than a known name stands for every one that
    # begins with it.
    options: tuple[tuple[str, Word | None], ...]
    operands: tuple[Word, ...]  # what is no option and no value of one
    has_open: bool  # whether a word may turn out to be an option that is not listed

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word | None]:
        return [value for name, value in self.options if name in names]


def parse(arguments: Sequence[Word], valued: Iterable[str] = ()) -> Arguments:
    """Tell options from operands by the GNU conventions, which let long options be shortened.

    Those with a value are called `o` or `output`.
    """
    known = frozenset(valued)
    options: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    has_open, at = False, 0
    while at < len(arguments):
        word, at = arguments[at], at + 1
        following = arguments[at] if at < len(arguments) else None
        text = word.text
        if not word.is_literal:
            has_open = has_open or word.may_be_option
            operands.append(word)
            # It may be an option of which only the beginning is known: `-o$X`, `--output=$X`.
            beginning, source = word.prefix, word.source
            if beginning.startswith("--") and "=" in beginning:
                name, value = beginning[2:].partition("=")[0], read_word(source.partition("=")[2])
                found = [each for each in known if len(each) > 1 and each.startswith(name)]
                options += [(f"--{each}", value) for each in found or [name]]
            elif beginning.startswith("-") and not beginning.startswith("--"):
                place = next((place for place, letter in enumerate(beginning[1:], start=2) if letter in known), 0)
                if place:
                    is_plain = source.startswith(beginning[:place])
                    value = read_word(source[place:]) if is_plain else unknown(source)
                    options.append((f"-{beginning[place - 1]}", value))
        elif text == "--":
            operands.extend(arguments[at:])
            break
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            given = literal(value) if equals else following
            if name[2:] in known:
                options.append((name, given))
                at += not equals
                continue
            options.append((name, given if equals else None))
            # It may as well be the beginning of a name. Whether it takes the next word is not known: it counts as both.
            options += [
                (f"--{each}", given) for each in known if len(each) > 1 and name != "--" and each.startswith(name[2:])
            ]
        elif text.startswith("-") and text != "-":
            # One with a value takes what is left of the word, or the next word.
            for place, letter in enumerate(text[1:], start=2):
                if letter in known:
                    options.append((f"-{letter}", literal(text[place:]) if text[place:] else following))
                    at += not text[place:]
                    break
                options.append((f"-{letter}", None))
        else:
            operands.append(word)
    return Arguments(tuple(options), tuple(operands), has_open)


def with_dashes(arguments: Sequence[Word], valued: str) -> Sequence[Word]:
    """The same with dashes: in `tar cfI a gzip b` a valued letter of the first word takes the next word."""
    if not arguments or not arguments[0].text[:1].isalpha():
        return arguments
    words: list[Word] = []
    rest = iter(arguments[1:])
    for letter in arguments[0].text:
        words.append(literal(f"-{letter}"))
        if letter in valued:
            words.extend(islice(rest, 1))
    return [*words, *rest]
