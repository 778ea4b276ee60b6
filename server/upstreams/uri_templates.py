"""URI templates of upstreams: which URIs they may stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MOST_TEMPLATE_CHARS = 2_000
"""A longer template is not matched against what is asked for."""

MOST_COMPARED = 100_000
"""URIs times templates that are compared for one list; beyond that, a scheme of a template is enough to fit."""

_MOST_SORTED_CHARS = 64
"""Of its beginning a template is found by so many at most."""

_CHARS_AT_ONCE = 1_000
"""Of a URI, compared at the price of one comparison."""

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
class _Templates:
    """Those of one upstream, sorted by how they begin, so that few are compared with a URI."""

    count: int = 0
    schemes: set[str] = field(default_factory=set[str])
    _by_beginning: dict[str, list[tuple[str, ...]]] = field(default_factory=dict[str, list[tuple[str, ...]]])
    _lengths: set[int] = field(default_factory=set[int])

    def add(self, template: str) -> None:
        texts = texts_of(template)
        beginning = texts[0][:_MOST_SORTED_CHARS]
        self.count += 1
        self.schemes.add(scheme_of(template))
        self._by_beginning.setdefault(beginning, []).append(texts)
        self._lengths.add(len(beginning))

    def fit(self, uri: str) -> bool:
        return any(fits(texts, uri) for like in self._like(uri) for texts in like)

    def price(self, uri: str) -> int:
        return len(self._lengths) + sum(map(len, self._like(uri))) * (1 + len(uri) // _CHARS_AT_ONCE)

    def _like(self, uri: str) -> Iterator[list[tuple[str, ...]]]:
        for length in self._lengths:
            if (like := self._by_beginning.get(uri[:length])) is not None:
                yield like


@dataclass(slots=True)
class Shapes:
    """The templates of all upstreams, by their aliases. One without a scheme could stand for anybody's URIs."""

    _of: dict[str, _Templates] = field(default_factory=dict[str, _Templates])

    def add(self, alias: str, template: str) -> None:
        """One more template of an upstream."""
        if len(template) <= MOST_TEMPLATE_CHARS:
            self._of.setdefault(alias, _Templates()).add(template)

    def owners(self, uri: str) -> set[str]:
        """Whose templates may stand for a URI."""
        return {alias for alias, templates in self._of.items() if templates.fit(uri)}

    def price(self, uri: str) -> int:
        """How many comparisons it takes to know the owners of a URI, about."""
        return sum(templates.price(uri) for templates in self._of.values())

    def fit_others(self, alias: str, uris: Sequence[str]) -> set[str]:
        """Which URIs of an upstream a template of another one may stand for too."""
        others = [templates for other, templates in self._of.items() if other != alias]
        if len(uris) * sum(templates.count for templates in others) > MOST_COMPARED:
            return {uri for uri in uris if any(scheme_of(uri) in templates.schemes for templates in others)}
        return {uri for uri in uris if any(templates.fit(uri) for templates in others)}
