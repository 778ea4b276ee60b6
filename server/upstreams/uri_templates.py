"""URI templates of upstreams: which URIs they may stand for.

The SDK's `UriTemplate` is not used here: it refuses templates that servers do list (`{a}{b}`, `{id:3}`), and walks a
URI character by character for each variable, so that a hostile pair of both takes a thousand times as long.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_TEMPLATE_CHARS = 2_000
"""A longer template is taken to stand for everything with its scheme."""

MOST_TEMPLATES = 100
"""Of one upstream that are compared; each further one is taken to stand for everything with its scheme."""

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


@dataclass(slots=True)
class Templates:
    """The templates of all upstreams, by their schemes and aliases."""

    _counts: Counter[str] = field(default_factory=Counter[str])
    _by_scheme: dict[str, list[tuple[str, tuple[str, ...]]]] = field(
        default_factory=dict[str, list[tuple[str, tuple[str, ...]]]]
    )
    _whole_schemes: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Who stands for everything with a scheme."""

    def add(self, alias: str, template: str) -> None:
        """One more template of an upstream."""
        scheme = scheme_of(template)
        if len(template) > MOST_TEMPLATE_CHARS or self._counts[alias] >= MOST_TEMPLATES:
            self._whole_schemes.setdefault(scheme, set()).add(alias)
            return
        self._counts[alias] += 1
        self._by_scheme.setdefault(scheme, []).append((alias, tuple(_EXPRESSION.split(template))))

    def owners(self, uri: str) -> set[str]:
        """Whose templates may stand for a URI."""
        owners: set[str] = set()
        # One without a scheme may stand for a URI with any; it is added only where there is a single upstream.
        for scheme in {scheme_of(uri), ""}:
            owners |= self._whole_schemes.get(scheme, set())
            for alias, texts in self._by_scheme.get(scheme, ()):
                if alias not in owners and fits(texts, uri):
                    owners.add(alias)
        return owners

    def fit_others(self, alias: str, uris: Sequence[str]) -> set[str]:
        """Which URIs of an upstream a template of another one may stand for too."""
        if len(uris) * (self._counts.total() - self._counts[alias]) <= MOST_COMPARED:
            return {uri for uri in uris if self.owners(uri) - {alias}}
        return {uri for uri in uris if self._owners_of_scheme(scheme_of(uri)) - {alias}}

    def _owners_of_scheme(self, scheme: str) -> set[str]:
        return self._whole_schemes.get(scheme, set()) | {alias for alias, _ in self._by_scheme.get(scheme, ())}
