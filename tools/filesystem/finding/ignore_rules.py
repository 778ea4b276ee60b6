"""One ignore file as rules, matched the way git matches them: the last rule that fits decides.

Names are compared byte by byte, as git does: a `?` stands for one byte. Text therefore holds one character for each
byte (see `as_bytes_text`).
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tools.filesystem.finding.wildcards import (
    Automaton,
    MalformedPatternError,
    Token,
    as_name,
    is_literal,
    path_regex,
    segment_regex,
    suits_regex,
    tokenize,
)

IGNORE_CASE = sys.platform in ("win32", "darwin")
"""git's `core.ignoreCase` as it is set when a repository is made on these systems."""

_NO_RULE = -1

MAX_REGEX_TOKENS = 20_000
"""Tokens of the rules of one file that become one regular expression: more than a thousand rules as people write them.

Compiling takes about a microsecond for each. What is beyond that, or has very many stars, counts just the same: it is
matched in another way, which needs no compiling.
"""


def as_bytes_text(name: str) -> str:
    """A file name with one character for each of its bytes; the name itself while it is ASCII."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of an ignore file.

    Args:
        pattern: Without `!`, a leading and a trailing slash.
        negated: It brings back what an earlier rule hid.
        folders_only: It ended in a slash.
        by_name: It holds no slash and fits a base name at any depth below.
    """

    pattern: str
    negated: bool
    folders_only: bool
    by_name: bool


class _Matcher:
    """Finds the last of some rules that fits: dictionaries for literals, one expression for the rest."""

    __slots__ = ("_by_name", "_by_path", "_ending_rules", "_endings", "_names", "_paths")

    def __init__(self, rules: Sequence[tuple[int, _Rule]]) -> None:
        self._names: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        ending_rules: dict[str, int] = {}
        self._by_name = _Wildcards(by_name=True)
        self._by_path = _Wildcards(by_name=False)
        for index, rule in rules:
            pattern = rule.pattern.lower() if IGNORE_CASE else rule.pattern
            if is_literal(pattern):
                (self._names if rule.by_name else self._paths)[pattern] = index
            elif rule.by_name and pattern[0] == "*" and is_literal(pattern[1:]):
                ending_rules[pattern[1:]] = index
            elif (tokens := _tokens(pattern)) is not None:
                (self._by_name if rule.by_name else self._by_path).add(index, tokens)
        self._ending_rules: Mapping[str, int] = ending_rules
        self._endings = tuple(ending_rules)

    def last(self, name: str, path: str) -> int:
        """The index of the last rule that fits, or -1."""
        if IGNORE_CASE:
            name, path = name.lower(), path.lower()
        found = max(self._names.get(name, _NO_RULE), self._paths.get(path, _NO_RULE))
        if self._endings and name.endswith(self._endings):
            found = max(found, *(index for end, index in self._ending_rules.items() if name.endswith(end)))
        return max(found, self._by_name.last(name), self._by_path.last(path))


def _tokens(pattern: str) -> list[Token] | None:
    try:
        return tokenize(pattern)
    except MalformedPatternError:
        return None


class _Wildcards:
    """Rules with wildcards: one expression for those that somebody would write, an automaton for all others.

    Both are made when something is first looked up.
    """

    __slots__ = ("_automaton", "_by_name", "_other_rules", "_others", "_room", "_usual", "_usual_regex", "_usual_rules")

    def __init__(self, *, by_name: bool) -> None:
        self._by_name = by_name
        self._room = MAX_REGEX_TOKENS
        self._usual: list[list[Token]] = []
        self._usual_rules: list[int] = []
        self._usual_regex: re.Pattern[str] | None = None
        self._others: list[list[Token]] = []
        self._other_rules: list[int] = []
        self._automaton: Automaton | None = None

    def add(self, index: int, tokens: list[Token]) -> None:
        """Add a rule that counts more than those before it."""
        if suits_regex(tokens) and len(tokens) <= self._room:
            self._room -= len(tokens)
            self._usual.append(tokens)
            self._usual_rules.append(index)
        else:
            self._others.append(as_name(tokens) if self._by_name else tokens)
            self._other_rules.append(index)

    def last(self, text: str) -> int:
        """The index of the last rule that fits a name or a path, or -1."""
        found = _NO_RULE
        if self._usual:
            regex = self._usual_regex or self._expression()
            if (match := regex.fullmatch(text)) and match.lastindex:
                found = self._usual_rules[-match.lastindex]
        if self._others:
            automaton = self._automaton
            if automaton is None:
                automaton = self._automaton = Automaton(self._others)
            if (other := automaton.last(text)) is not None:
                found = max(found, self._other_rules[other])
        return found

    def _expression(self) -> re.Pattern[str]:
        """One expression whose group number tells the last rule that fits: the alternatives stand last rule first."""
        translate = segment_regex if self._by_name else path_regex
        self._usual_regex = re.compile(
            "|".join(f"({translate(tokens)})" for tokens in reversed(self._usual)), re.DOTALL
        )
        return self._usual_regex


class RuleList:
    """The rules of one ignore file.

    Args:
        rules: In the order of the file.
    """

    __slots__ = ("_files", "_folders", "_rules")

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = tuple(rules)
        self._folders = _Matcher(list(enumerate(rules)))
        self._files = _Matcher([(index, rule) for index, rule in enumerate(rules) if not rule.folders_only])

    def __bool__(self) -> bool:
        return bool(self._rules)

    def hides(self, name: str, path: str, *, is_folder: bool) -> bool | None:
        """Whether these rules hide something.

        Args:
            name: Its base name, as bytes text.
            path: Its path below the folder of the ignore file, as bytes text with forward slashes.
            is_folder: Whether it is a folder; a link to one is none.

        Returns:
            Hidden, brought back, or `None` if no rule fits.
        """
        index = (self._folders if is_folder else self._files).last(name, path)
        return None if index == _NO_RULE else not self._rules[index].negated


@lru_cache(maxsize=512)
def parse_rules(content: bytes) -> RuleList:
    """The rules in the content of an ignore file. Cached by that content, so never stale.

    UTF-16 with its mark, which PowerShell's `>` writes, is understood, and so are the line endings of old Macs.
    """
    text = _bytes_of(content).decode("latin-1")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    lines = (line.removesuffix("\r").partition("\0")[0] for line in text.split("\n"))
    rules = (_parse_line(line) for line in lines if not line.startswith("#"))
    return RuleList([rule for rule in rules if rule is not None])


def _bytes_of(content: bytes) -> bytes:
    """The text as the bytes of names, without a mark of its encoding."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Replaced is what is no text; half a rule more is better than none of them.
        return content.decode("utf-16", "replace").encode("utf-8", "replace")
    return content.removeprefix(codecs.BOM_UTF8)


def _parse_line(line: str) -> _Rule | None:
    pattern = _trim(line)
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith("/")
    pattern = pattern[:-1] if folders_only else pattern
    by_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    return _Rule(pattern, negated, folders_only, by_name) if pattern else None


def _trim(line: str) -> str:
    """Drop spaces at the end, but not one that a backslash protects."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare
