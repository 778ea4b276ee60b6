"""The part of a rule in parentheses: which commands, paths, hosts or agents it is about."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tools.filesystem.ignore_rules import RuleList, bytes_text, parse_rules

ANYTHING = "*"

_SPECIAL = re.compile(r"[\\*?\[\]]")
"""What means something in a pattern."""


def fits_wildcards(pattern: str, text: str) -> bool:
    """Whether a text is a pattern in which each `*` stands for anything, the empty text too. Linear."""
    first, *others = pattern.split(ANYTHING)
    if not others:
        return text == pattern
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        position = text.find(piece, position, end)
        if position < 0:
            return False
        position += len(piece)
    return True


@dataclass(frozen=True, slots=True)
class CommandSpecifier:
    """Which simple commands of a shell a rule is about.

    Without a star it is a prefix that ends between words: `git log` is about `git log -1`, not about `git logout`.
    `git log *` says the same. `npm run test*` has no such bound, and a star may stand anywhere.

    Args:
        pattern: As written; `git:*` is `git *`.
    """

    pattern: str

    def fits(self, text: str) -> bool:
        """Whether it is about a command, given as its words with single blanks between."""
        pattern = self.pattern
        if pattern.endswith(" *"):
            bare = pattern[:-2]
            if ANYTHING not in bare:
                return text == bare or text.startswith(f"{bare} ")
            return fits_wildcards(pattern, text) or fits_wildcards(bare, text)
        if ANYTHING in pattern:
            return fits_wildcards(pattern, text)
        return text == pattern or text.startswith(f"{pattern} ")


def command_specifier(written: str) -> CommandSpecifier:
    """Read the specifier of a rule about commands; white space in it counts once."""
    pattern = " ".join(written.split())
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    return CommandSpecifier(pattern)


@dataclass(frozen=True, slots=True)
class PathSpecifier:
    """Which paths a rule is about, in the language of `.gitignore`; a folder stands for all that is in it.

    `//x` is absolute, `~/x` below the home folder; anything else is below each workspace folder. A name without a
    slash fits at any depth; where it forbids, at any place at all.

    Args:
        rules: The pattern.
        base: The folder it is below, or `None` for each workspace folder.
    """

    rules: RuleList
    base: str | None

    def fits(self, path: str, roots: Sequence[str]) -> bool:
        """Whether it is about an absolute path without `.` and `..`."""
        bases = roots if self.base is None else (self.base,)
        return any(self._fits_below(base, path) for base in bases)

    def _fits_below(self, base: str, path: str) -> bool:
        prefix = base if base.endswith(os.sep) else base + os.sep
        if not path.startswith(prefix):
            return False
        names = bytes_text(path[len(prefix) :]).split(os.sep)
        below = ""
        for number, name in enumerate(names, start=1):
            below = f"{below}/{name}" if below else name
            # What is there is not looked at: the last name may be a folder as well.
            if self.rules.hides(below, is_folder=True):
                return True
            if number == len(names) and self.rules.hides(below, is_folder=False):
                return True
        return False


def path_specifier(written: str, home: str, *, forbids: bool) -> PathSpecifier:
    """Read the specifier of a rule about paths.

    Args:
        written: What stands in the parentheses.
        home: The user's home folder.
        forbids: Whether the rule forbids, so that a plain name is about such files outside the workspace too.

    Raises:
        ValueError: The pattern is not understood.
    """
    pattern, base = written.strip(), None
    if pattern.startswith("//"):
        pattern, base = pattern[1:], os.sep
    elif pattern == "~" or pattern.startswith("~/"):
        pattern, base = f"{pattern[1:]}" if len(pattern) > 1 else "/**", home
    elif pattern.startswith("./"):
        pattern = pattern[1:]
    elif forbids and "/" not in pattern.rstrip("/"):
        base = os.sep
    # A leading `!` or `#` means nothing special in a rule.
    escaped = f"\\{pattern}" if pattern[:1] in ("!", "#") else pattern
    rules = parse_rules(os.fsencode(escaped))
    if rules.odd_line is not None:
        raise ValueError(written)
    return PathSpecifier(rules, base)


def literal_path(path: str) -> str | None:
    """The specifier that is about exactly this absolute path and all below it; `None` if none can be written."""
    if "\n" in path or "\r" in path or "\0" in path:
        return None
    escaped = _SPECIAL.sub(r"\\\g<0>", path)
    bare = escaped.rstrip(" ")
    # Blanks at the end of a pattern would be dropped.
    return f"/{bare}{'[ ]' * (len(escaped) - len(bare))}" if path != os.sep else "//**"


@dataclass(frozen=True, slots=True)
class HostSpecifier:
    """Which hosts a rule is about: one host and its subdomains, or every one.

    Args:
        host: In lower case, without a final dot; `*` is every host.
    """

    host: str

    def fits(self, host: str) -> bool:
        """Whether it is about a host."""
        bare = host.lower().rstrip(".")
        return self.host in (ANYTHING, bare) or bare.endswith(f".{self.host}")


def host_specifier(written: str) -> HostSpecifier:
    """Read the specifier of a rule about hosts: `example.org`, `domain:example.org` or `*.example.org`."""
    host = written.strip().lower().removeprefix("domain:").strip()
    return HostSpecifier(ANYTHING if host == ANYTHING else host.removeprefix("*.").rstrip("."))


@dataclass(frozen=True, slots=True)
class AgentSpecifier:
    """Which agents a rule is about, whatever case their names are written in; a star stands for anything.

    Args:
        pattern: In folded case.
    """

    pattern: str

    def fits(self, name: str) -> bool:
        """Whether it is about an agent."""
        return fits_wildcards(self.pattern, name.casefold())


Specifier = CommandSpecifier | PathSpecifier | HostSpecifier | AgentSpecifier
