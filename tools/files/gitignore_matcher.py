"""The rules of one ignore file, read by `pathspec` and matched the way git matches them: the last that fits decides.

`pathspec` turns a line into a regular expression and matches many of them. Three things are put right here:

- A rule is about an entry itself, not about what is beneath it. The caller goes down from the top and enters nothing
  hidden; otherwise `secret/` and `!*.md` would show `secret/notes.md`, and `!docs/` would bring back `docs/id.key`.
- A line that `pathspec` would read in another way than git, or not at all, is told apart (`RuleList.odd_line`).
- No expression tries the same thing again and again: eight stars would take Python seconds for one name.

Names are compared byte by byte, as git does: a `?` stands for one byte. See `bytes_text`.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence

logger = logging.getLogger(__name__)
# git's `core.ignoreCase` as it is set when a repository is made on these systems
IGNORE_CASE = sys.platform in ("win32", "darwin")
MAX_COST = 150_000  # what the rules of one file that count may cost: some thousands of rules as people write them
COST_OF_RULE = 25  # what a rule costs in time and memory, in addition to its characters, each of which counts as one
# More rules than these are matched by RE2 where that is installed: all in one pass, with memory of its own
MAX_RULES_FOR_RE = 16
MAX_CACHED_BYTES = 64_000_000  # memory, about, for rules that are kept in case the same file is read again
# What rules take in memory for each unit of their cost (measured, and rounded up), and what RE2 may take for them
_BYTES_OF_COST = 60
_BYTES_OF_RE2 = 8 << 20
MAX_PATTERN_CHARS = 4_096  # as long as a path may be; a longer line is not understood
# Bytes that Latin-1 takes for white space or the end of a line, as letters that stand for them. UTF-8 is full of them:
# the last one of `à` is 0xA0, which `pathspec` would trim.
_LETTERS = {byte: byte + 0x100 for byte in (*range(0x20), 0x85, 0xA0)}
# Lines that `pathspec` reads as git does. It takes a backslash within brackets literally, knows no `[:alpha:]`, and
# leaves the rest to Python's or RE2's brackets, where `--`, `&&` and a range over the slash mean something else. Ranges
# are those of letters and digits.
_UNDERSTOOD = re.compile(
    r"""(?>(?: [^\\[] | \\[^/]
    | \[ [!^]?+ \]?+ -?+ (?>(?: [^\W_]-[^\W_] | (?!([&|~])\1) [^]\\[-] )*) -? \]
    )*)""",
    re.DOTALL | re.VERBOSE,
)
# How `pathspec` ends its expressions for `x/**`, `x/` and `x`, and how it writes `/**` between two names
_BELOW, _FOLDERS_ONLY, _FOLDERS_TOO = "/", "(?P<ps_d>/)", "(?:(?P<ps_d>/)|$)"
_TREE = "(?:/.+)?"
# A star with what follows it in the same name, where another star comes next
_STAR_BEFORE_STAR = re.compile(
    r"\[\^//\]\*((?>(?:\\.|\[(?:\\.|[^]\\])*\](?!\*)|[^]\\[/^+*().$])*))(?=\[\^//\]\*)", re.DOTALL
)


def bytes_text(name: str) -> str:
    """A file name as it is compared with rules: one character for each of its bytes."""
    if name.isascii() and name.isprintable():
        return name.lower() if IGNORE_CASE else name
    return _as_text(os.fsencode(name))


def _as_text(content: bytes) -> str:
    return (content.lower() if IGNORE_CASE else content).decode("latin-1").translate(_LETTERS)


class RuleList:
    __slots__ = ("_any", "_rules", "bytes", "cost", "is_cut", "odd_line", "uses_re2")

    def __init__(
        self, rules: Sequence[tuple[re.Pattern[str], bool]], cost: int, *, is_cut: bool, odd_line: int | None
    ) -> None:
        self.cost = cost
        self.is_cut = is_cut
        self.odd_line = odd_line
        self.uses_re2 = False
        self._any: re.Pattern[str] | None = None  # tells quickly that no rule fits; RE2 needs no such thing
        from pathspec import PathSpec, RegexPattern  # noqa: PLC0415 - starting up does not need it

        if len(rules) > MAX_RULES_FOR_RE:
            try:
                self._rules = PathSpec([RegexPattern(regex, hides) for regex, hides in rules], backend="re2")
                self.uses_re2 = True
            except Exception:  # noqa: BLE001 - RE2 may be missing, so its errors have no name here
                logger.debug("RE2 is not installed, or there are too many rules for it")
        if not self.uses_re2:
            bounded = [(_without_repetition(regex), hides) for regex, hides in rules]
            self._any = re.compile("|".join(regex.pattern for regex, _ in bounded) or "(?!)")
            self._rules = PathSpec([RegexPattern(regex, hides) for regex, hides in bounded], backend="simple")
        self.bytes = _BYTES_OF_COST * cost + _BYTES_OF_RE2 * self.uses_re2

    def __len__(self) -> int:
        return len(self._rules)

    def hides(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether these rules hide an entry or bring it back; `None` if no rule fits. Folders above are not looked at.

        The path is below the folder of the ignore file, as bytes text with forward slashes. A link to a folder is
        not one.
        """
        if is_folder:
            path += "/"
        if self._any is not None and self._any.match(path) is None:
            return None
        return self._rules.check_file(path).include

    def hidden_folders(self, paths: Sequence[str]) -> list[str]:
        """Those of many paths that `hides` tells of folders. Quick where hardly any is hidden."""
        match = self._any.match if self._any is not None else None
        likely = [path for path in paths if match(f"{path}/")] if match is not None else paths
        return [path for path in likely if self.hides(path, is_folder=True)]


