"""One ignore file as rules, matched the way git matches them: the last rule that fits decides.

Names are compared byte by byte, as git does: a `?` stands for one byte. Text therefore holds one character for each
byte (see `as_bytes_text`).
"""

from __future__ import annotations

import codecs
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

from tools.filesystem.finding.rule_matcher import NO_RULE, Matcher, Rule, as_compared, tokens_of, wildcard_chars

logger = logging.getLogger(__name__)

MAX_RULES = 20_000
"""Rules of one file that count; the longest real ones have some thousands."""

MAX_WILDCARD_CHARS = 100_000
"""Characters of those rules of one file that hold wildcards: ten thousand rules as people write them."""

MAX_KEPT_BYTES = 32_000_000
"""Memory, about, for rules that are kept in case that the same file is read again; of usual files, thousands."""

_BYTES_OF_LIST = 4_000
_BYTES_OF_RULE = 400
_BYTES_OF_CHARACTER = 80
"""What rules take in memory: all of them, each, and each character of one with wildcards; measured, and rounded up."""


def as_bytes_text(name: str) -> str:
    """A file name with one character for each of its bytes; the name itself while it is ASCII."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


class RuleList:
    """The rules of one ignore file.

    Args:
        rules: In the order of the file.
        is_cut: There were too many of them: what came behind does not count.
    """

    __slots__ = ("_files", "_folders", "_is_negated", "cost", "is_cut")

    def __init__(self, rules: Sequence[Rule], *, is_cut: bool = False) -> None:
        self._is_negated = [rule.negated for rule in rules]
        self.is_cut = is_cut
        self.cost = len(rules) + sum(map(wildcard_chars, rules))
        """Rules, and characters of those with wildcards: what they take in time and memory."""
        read = [(index, rule, tokens_of(rule)) for index, rule in enumerate(rules)]
        self._folders = Matcher(read)
        for_files = [one for one in read if not one[1].folders_only]
        self._files = Matcher(for_files) if len(for_files) < len(read) else self._folders

    def __len__(self) -> int:
        return len(self._is_negated)

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
        return None if index == NO_RULE else not self._is_negated[index]

    def verdicts(self, names: Sequence[str], folder: str, *, is_folder: bool) -> dict[str, bool]:
        """What `hides` tells of each name in a folder that a rule fits.

        Args:
            names: Base names, as bytes text; all of folders or none.
            folder: Their folder below that of the ignore file, as bytes text with a slash at its end, or empty.
            is_folder: As for `hides`.
        """
        found = (self._folders if is_folder else self._files).last_of(names, folder)
        if not found:
            return {}
        return {name: not self._is_negated[index] for name, index in found.items()}


class _Kept:
    """Rules by the content of their file, those used last, in bounded memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: OrderedDict[bytes, RuleList] = OrderedDict()
        self._bytes = 0

    def get(self, content: bytes) -> RuleList | None:
        with self._lock:
            rules = self._rules.get(content)
            if rules is not None:
                self._rules.move_to_end(content)
            return rules

    def put(self, content: bytes, rules: RuleList) -> None:
        with self._lock:
            if content not in self._rules:
                self._rules[content] = rules
                self._bytes += _size(content, rules)
            while self._bytes > MAX_KEPT_BYTES:
                self._bytes -= _size(*self._rules.popitem(last=False))


def _size(content: bytes, rules: RuleList) -> int:
    single = _BYTES_OF_RULE * len(rules) + _BYTES_OF_CHARACTER * (rules.cost - len(rules))
    return _BYTES_OF_LIST + len(content) + single


_kept = _Kept()


def parse_rules(content: bytes) -> RuleList:
    """The rules in the content of an ignore file. Kept by that content, so never stale.

    UTF-16 with its mark, which PowerShell's `>` writes, is understood, and so are the line endings of old Macs.
    """
    rules = _kept.get(content)
    if rules is None:
        rules = read_rules(content)
        _kept.put(content, rules)
    return rules


def read_rules(content: bytes) -> RuleList:
    """The same, whether or not they are kept."""
    text = _bytes_of(content).decode("latin-1")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    rules: list[Rule] = []
    chars = 0
    for line in text.split("\n"):
        rule = None if line.startswith("#") else _parse_line(line.removesuffix("\r").partition("\0")[0])
        if rule is None:
            continue
        chars += wildcard_chars(rule)
        if len(rules) == MAX_RULES or chars > MAX_WILDCARD_CHARS:
            logger.warning("an ignore file has too many rules: those behind the first %s do not count", len(rules))
            return RuleList(rules, is_cut=True)
        rules.append(rule)
    return RuleList(rules)


def _bytes_of(content: bytes) -> bytes:
    """The text as the bytes of names, without a mark of its encoding."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Replaced is what is no text; half a rule more is better than none of them.
        return content.decode("utf-16", "replace").encode("utf-8", "replace")
    return content.removeprefix(codecs.BOM_UTF8)


def _parse_line(line: str) -> Rule | None:
    pattern = _trim(line)
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith("/")
    pattern = pattern[:-1] if folders_only else pattern
    by_name = "/" not in pattern
    pattern = as_compared(pattern.removeprefix("/"))
    return Rule(pattern, negated, folders_only, by_name) if pattern else None


def _trim(line: str) -> str:
    """Drop spaces at the end, but not one that a backslash protects."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare
