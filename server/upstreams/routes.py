"""Which upstream a resource belongs to, and under which name it is published."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from server.json_rpc import Json
from server.upstreams.connection import Upstream
from server.upstreams.listing import RESOURCES, TEMPLATES, Kind
from server.upstreams.origin import with_origin
from server.upstreams.uri_templates import Templates, scheme_of
from server.upstreams.visible_texts import item_with_visible_texts


@dataclass(frozen=True, slots=True)
class Route:
    """Where a resource is.

    Args:
        upstream: Whose it is.
        uri: The URI there.
        name: The URI by which it was asked for.
    """

    upstream: Upstream
    uri: str
    name: str


class SharedUriError(Exception):
    """Several upstreams may mean something by one URI.

    Args:
        names: What each of these is called, so that it can be told from the others.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


@dataclass(slots=True)
class ResourceRoutes:
    """The resources and templates of all upstreams.

    URIs stay as they are where they can mean nothing else. Else what has them is published with the alias and a plus
    sign before it; so is a template without a scheme, which could stand for anybody's URIs. No order decides, and no
    moment: whoever lists what another one has could take it over.

    Args:
        upstreams: In the order of the configuration.
        is_ours: Whether a URI, or what a template stands for, is for us to answer.
        is_alone: Whether there is but one upstream, and nothing of ours beside it: all stays as it is.
    """

    upstreams: Sequence[Upstream]
    is_ours: Callable[[str], bool]
    is_alone: bool
    resources: list[Json] = field(default_factory=list[Json])
    """As they are published."""
    templates: list[Json] = field(default_factory=list[Json])
    """As they are published."""
    known: dict[str, Route] = field(default_factory=dict[str, Route])
    """By the published URI."""
    claims: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Who lists a URI, or a template, by its aliases."""
    patterns: Templates = field(default_factory=Templates)
    schemes: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Who lists something with a scheme."""

    def find(self, uri: str) -> Route | None:
        """Where a URI is: what lists it, else what has a template for it, else the only one that has such resources.

        Raises:
            SharedUriError: Several upstreams may mean something by it.
        """
        if (known := self.known.get(uri)) is not None or self.is_ours(uri):
            return known
        named = self._named(uri)
        if named is not None and not self.is_alone:
            return named
        having = self.claims.get(uri, set[str]()) | self.patterns.owners(uri)
        if not having and named is not None:
            return named
        # What a result links to need not be listed, and what belongs to one client's session never is.
        having = having or self.schemes.get(scheme_of(uri), set[str]())
        if not having:
            able = [each.alias for each in self.upstreams if each.announces_resources]
            having = set(able) if len(able) == 1 else having
        if len(having) > 1:
            raise SharedUriError([f"{each.alias}+{uri}" for each in self.upstreams if each.alias in having])
        return next((Route(each, uri, uri) for each in self.upstreams if each.alias in having), None)

    def published(self, upstream: Upstream, uri: str, is_sought: bool) -> str:
        """The URI under which clients reach a resource of an upstream, listed or not.

        Args:
            upstream: Whose it is.
            uri: The URI there.
            is_sought: Whether a URI that nobody lists is compared with templates; if not, its alias stands before it,
                which is right in any case.
        """
        if self.is_alone:
            return uri
        found = self.known.get(uri)
        if found is None and is_sought:
            with suppress(SharedUriError):
                found = self.find(uri)
        is_plain = found is not None and (found.upstream, found.uri) == (upstream, uri)
        return uri if is_plain else f"{upstream.alias}+{uri}"

    def _named(self, uri: str) -> Route | None:
        """What begins with an alias."""
        alias, plus, rest = uri.partition("+")
        if not plus:
            return None
        return next((Route(each, rest, uri) for each in self.upstreams if each.alias == alias), None)


def resource_routes(
    upstreams: Sequence[Upstream], aliases: Collection[str], is_ours: Callable[[str], bool], *, is_alone: bool
) -> ResourceRoutes:
    """Give every resource its published URI.

    Args:
        upstreams: In the order of the configuration.
        aliases: What begins with one of these and a plus sign is for that upstream, also where it is not among these.
        is_ours: Whether a URI, or what a template stands for, is for us to answer.
        is_alone: Whether there is but one upstream, and nothing of ours beside it: all stays as it is.
    """
    routes = ResourceRoutes(upstreams, is_ours, is_alone)
    for upstream, kind, uri in _every(upstreams):
        routes.claims.setdefault(uri, set()).add(upstream.alias)
        if scheme := scheme_of(uri):
            routes.schemes.setdefault(scheme, set()).add(upstream.alias)
        if kind is TEMPLATES and (scheme or is_alone):
            routes.patterns.add(upstream.alias, uri)

    def is_plain(uri: str) -> bool:
        return len(routes.claims[uri]) == 1 and not is_ours(uri) and uri.partition("+")[0] not in aliases

    for upstream in upstreams:
        listed = [item[RESOURCES.key] for item in upstream.offer.of(RESOURCES)]
        shared = routes.patterns.fit_others(upstream.alias, listed)
        for item in upstream.offer.of(RESOURCES):
            uri: str = item[RESOURCES.key]
            _add(routes, upstream, RESOURCES, item, stays=is_alone or (is_plain(uri) and uri not in shared))
        for item in upstream.offer.of(TEMPLATES):
            uri = item[TEMPLATES.key]
            _add(routes, upstream, TEMPLATES, item, stays=is_alone or (is_plain(uri) and bool(scheme_of(uri))))
    return routes


def _add(routes: ResourceRoutes, upstream: Upstream, kind: Kind, item: Json, *, stays: bool) -> None:
    uri: str = item[kind.key]
    name = uri if stays else f"{upstream.alias}+{uri}"
    published = routes.resources if kind is RESOURCES else routes.templates
    shown = item_with_visible_texts(kind, item)
    published.append(with_origin({**shown, kind.key: name}, upstream.alias))
    routes.known.setdefault(name, Route(upstream, uri, name))


def _every(upstreams: Sequence[Upstream]) -> Iterable[tuple[Upstream, Kind, str]]:
    for upstream in upstreams:
        for kind in (RESOURCES, TEMPLATES):
            for item in upstream.offer.of(kind):
                yield upstream, kind, item[kind.key]