def _without_repetition(regex: re.Pattern[str]) -> re.Pattern[str]:
    """An expression that fits the same, and of which Python's `re` tries each part once at each place.

    Behind a star stand parts of fixed length. So where another star follows, the first place where they fit is as good
    as any later one, and is never tried again (an atomic group). The same holds for `**` and the names behind it.
    """
    bounded = _STAR_BEFORE_STAR.sub(r"(?>[^/]*?\1)", regex.pattern)
    first, *others = bounded.split(_TREE)
    if others:
        if first.startswith("^(?:.+/)?"):
            first = f"^(?>(?:.+?/)??{first.removeprefix('^(?:.+/)?')}(?=/))"
        between = "".join(f"(?>(?:/.+?)??{names}(?=/))" for names in others[:-1])
        bounded = f"{first}{between}{_TREE}{others[-1]}"
    return regex if bounded == regex.pattern else re.compile(bounded)


class _Cache:
    """Rules by the content of their file, those used last, in bounded memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: OrderedDict[bytes, RuleList] = OrderedDict()
        self._bytes = 0

    def rules(self, content: bytes) -> RuleList:
        """The rules in the content of an ignore file. Kept by that content, so never stale.

        UTF-16 with its mark, which PowerShell's `>` writes, is understood, and so are the line endings of old Macs.
        """
        with self._lock:
            if (rules := self._rules.get(content)) is not None:
                self._rules.move_to_end(content)
                return rules
        rules = read_rules(content)
        with self._lock:
            if content not in self._rules:
                self._rules[content] = rules
                self._bytes += len(content) + rules.bytes
            while self._bytes > MAX_CACHED_BYTES:
                oldest, dropped = self._rules.popitem(last=False)
                self._bytes -= len(oldest) + dropped.bytes
        return rules


parse_rules = _Cache().rules


def read_rules(content: bytes) -> RuleList:
    """The same, whether or not they are kept."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Replaced is what is not text; half a rule more is better than none of them.
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    content = content.removeprefix(codecs.BOM_UTF8)
    rules: list[tuple[re.Pattern[str], bool]] = []
    cost, odd_line, is_cut = 0, None, False
    for number, line in enumerate(content.split(b"\n" if b"\n" in content else b"\r"), start=1):
        pattern = _as_text(line.removesuffix(b"\r"))
        # Spaces at the end do not count, but one that a backslash protects does.
        bare = pattern.rstrip(" ")
        backslashes = len(bare) - len(bare.rstrip("\\"))
        pattern = bare + " " if backslashes % 2 and len(bare) < len(pattern) else bare
        if pattern.startswith("#") or not pattern.removeprefix("!").strip("/"):
            continue
        cost += COST_OF_RULE + len(pattern)
        is_cut = cost > MAX_COST
        if is_cut:
            logger.warning("an ignore file has too many rules: those behind the first %s do not count", len(rules))
            break
        regex = _expression(pattern)
        if regex is not None:
            rules.append((regex, not pattern.startswith("!")))
        elif odd_line is None:
            odd_line = number
    return RuleList(rules, cost, is_cut=is_cut, odd_line=odd_line)


def _expression(pattern: str) -> re.Pattern[str] | None:
    """The regular expression for a rule, which fits paths of entries; those of folders end in a slash.

    `None` if the rule is not understood.
    """
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415 - starting up does not need it

    if len(pattern) > MAX_PATTERN_CHARS or not _UNDERSTOOD.fullmatch(pattern):
        return None
    try:
        regex = GitIgnoreSpecPattern.pattern_to_regex(pattern)[0]
        if regex is None:
            return None
        # What stands at the end would fit everything beneath as well.
        if regex.endswith(_FOLDERS_TOO):
            regex = f"{regex.removesuffix(_FOLDERS_TOO)}/?$"
        elif regex.endswith(_FOLDERS_ONLY):
            regex = f"{regex.removesuffix(_FOLDERS_ONLY)}/$"
        elif regex.endswith(_BELOW):
            regex += "."
        elif regex != ".":
            return None
        if not regex.startswith("^"):
            regex = f"^.*{regex}"
        # A bracket never fits a slash. One that begins with a bracket is written so that it may begin otherwise too.
        regex = regex.replace("[]", r"[\]").replace("[^]", r"[^\]").replace("[^", "[^/")
        return re.compile(regex)
    except (ValueError, re.error):
        return None
