"""Many rules of ignore files as one matcher: the last of them that fits a name or a path."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tools.filesystem.finding.automaton import Automaton
from tools.filesystem.finding.tokens import (
    MalformedPatternError,
    Token,
    as_name,
    is_literal,
    literal_start,
    tokenize,
)
from tools.filesystem.finding.wildcards import path_regex, segment_regex, suits_regex

IGNORE_CASE = sys.platform in ("win32", "darwin")
"""git's `core.ignoreCase` as it is set when a repository is made on these systems."""

NO_RULE = -1
"""The index where no rule fits."""

MAX_REGEX_TOKENS = 1_000
"""Tokens of the rules of one file that become one regular expression: more than a hundred rules as people write them.

Compiling takes some ten microseconds for each, and Python keeps hundreds of expressions. What is beyond that, or has
very many stars, counts just the same: it is matched in another way, which by then is the quicker one.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file.

    Args:
        pattern: Without `!`, a leading and a trailing slash; as it is compared.
        negated: It brings back what an earlier rule hid.
        folders_only: It ended in a slash.
        by_name: It holds no slash and fits a base name at any depth below.
    """

    pattern: str
    negated: bool
    folders_only: bool
    by_name: bool


def as_compared(pattern: str) -> str:
    """A pattern as it is compared with names."""
    return pattern.lower() if IGNORE_CASE else pattern


def wildcard_chars(rule: Rule) -> int:
    """Characters of a rule that has to be matched by its wildcards."""
    return 0 if is_literal(rule.pattern) or _is_ending(rule) else len(rule.pattern)


class Matcher:
    """Finds the last of some rules that fits: dictionaries for literals, one expression for the rest.

    Args:
        rules: Each with its index in the file, and its tokens as `tokens_of` tells them.
    """

    __slots__ = ("_by_name", "_by_path", "_ending_rules", "_endings", "_in_folder", "_names", "_paths")

    def __init__(self, rules: Iterable[tuple[int, Rule, list[Token] | None]]) -> None:
        self._names: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        ending_rules: dict[str, int] = {}
        self._by_name = _Wildcards(by_name=True)
        self._by_path = _Wildcards(by_name=False)
        for index, rule, tokens in rules:
            pattern = rule.pattern
            if is_literal(pattern):
                (self._names if rule.by_name else self._paths)[pattern] = index
            elif _is_ending(rule):
                ending_rules[pattern[1:]] = index
            elif tokens is not None:
                (self._by_name if rule.by_name else self._by_path).add(index, tokens, literal_start(pattern))
        self._ending_rules: Mapping[str, int] = ending_rules
        self._endings = tuple(ending_rules)
        self._in_folder: dict[str, dict[str, int]] = {}
        for path, index in self._paths.items():
            folder, slash, name = path.rpartition("/")
            self._in_folder.setdefault(folder + slash, {})[name] = index

    def last_of(self, names: Sequence[str], folder: str) -> Mapping[str, int]:
        """The index of the last rule that fits, for those names of a folder that any rule fits.

        The same as `last` for each, and much quicker: most rules fit nothing in a folder, and each is looked at once.
        """
        if IGNORE_CASE:
            found = {name: self.last(name, folder + name) for name in names}
            return {name: index for name, index in found.items() if index != NO_RULE}
        found: dict[str, int] = {}
        for rules in (self._names, self._in_folder.get(folder)):
            if rules:
                for name in rules.keys() & names:
                    found[name] = max(found.get(name, NO_RULE), rules[name])
        if self._endings:
            for name in [name for name in names if name.endswith(self._endings)]:
                last = max(index for end, index in self._ending_rules.items() if name.endswith(end))
                found[name] = max(found.get(name, NO_RULE), last)
        if self._by_name:
            self._add_wildcards(found, self._by_name, names, "")
        if self._by_path and self._by_path.may_fit_in(folder):
            self._add_wildcards(found, self._by_path, names, folder)
        return found

    @staticmethod
    def _add_wildcards(found: dict[str, int], rules: _Wildcards, names: Sequence[str], folder: str) -> None:
        for name in names:
            last = rules.last(folder + name)
            if last != NO_RULE:
                found[name] = max(found.get(name, NO_RULE), last)

    def last(self, name: str, path: str) -> int:
        """The index of the last rule that fits, or -1."""
        if IGNORE_CASE:
            name, path = name.lower(), path.lower()
        found = max(self._names.get(name, NO_RULE), self._paths.get(path, NO_RULE))
        if self._endings and name.endswith(self._endings):
            found = max(found, *(index for end, index in self._ending_rules.items() if name.endswith(end)))
        return max(found, self._by_name.last(name), self._by_path.last(path))


def _is_ending(rule: Rule) -> bool:
    """Whether it fits all names that end in some text."""
    return rule.by_name and rule.pattern[0] == "*" and is_literal(rule.pattern[1:])


def tokens_of(rule: Rule) -> list[Token] | None:
    """Its wildcards; `None` if it holds none, or can fit nothing."""
    if is_literal(rule.pattern) or _is_ending(rule):
        return None
    try:
        return tokenize(rule.pattern)
    except MalformedPatternError:
        return None


class _Wildcards:
    """Rules with wildcards: one expression for those that somebody would write, an automaton for all others.

    Both are made when something is first looked up.
    """

    __slots__ = (
        "_automaton",
        "_by_name",
        "_other_rules",
        "_others",
        "_room",
        "_starts",
        "_usual",
        "_usual_regex",
        "_usual_rules",
    )

    def __init__(self, *, by_name: bool) -> None:
        self._by_name = by_name
        self._room = MAX_REGEX_TOKENS
        self._usual: list[list[Token]] = []
        self._usual_rules: list[int] = []
        self._usual_regex: re.Pattern[str] | None = None
        self._others: list[list[Token]] = []
        self._other_rules: list[int] = []
        self._automaton: Automaton | None = None
        self._starts: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._starts)

    def may_fit_in(self, folder: str) -> bool:
        """Whether a rule can fit a path in this folder, by what the rules begin with."""
        return any(start.startswith(folder) or folder.startswith(start) for start in self._starts)

    def add(self, index: int, tokens: list[Token], start: str) -> None:
        """Add a rule that counts more than those before it, and what every text begins with that it fits."""
        self._starts.add(start)
        if suits_regex(tokens) and len(tokens) <= self._room:
            self._room -= len(tokens)
            self._usual.append(tokens)
            self._usual_rules.append(index)
        else:
            self._others.append(as_name(tokens) if self._by_name else tokens)
            self._other_rules.append(index)

    def last(self, text: str) -> int:
        """The index of the last rule that fits a name or a path, or -1."""
        found = NO_RULE
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
