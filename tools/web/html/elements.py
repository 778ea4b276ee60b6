"""Which elements of HTML are what: blocks, marks, noise."""

from __future__ import annotations

import re

from tools.web.html.tags import attributes

BLOCKS = frozenset(
    (  # noqa: SIM905 - as a list it would be thirty lines
        "address article aside body caption center details dialog dir div dl fieldset figcaption figure footer form "
        "header hgroup html legend main menu nav optgroup p search section summary thead tbody tfoot noscript"
    ).split()
)
MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "kbd": "`", "samp": "`", "tt": "`"}
NOISE = frozenset(
    "nav svg math template button select datalist audio video canvas object map dialog".split()  # noqa: SIM905
)
"""Elements that are no text to be read, or only lead around."""

ENDED_BY_THEMSELVES = frozenset("p li dt dd tr td th option".split())  # noqa: SIM905
_NEVER_LEFT_OUT = frozenset("html body area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905
"""The whole page, and elements without an end."""
_UNSEEN_STYLE = re.compile(r"(?i)(?:^|;)\s*+(?:display\s*+:\s*+none|visibility\s*+:\s*+hidden)")


def may_be_hidden(written: str) -> bool:
    """A first look at attributes, for every tag of a page."""
    return "hidden" in written or "display" in written or "visibility" in written or "navigation" in written


def is_hidden(name: str, written: str) -> bool:
    """Whether an element is not shown, or only leads around."""
    if name in _NEVER_LEFT_OUT:
        return False
    given = attributes(written)
    return (
        "hidden" in given
        or given.get("aria-hidden", "").lower() == "true"
        or given.get("role", "").lower() == "navigation"
        or _UNSEEN_STYLE.search(given.get("style", "")) is not None
    )
