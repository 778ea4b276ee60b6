"""The rules of one ignore file, parsed by `pathspec` and matched as git does: the last matching rule decides.

`pathspec` turns each line into a regular expression. This module adds three things:

- A rule applies to an entry itself, not to its contents. The caller descends from the top and skips hidden folders.
  Otherwise `secret/` and `!*.md` would show `secret/notes.md`, and `!docs/` would unhide `docs/id.key`.
- A line that `pathspec` reads differently from git, or not at all, is reported (`RuleList.odd_line`).
- No expression backtracks without bound. Otherwise eight stars would keep Python busy for seconds on a single name.

As in git, names are compared byte by byte, and a `?` matches one byte. See `bytes_text`.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)
# On Windows and macOS, git ignores case by default (`core.ignoreCase`)
IGNORE_CASE = sys.platform in ("win32", "darwin")
MAX_COST = 150_000  # limit on the cost of one file's rules, enough for several thousand ordinary ones
COST_OF_RULE = 25  # the cost of a rule in time and memory; each of its characters adds 1
# If a file has more rules than this and RE2 is installed, RE2 matches them all in one pass, which needs extra memory
MAX_RULES_FOR_RE = 16
MAX_CACHED_BYTES = 64_000_000  # approximate limit on the memory for cached rules
# A rule's bytes of memory per unit of cost (measured and rounded up), and the bytes that RE2 may use
_BYTES_OF_COST = 60
_BYTES_OF_RE2 = 8 << 20
MAX_PATTERN_CHARS = 4_096  # length of the longest possible path; longer lines count as not understood
# Bytes that are white space or line ends in Latin-1, mapped to letters. Such bytes are common in UTF-8: the last byte
# of `à` is 0xA0, which `pathspec` would trim.
_LETTERS = {byte: byte + 0x100 for byte in (*range(0x20), 0x85, 0xA0)}
# Lines that `pathspec` reads as git does. `pathspec` takes a backslash in brackets literally and does not know
# `[:alpha:]`. It passes other brackets on to Python or RE2, where `--`, `&&` and a range that includes the slash have
# other meanings. Therefore only ranges of letters and digits are accepted.
_UNDERSTOOD = re.compile(
    r"""(?>(?: [^\\[] | \\[^/]
    | \[ [!^]?+ \]?+ -?+ (?>(?: [^\W_]-[^\W_] | (?!([&|~])\1) [^]\\[-] )*) -? \]
    )*)""",
    re.DOTALL | re.VERBOSE,
)
# The endings of `pathspec`'s expressions for `x/**`, `x/` and `x`, and its expression for `/**` between names
_BELOW, _FOLDERS_ONLY, _FOLDERS_TOO = "/", "(?P<ps_d>/)", "(?:(?P<ps_d>/)|$)"
_TREE = "(?:/.+)?"
_ANYWHERE = "^(?:.+/)?"  # the beginning of `pathspec`'s expressions for a name in any folder
_NOT_A_SLASH = re.compile(r"\[\^//?")  # the beginning of a bracket expression that also excludes a slash
# A star and the text after it within a name, if another star follows
_STAR_BEFORE_STAR = re.compile(
    r"\[\^//\]\*((?>(?:\\.|\[(?:\\.|[^]\\])*\](?!\*)|[^]\\[/^+*().$])*))(?=\[\^//\]\*)", re.DOTALL
)


def bytes_text(name: str) -> str:
    """Return a file name in the form that rules match: one character per byte."""
    if name.isascii() and name.isprintable():
        return name.lower() if IGNORE_CASE else name
    return _as_text(os.fsencode(name))


def bytes_texts(names: Sequence[str]) -> Sequence[str]:
    """Like `bytes_text`, for several names, which are processed together."""
    joined = "".join(names)
    return names if not IGNORE_CASE and joined.isascii() and joined.isprintable() else list(map(bytes_text, names))


def _as_text(content: bytes) -> str:
    return (content.lower() if IGNORE_CASE else content).decode("latin-1").translate(_LETTERS)


class RuleList:
    __slots__ = ("_rules", "bytes", "cost", "is_cut", "may_match", "odd_line", "uses_re2")

    def __init__(
        self, rules: Sequence[tuple[re.Pattern[str], bool]], cost: int, *, is_cut: bool, odd_line: int | None
    ) -> None:
        self.cost = cost
        self.is_cut = is_cut
        self.odd_line = odd_line
        self.uses_re2 = False
        # Whether a rule may match a path; the path of a folder ends in a slash. RE2 is as fast without this check
        self.may_match: Callable[[str], object] = bool
        from pathspec import PathSpec, RegexPattern  # noqa: PLC0415 - not needed at startup

        if len(rules) > MAX_RULES_FOR_RE:
            try:
                self._rules = PathSpec([RegexPattern(regex, hides) for regex, hides in rules], backend="re2")
                self.uses_re2 = True
            except Exception:  # noqa: BLE001 - RE2's errors cannot be named, because RE2 may be missing
                logger.debug("RE2 is not installed, or there are too many rules for it")
        if not self.uses_re2:
            bounded = [(_without_repetition(regex), hides) for regex, hides in rules]
            self._rules = PathSpec([RegexPattern(regex, hides) for regex, hides in bounded], backend="simple")
            # For expressions that match a name in any folder, the folders above the name are skipped only once.
            of_names, others = ["(?!)"], ["(?!)"]
            for pattern in (regex.pattern for regex, _ in bounded):
                name = pattern.removeprefix(_ANYWHERE)
                if name == pattern or "/" in _NOT_A_SLASH.sub("", name).removesuffix("/?$").removesuffix("/$"):
                    others.append(pattern)
                else:
                    of_names.append(name)
            self.may_match = re.compile(f"^(?>(?:.*/(?=.))?)(?:{'|'.join(of_names)})|{'|'.join(others)}").match
        self.bytes = _BYTES_OF_COST * cost + _BYTES_OF_RE2 * self.uses_re2

    def __len__(self) -> int:
        return len(self._rules)

    def hides(self, path: str, *, is_folder: bool) -> bool | None:
        """Return True if these rules hide an entry, False if they unhide it, `None` if none matches.

        Rules that match a folder above the entry are not considered. The path is relative to the ignore file's folder,
        converted by `bytes_text`, with forward slashes. A symlink to a folder is not a folder.
        """
        if is_folder:
            path += "/"
        return self._rules.check_file(path).include if self.may_match(path) else None

    def hidden_folders(self, paths: Sequence[str]) -> list[str]:
        """Return the folders in `paths` that these rules hide. Fast if few are hidden."""
        may_match = self.may_match
        return [path for path in paths if may_match(f"{path}/") and self.hides(path, is_folder=True)]


def _without_repetition(regex: re.Pattern[str]) -> re.Pattern[str]:
    """Return an equivalent expression for which Python's `re` does not retry parts at the same position.

    The parts after a star have a fixed length. If another star follows, the first match of these parts is therefore
    as good as any later one, and an atomic group prevents retries. The same applies to `**` and the names after it.
    """
    bounded = _STAR_BEFORE_STAR.sub(r"(?>[^/]*?\1)", regex.pattern)
    first, *others = bounded.split(_TREE)
    if others:
        if first.startswith(_ANYWHERE):
            first = f"^(?>(?:.+?/)??{first.removeprefix(_ANYWHERE)}(?=/))"
        between = "".join(f"(?>(?:/.+?)??{names}(?=/))" for names in others[:-1])
        bounded = f"{first}{between}{_TREE}{others[-1]}"
    return regex if bounded == regex.pattern else re.compile(bounded)


class _Cache:
    """A least-recently-used cache of rules, keyed by file content and bounded by memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: OrderedDict[bytes, RuleList] = OrderedDict()
        self._bytes = 0

    def rules(self, content: bytes) -> RuleList:
        """Parse the content of an ignore file. The cache is keyed by content, so it is never stale.

        Accepts UTF-16 with a byte order mark, as written by PowerShell's `>`, and the line endings of old Macs.
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
    """Parse the content of an ignore file, without the cache."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Replace invalid text, because a partly wrong rule is better than no rules.
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    content = content.removeprefix(codecs.BOM_UTF8)
    rules: list[tuple[re.Pattern[str], bool]] = []
    cost, odd_line, is_cut = 0, None, False
    for number, line in enumerate(content.split(b"\n" if b"\n" in content else b"\r"), start=1):
        pattern = _as_text(line.removesuffix(b"\r"))
        # Trailing spaces are ignored unless a backslash protects them.
        bare = pattern.rstrip(" ")
        backslashes = len(bare) - len(bare.rstrip("\\"))
        pattern = bare + " " if backslashes % 2 and len(bare) < len(pattern) else bare
        if pattern.startswith("#") or not pattern.removeprefix("!").strip("/"):
            continue
        cost += COST_OF_RULE + len(pattern)
        is_cut = cost > MAX_COST
        if is_cut:
            logger.warning("an ignore file has too many rules: those after the first %s are ignored", len(rules))
            break
        regex = _expression(pattern)
        if regex is not None:
            rules.append((regex, not pattern.startswith("!")))
        elif odd_line is None:
            odd_line = number
    return RuleList(rules, cost, is_cut=is_cut, odd_line=odd_line)


def _expression(pattern: str) -> re.Pattern[str] | None:
    """Return the regular expression of a rule, or `None` if the rule is not understood.

    The expression matches paths of entries, in which folders end in a slash.
    """
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415 - not needed at startup

    if len(pattern) > MAX_PATTERN_CHARS or not _UNDERSTOOD.fullmatch(pattern):
        return None
    try:
        regex = GitIgnoreSpecPattern.pattern_to_regex(pattern)[0]
        if regex is None:
            return None
        # With this ending, the expression would also match everything inside the folder.
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
        # Make bracket expressions never match a slash. Escape a `]` at their beginning, so that the slash can precede
        # it.
        regex = regex.replace("[]", r"[\]").replace("[^]", r"[^\]").replace("[^", "[^/")
        return re.compile(regex)
    except (ValueError, re.error):
        return None
