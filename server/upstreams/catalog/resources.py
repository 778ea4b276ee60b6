"""Links to resources in results: spelled as clients know them, where two upstreams have the same URI."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import is_
from typing import Any, cast

from server.json_rpc import Json, as_mapping
from server.upstreams.connection import Upstream
from server.upstreams.session.listing import RESOURCES, TEMPLATES, Kind
from server.upstreams.session.visible_texts import resource_with_visible_texts
from server.upstreams.wire.own_meta import with_origin

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
    shown = resource_with_visible_texts(item)
    published.append(with_origin({**shown, kind.key: name}, upstream.alias))
    routes.known.setdefault(name, Route(upstream, uri, name))


def _every(upstreams: Sequence[Upstream]) -> Iterable[tuple[Upstream, Kind, str]]:
    for upstream in upstreams:
        for kind in (RESOURCES, TEMPLATES):
            for item in upstream.offer.of(kind):
                yield upstream, kind, item[kind.key]


MOST_SOUGHT = 1_000
"""Links of one result that are compared with templates of resources (ours): some ten milliseconds."""

Published = Callable[[str, bool], str]
"""The URI under which clients know a resource of an upstream; whether templates are compared with it."""


class _Spelling:
    """How the links of one result are spelled, each URI once.

    Args:
        published: Spells a URI of the upstream that gave the result.
    """

    __slots__ = ("_names", "_published")

    def __init__(self, published: Published) -> None:
        self._published = published
        self._names: dict[str, str] = {}

    def of(self, uri: str) -> str:
        name = self._names.get(uri)
        if name is None:
            name = self._names[uri] = self._published(uri, len(self._names) < MOST_SOUGHT)
        return name


def with_links(method: str, result: Json, published: Published) -> Json:
    """A result whose links reach the upstream that gave it; the very same where none has to be changed.

    Args:
        method: What was asked for.
        result: As the upstream gave it.
        published: Spells a URI of this upstream.
    """
    if method == "tools/call":
        return _with_blocks(result, "content", published, _block)
    if method == "prompts/get":
        return _with_blocks(result, "messages", published, _message)
    return result


def _with_blocks(result: Json, name: str, published: Published, spell: Callable[[Json, _Spelling], Json]) -> Json:
    blocks = result.get(name)
    if not isinstance(blocks, list):
        return result
    before = cast("list[Any]", blocks)
    spelling = _Spelling(published)
    after = [spell(cast("Json", each), spelling) if isinstance(each, dict) else each for each in before]
    if all(map(is_, before, after)):
        return result
    return {**result, name: after}


def _message(message: Json, spelling: _Spelling) -> Json:
    content = as_mapping(message.get("content"))
    spelled = _block(content, spelling)
    return message if spelled is content else {**message, "content": spelled}


def _block(block: Json, spelling: _Spelling) -> Json:
    match block.get("type"):
        case "resource_link":
            return _spelled(block, spelling)
        case "resource":
            resource = as_mapping(block.get("resource"))
            spelled = _spelled(resource, spelling)
            return block if spelled is resource else {**block, "resource": spelled}
        case _:
            return block


def _spelled(item: Json, spelling: _Spelling) -> Json:
    uri = item.get("uri")
    if not isinstance(uri, str) or (name := spelling.of(uri)) == uri:
        return item
    return {**item, "uri": name}
