"""Which files rules about reading hide from searches and listings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.permissions.rule import Rule
from tools.permissions.rules import Rules
from tools.permissions.specifiers import PathSpecifier
from tools.permissions.tool_names import READING


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
