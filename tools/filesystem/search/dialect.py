r"""The one dialect of content search: what ripgrep's engine and Python's `re` mean alike, read by our own parser.

A pattern is read into a tree and written out anew for each engine, so nothing depends on how an engine would have
read it. Literals, `.`, classes, `\d \w \s \b` and their opposites, groups, alternatives, repetitions greedy or lazy,
`^`, `$` and a leading `(?i)`. What the engines do not share (look-around, back-references, `[[:class:]]`) is refused
with a sentence that names it. A pattern never crosses a line; `$` also fits before the CR of a CRLF line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from tools.filesystem.search.tree import (
    UNLIMITED,
    Anchor,
    Chain,
    Char,
    CharClass,
    Choice,
    Node,
    Pattern,
    Repeat,
    write_character,
)

MAX_PATTERN_CHARS = 10_000
MAX_REPEAT = 1_000
"""Highest count in `{m,n}`. What ripgrep still cannot compile goes to our own engine."""

MAX_REPEATED = 1_000_000
"""How often repetitions within repetitions may repeat something together. What is as large no engine searches for; and
what is empty but stands for billions of ways takes an engine for ever."""

MAX_DEPTH = 100
"""Groups within groups."""

_SPACES = "\\t\\x0b\\x0c\\r \\x85\\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's white space without the line feed, as ripgrep has it."""

