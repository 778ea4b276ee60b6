"""One ignore file as rules, matched the way git matches them: the last rule that fits decides.

Names are compared byte by byte, as git does: a `?` stands for one byte. Text therefore holds one character for each
byte (see `as_bytes_text`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tools.filesystem.finding.wildcards import MalformedPatternError, is_literal, path_regex, segment_regex, tokenize

IGNORE_CASE = sys.platform in ("win32", "darwin")
"""git's `core.ignoreCase` as it is set when a repository is made on these systems."""

_NO_RULE = -1


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

    __slots__ = ("_ending_rules", "_endings", "_names", "_names_regex", "_paths", "_paths_regex", "_regex_rules")

    def __init__(self, rules: Sequence[tuple[int, _Rule]]) -> None:
        self._names: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        ending_rules: dict[str, int] = {}
        names: list[tuple[int, str]] = []
        paths: list[tuple[int, str]] = []
        for index, rule in rules:
            pattern = rule.pattern.lower() if IGNORE_CASE else rule.pattern
            if is_literal(pattern):
                (self._names if rule.by_name else self._paths)[pattern] = index
            elif rule.by_name and pattern[0] == "*" and is_literal(pattern[1:]):
                ending_rules[pattern[1:]] = index
            elif (expression := _expression(pattern, by_name=rule.by_name)) is not None:
                (names if rule.by_name else paths).append((index, expression))
        self._ending_rules: Mapping[str, int] = ending_rules
        self._endings = tuple(ending_rules)
        self._regex_rules = ([index for index, _ in reversed(names)], [index for index, _ in reversed(paths)])
        self._names_regex = _last_of(names)
        self._paths_regex = _last_of(paths)

    def last(self, name: str, path: str) -> int:
        """The index of the last rule that fits, or -1."""
        if IGNORE_CASE:
            name, path = name.lower(), path.lower()
        found = max(self._names.get(name, _NO_RULE), self._paths.get(path, _NO_RULE))
        if self._endings and name.endswith(self._endings):
            found = max(found, *(index for end, index in self._ending_rules.items() if name.endswith(end)))
        by_name, by_path = self._regex_rules
        if self._names_regex and (match := self._names_regex.fullmatch(name)) and match.lastindex:
            found = max(found, by_name[match.lastindex - 1])
        if self._paths_regex and (match := self._paths_regex.fullmatch(path)) and match.lastindex:
            found = max(found, by_path[match.lastindex - 1])
        return found


def _expression(pattern: str, *, by_name: bool) -> str | None:
    try:
        tokens = tokenize(pattern)
    except MalformedPatternError:
        return None
    return segment_regex(tokens) if by_name else path_regex(tokens)


def _last_of(expressions: Sequence[tuple[int, str]]) -> re.Pattern[str] | None:
    """One expression whose group number tells the last rule that fits: the alternatives stand last rule first."""
    if not expressions:
        return None
    return re.compile("|".join(f"({expression})" for _, expression in reversed(expressions)), re.DOTALL)


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
    """The rules in the content of an ignore file. Cached by that content, so never stale."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    lines = (line.removesuffix("\r").partition("\0")[0] for line in text.split("\n"))
    rules = (_parse_line(line) for line in lines if not line.startswith("#"))
    return RuleList([rule for rule in rules if rule is not None])


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
