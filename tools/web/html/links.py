"""Where the links of a page lead, as absolute URLs, within a budget."""

from __future__ import annotations

import re

MAX_LINK_CHARS = 2_000
"""A longer target is left out: it carries data rather than a place."""

_ABSOLUTE = ("http://", "https://")
_LEFT_OUT = re.compile(r"(?i)(?!https?:|mailto:|tel:|ftp:)[a-z][a-z0-9+.-]*:")
"""Schemes that lead nowhere from a text: scripts, data."""
_IGNORED = re.compile(r"[\x00-\x20]+")
_UNSAFE = re.compile(r"[()<>\[\]\s\"`|]")


class Links:
    """Makes targets absolute.

    Args:
        base: The page's URL.
        budget: Characters that all targets together may have: a long base would make a short page endless.
    """

    def __init__(self, base: str, budget: int) -> None:
        self._budget = budget
        self.rebase(base)

    def rebase(self, base: str) -> None:
        """Relative targets start from here from now on."""
        self._base = base
        self._origin = "/".join(base.split("/", 3)[:3])
        self._known: dict[str, str] = {}

    def base(self, written: str) -> None:
        """Take what a page says its base is."""
        target = self.target(written)
        if target.startswith(_ABSOLUTE):
            self.rebase(target)

    def target(self, written: str) -> str:
        """Where a link leads; empty where it stays on the page, leads nowhere, or is too long to be told."""
        target = self._known.get(written)
        if target is None:
            target = self._known[written] = self._absolute(written)
        if len(target) > self._budget:
            return ""
        self._budget -= len(target)
        return target

    def _absolute(self, written: str) -> str:
        if len(written) > MAX_LINK_CHARS or written.startswith("#"):
            return ""
        target = _IGNORED.sub("", written)
        if not target or _LEFT_OUT.match(target):
            return ""
        if target.startswith("/") and not target.startswith("//") and "/." not in target:
            target = self._origin + target
        elif not target.startswith(_ABSOLUTE):
            target = self._joined(target)
        target = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", target)
        return target if len(target) <= MAX_LINK_CHARS else ""

    def _joined(self, target: str) -> str:
        from urllib.parse import urljoin  # noqa: PLC0415 - takes as long as a small page, and some need it not

        try:
            return urljoin(self._base, target)
        except ValueError:
            return ""
