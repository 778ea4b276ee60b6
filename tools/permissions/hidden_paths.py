"""Which files rules about reading hide: from searches and listings, and from commands that read folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tools.permissions.rules import PathSpecifier, Rule, Rules
from tools.permissions.tool_names import READING

MAX_ENTRIES = 10_000
"""So many are compared with the rules before a command reads a folder."""


@dataclass(frozen=True, slots=True)
class HiddenPaths:
    """What rules hide: a search that shows a line of a file has read it, and nobody was asked.

    Args:
        rules: Rules that ask about, or deny, reading some paths.
        roots: The workspace folders.
    """

    rules: tuple[Rule, ...]
    roots: Sequence[str]

    def hides(self, path: str) -> str | None:
        """The rule that hides an absolute path, as reasons name it, or `None`."""
        return next((str(rule) for rule in self.rules if rule.fits_path((path,), self.roots)), None)


def hidden_paths(rules: Rules, roots: Sequence[str]) -> HiddenPaths | None:
    """What the rules hide in a workspace; `None` if there is no rule about reading some paths."""
    about = (rule for rule in (*rules.deny, *rules.ask) if rule.tools & READING)
    narrow = tuple(rule for rule in about if isinstance(rule.specifier, PathSpecifier))
    return HiddenPaths(narrow, roots) if narrow else None


def rules_about_what_is_in(folder: str, rules: Sequence[Rule], roots: Sequence[str]) -> list[Rule]:
    """Those of some rules that are about something in a folder as it is now. Blocking.

    Args:
        folder: Its absolute path.
        rules: All of them count where there are links, or more entries than are looked at.
        roots: The workspace folders.
    """
    left, waiting = MAX_ENTRIES, [folder] if rules else []
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or entry.is_symlink():
                        return list(rules)
                    if found := [rule for rule in rules if rule.fits_path((entry.path,), roots)]:
                        return found
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError:
        return list(rules)
    return []
