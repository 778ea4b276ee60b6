"""Which upstream a resource or a prompt belongs to, and under which name it is published."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.upstreams.connection import Upstream
from server.upstreams.listing import RESOURCES, TEMPLATES, Kind
from server.upstreams.origin import with_origin
from server.upstreams.peer import Json

MOST_TEMPLATE_CHARS = 2_000
"""A longer template is not matched against what is asked for."""

_EXPRESSION = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Route:
    """Where a resource is.

    Args:
        upstream: Whose it is.
        uri: The URI there.
    """

    upstream: Upstream
    uri: str


@dataclass(slots=True)
class ResourceRoutes:
    """The resources and templates of all upstreams.

    URIs stay as they are while they are unique. Where two upstreams have the same one, each is published with the alias
    and a plus sign before it.
    """

    resources: list[Json] = field(default_factory=list[Json])
    """As they are published."""
    templates: list[Json] = field(default_factory=list[Json])
    """As they are published."""
    known: dict[str, Route] = field(default_factory=dict[str, Route])
    """By the published URI."""
    shapes: list[tuple[tuple[str, ...], Upstream]] = field(default_factory=list[tuple[tuple[str, ...], Upstream]])

    def __contains__(self, uri: object) -> bool:
        return uri in self.known

    def find(self, uri: str, upstreams: Sequence[Upstream]) -> Route | None:
        """Where a URI is: what lists it, else what has a template for it, else the only one that has resources."""
        if (known := self.known.get(uri)) is not None:
            return known
        alias, plus, rest = uri.partition("+")
        if plus and (named := next((each for each in upstreams if each.alias == alias), None)) is not None:
            return Route(named, rest)
        matching = [upstream for texts, upstream in self.shapes if fits(texts, uri)]
        if matching:
            return Route(matching[0], uri)
        # What a result links to need not be listed, and what belongs to one client's session never is.
        able = [each for each in upstreams if each.announces_resources]
        likely = [each for each in able if _has_scheme_of(each, uri)] or able
        return Route(likely[0], uri) if len(likely) == 1 else None

    def published(self, upstream: Upstream, uri: str) -> str:
        """The URI under which clients know a resource."""
        for name in (uri, f"{upstream.alias}+{uri}"):
            route = self.known.get(name)
            if route is not None and route.upstream is upstream and route.uri == uri:
                return name
        return uri


def resource_routes(upstreams: Iterable[Upstream], is_taken: Callable[[str], bool]) -> ResourceRoutes:
    """Give every resource its published URI.

    Args:
        upstreams: In the order of the configuration.
        is_taken: Whether a URI is our own.
    """
    routes = ResourceRoutes()
    every = list(upstreams)
    for kind, found in ((RESOURCES, routes.resources), (TEMPLATES, routes.templates)):
        counts = _counts(every, kind)
        for upstream in every:
            for item in upstream.offer.of(kind):
                uri: str = item[kind.key]
                is_unique = counts[uri] == 1 and not is_taken(uri)
                name = uri if is_unique else f"{upstream.alias}+{uri}"
                found.append(with_origin({**item, kind.key: name}, upstream.alias))
                if kind is RESOURCES:
                    routes.known[name] = Route(upstream, uri)
                else:
                    routes.known.setdefault(name, Route(upstream, uri))
                    if len(uri) <= MOST_TEMPLATE_CHARS:
                        routes.shapes.append((texts_of(uri), upstream))
    return routes


def _has_scheme_of(upstream: Upstream, uri: str) -> bool:
    """Whether it lists a resource or a template with this scheme."""
    scheme = uri.partition(":")[0] + ":"
    return any(item[kind.key].startswith(scheme) for kind in (RESOURCES, TEMPLATES) for item in upstream.offer.of(kind))


def _counts(upstreams: Iterable[Upstream], kind: Kind) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for upstream in upstreams:
        for item in upstream.offer.of(kind):
            counts[item[kind.key]] = counts.get(item[kind.key], 0) + 1
    return counts


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