_CONTROLS = {"t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_REPEAT = re.compile(r"\{(?:(\d{1,9})(?:(,)(\d{1,9})?)?|,(\d{1,9}))\}")
_FLAGS = re.compile(r"\(\?([a-z]+)\)")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")

_REFUSED_GROUPS = {
    "(?=": "look-ahead (?=...)",
    "(?!": "negative look-ahead (?!...)",
    "(?<=": "look-behind (?<=...)",
    "(?<!": "negative look-behind (?<!...)",
    "(?P=": "the back-reference (?P=...)",
    "(?>": "the atomic group (?>...)",
    "(?#": "the comment (?#...)",
    "(?(": "the conditional group (?(...)",
    "(?R": "recursion (?R)",
}


class PatternError(ValueError):
    """A pattern that is not searched for; the text is a sentence for the model."""


def parse_pattern(pattern: str) -> Pattern:
    """Read a pattern.

    Raises:
        PatternError: It is not valid, or uses what the engines do not share.
    """
    if not pattern:
        raise PatternError("it is empty")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternError(f"it is longer than {MAX_PATTERN_CHARS:,} characters")
    return _Parser(pattern).parse()


class _Parser:
    """A recursive descent over one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._repeated_within = 1
        """How often the repetitions within what was read last repeat something together."""

    def parse(self) -> Pattern:
        ignore_case = False
        while flags := _FLAGS.match(self._text, self._at):
            unknown = set(flags[1]) - set("ims")
            if unknown:
                self._refuse(f"the inline flag (?{min(unknown)})", "leave it out")
            ignore_case |= "i" in flags[1]
            self._at = flags.end()
        tree = self._choice()
        if self._at < len(self._text):
            raise PatternError(
                f"there is a closing parenthesis too many at position {self._at}; write \\) for a literal"
            )
        return Pattern(tree, ignore_case)

    def _refuse(self, construct: str, instead: str) -> NoReturn:
        raise PatternError(f"{construct} is not supported by this search; {instead}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> Node:
        items = [self._sequence()]
        most = self._repeated_within
        while self._peek() == "|":
            self._at += 1
            items.append(self._sequence())
            most = max(most, self._repeated_within)
        self._repeated_within = most
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self) -> Node:
        items: list[Node] = []
        most = 1
        while self._peek() not in ("", "|", ")"):
            start = self._at
            self._repeated_within = 1
            items.append(self._repeated(self._atom(), start))
            most = max(most, self._repeated_within)
        self._repeated_within = most
        return items[0] if len(items) == 1 else Chain(tuple(items))

    def _repeated(self, item: Node, start: int) -> Node:
        counts = self._counts()
        if counts is None:
            return item
        if isinstance(item, Anchor):
            raise PatternError(f"there is nothing to repeat before position {self._at}")
        lazy = self._peek() == "?"
        if lazy:
            self._at += 1
        if self._peek() == "+":
            self._refuse("the possessive repetition", "write the repetition without the second +")
        if self._counts() is not None:
            raise PatternError(f"two repetitions follow each other at position {self._at}; group the first, or escape")
        self._repeated_within *= max(1, *counts)
        if self._repeated_within > MAX_REPEATED:
            raise PatternError(
                f"its repetitions within repetitions up to position {self._at} repeat something more than "
                f"{MAX_REPEATED:,} times; use smaller counts"
            )
        return Repeat(item, *counts, lazy, spelled=self._text[start : self._at])

    def _counts(self) -> tuple[int, int] | None:
        character = self._peek()
        if character and character in "*+?":
            self._at += 1
            return int(character == "+"), 1 if character == "?" else UNLIMITED
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        least = int(found[1] or 0)
        most = int(found[4] or found[3] or (UNLIMITED if found[2] else least))
        if max(least, most) > MAX_REPEAT or UNLIMITED != most < least:
            raise PatternError(f"the repetition {found[0]} is not valid; counts go up to {MAX_REPEAT:,} and must rise")
        return least, most

    def _atom(self) -> Node:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            return self._bracket()
        if character == "\\":
            return self._escape()
        if character in "*+?" or _REPEAT.match(self._text, self._at):
            raise PatternError(f"there is nothing to repeat at position {self._at}; write \\{character} for a literal")
        self._at += 1
        if character == ".":
            return CharClass("", negated=True)
        if character in "^$":
            return Anchor(character)
        return self._literal(character)

    def _literal(self, character: str) -> Char:
        if character == "\n":
            raise PatternError("it holds a line feed, but the search is line by line; search for one of the lines")
        if "\ud800" <= character <= "\udfff":
            raise PatternError("it holds half of a surrogate pair, which is no character")
        return Char(character)

    def _group(self) -> Node:
        start = self._at
        for opening, construct in _REFUSED_GROUPS.items():
            if self._text.startswith(opening, start):
                self._refuse(construct, "search for the plain text and filter with exclude_pattern, or read the file")
        named = _NAMED.match(self._text, start)
        if named:
            self._at = named.end()
        elif self._text.startswith("(?:", start):
            self._at += 3
        elif self._text.startswith("(?", start):
            self._refuse(f"the group {self._text[start : start + 4]}", "use (...) or (?:...); (?i) only at the start")
        else:
            self._at += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError(f"its groups are nested more than {MAX_DEPTH} deep")
        tree = self._choice()
        self._depth -= 1
        if self._peek() != ")":
            raise PatternError(f"the parenthesis at position {start} is not closed; write \\( for a literal one")
        self._at += 1
        return Chain((tree,)) if isinstance(tree, Anchor) else tree

    def _escape(self) -> Node:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter and letter in "bB":
            self._at += 2
            return Anchor(f"\\{letter}")
        if letter and letter in "dDwWsS":
            self._at += 2
            return _shorthand(letter)
        return self._literal(self._escaped_character())

    def _escaped_character(self) -> str:
        """The character that the escape here stands for."""
        letter = self._text[self._at + 1 : self._at + 2]
        if not letter:
            raise PatternError("it ends in a backslash; write \\\\ for a literal one")
        if letter in _HEX_DIGITS:
            return self._hexadecimal(_HEX_DIGITS[letter])
        self._at += 2
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "n":
            return "\n"
        if letter.isdigit():
            self._refuse(f"the back-reference \\{letter}", "write out what it stands for")
        if letter.isascii() and letter.isalpha():
            self._refuse(f"the escape \\{letter}", "use a class such as [...] or a literal character")
        return letter

    def _hexadecimal(self, digits: int) -> str:
        rest = self._text[self._at + 2 :]
        found = re.match(r"\{([0-9a-fA-F]{1,8})\}", rest) or re.match(rf"([0-9a-fA-F]{{{digits}}})", rest)
        code = int(found[1], 16) if found else -1
        if found is None or not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise PatternError(f"the escape at position {self._at} names no character")
        self._at += 2 + found.end()
        return chr(code)

    def _bracket(self) -> Node:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        body: list[str] = []
        outside: list[Node] = []
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise PatternError(f"the bracket at position {start} is not closed; write \\[ for a literal one")
            letter = self._text[self._at + 1 : self._at + 2] if self._peek() == "\\" else ""
            if letter and letter in "DWS" and not negated:
                # A class within a class would bring back the line feed, so it stands beside it.
                outside.append(_shorthand(letter))
                self._at += 2
            else:
                body.append(self._bracket_item())
            first = False
        self._at += 1
        own = CharClass("".join(body), negated=negated)
        if not outside:
            return own
        return Choice((*outside, own)) if body else Choice(tuple(outside))

    def _bracket_item(self) -> str:
        for opening in ("[:", "[=", "[."):
            if self._text.startswith(opening, self._at) and f"{opening[1]}]" in self._text[self._at + 2 :]:
                self._refuse("[[:class:]]", "use \\w, \\d, \\s or a range such as [A-Za-z]")
        shorthand = self._text[self._at : self._at + 2]
        if shorthand[:1] == "\\" and shorthand[1:] in tuple("dDwWsS"):
            self._at += 2
            return _SPACES if shorthand[1] == "s" else shorthand
        first = self._bracket_character()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return write_character(first)
        self._at += 1
        if self._peek() == "\\" and self._text[self._at + 1 : self._at + 2] in tuple("dDwWsS"):
            raise PatternError(f"the range at position {self._at} has a class as its end; put the - last")
        last = self._bracket_character()
        if last < first:
            raise PatternError(f"the range {first}-{last} runs backwards")
        return f"{write_character(first)}-{write_character(last)}"

    def _bracket_character(self) -> str:
        if self._text.startswith("\\b", self._at):
            self._at += 2
            return "\b"
        if self._peek() == "\\":
            return self._escaped_character()
        self._at += 1
        return self._text[self._at - 1]


def _shorthand(letter: str) -> CharClass:
    lower = letter.lower()
    return CharClass(_SPACES if lower == "s" else f"\\{lower}", negated=letter.isupper())


def literal_pattern(text: str) -> Pattern:
    """A pattern for a fixed text.

    Raises:
        PatternError: It is empty or holds a line feed.
    """
    if not text:
        raise PatternError("it is empty")
    if "\n" in text:
        raise PatternError("it holds a line feed, but the search is line by line; search for one of the lines")
    characters: Sequence[Node] = [Char(character) for character in text]
    return Pattern(Chain(tuple(characters)), ignore_case=False)
