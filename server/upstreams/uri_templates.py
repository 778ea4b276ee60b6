"""URI templates of upstreams: which URIs they may stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_TEMPLATE_CHARS = 2_000
"""A longer template is not matched against what is asked for."""

MOST_COMPARED = 100_000
"""URIs times templates that are compared for one list; beyond that, a scheme of a template is enough to fit."""

_EXPRESSION = re.compile(r"\{[^{}]*\}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(uri: str) -> str:
    """The scheme of a URI, or of all that a template stands for, in small letters; empty where it has none."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found is not None else ""


def fits(texts: Sequence[str], uri: str) -> bool:
    """Whether a URI is what a template may stand for: its texts in their order, and something between each two.

    Args:
        texts: What stands between the template's expressions.
        uri: Compared from the left, each text at its first place, which needs no second try.
    """
    first, *middle = texts
    if not middle:
        return uri == first
    last = middle.pop()
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    place = len(first) + 1
    for text in middle:
        found = uri.find(text, place)
        if found < 0:
            return False
        place = found + len(text) + 1
    return place <= len(uri) - len(last)


def texts_of(template: str) -> tuple[str, ...]:
    """What stands between the expressions of a URI template."""
    return tuple(_EXPRESSION.split(template))


@dataclass(slots=True)
class Shapes:
    """The templates of all upstreams, by their aliases. One without a scheme could stand for anybody's URIs."""

    _of: dict[str, list[tuple[str, ...]]] = field(default_factory=dict[str, list[tuple[str, ...]]])
    _schemes: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, alias: str, template: str) -> None:
        """One more template of an upstream."""
        if len(template) <= MOST_TEMPLATE_CHARS:
            self._of.setdefault(alias, []).append(texts_of(template))
            self._schemes.setdefault(alias, set()).add(scheme_of(template))

    def owners(self, uri: str) -> set[str]:
        """Whose templates may stand for a URI."""
        return {alias for alias in self._of if self._fits(alias, uri)}

    def fit_others(self, alias: str, uris: Sequence[str]) -> set[str]:
        """Which URIs of an upstream a template of another one may stand for too."""
        others = [other for other in self._of if other != alias]
        compares_all = len(uris) * sum(len(self._of[other]) for other in others) <= MOST_COMPARED
        return {uri for uri in uris if any(self._fits(other, uri, is_whole=compares_all) for other in others)}

    def _fits(self, alias: str, uri: str, *, is_whole: bool = True) -> bool:
        if not is_whole:
            return scheme_of(uri) in self._schemes[alias]
        return any(fits(texts, uri) for texts in self._of[alias])
