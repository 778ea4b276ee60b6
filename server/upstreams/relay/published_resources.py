"""The resources of all upstreams, under the URIs by which clients know them, and the links to them in results.

An unambiguous URI is published unchanged. An ambiguous URI is published with the upstream's alias and a plus sign in
front of it (for an app, after `ui://`). A template without a scheme could match any URI, so it also gets the alias.
No upstream keeps an ambiguous URI unchanged, regardless of the order of the upstreams or of when their lists arrive.
Otherwise, an upstream could take over another upstream's resources.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import is_
from typing import Any, cast

from server.protocol.json_rpc import Json, as_mapping
from server.upstreams.catalog.mcp_apps import app_links
from server.upstreams.connections.connection import Upstream
from server.upstreams.session.list_reader import RESOURCES, SKILLS, TEMPLATES, TOOLS
from server.upstreams.session.text_sanitizer import resource_with_visible_texts
from server.upstreams.wire.own_meta import with_origin

MAX_TEMPLATE_CHARS = 2_000  # a longer template is treated as matching every URI with its scheme

MAX_TEMPLATES = 100
"""Maximum number of templates per upstream that URIs are compared with. Each further template is treated as matching
every URI with its scheme.
"""

MAX_COMPARED = 100_000
"""Maximum number of comparisons of one upstream's URIs with other upstreams' templates. Above it, each template is
treated as matching every URI with its scheme.
"""

# Maximum number of links per result to compare with templates; this many take about ten milliseconds
MAX_SOUGHT = 1_000

MAX_FOLDERS = 16  # maximum number of parent folders to remember for each file of a skill
MAX_LINKED = 10_000  # maximum number of unlisted URIs to remember per upstream

_MAIN_FILE = "/SKILL.md"  # the file that makes its folder a skill
_APP = "ui://"  # clients open only URIs with this scheme as apps (SEP-1865)
_LINKS = {
    "tools/call": "content",
    "prompts/get": "messages",
    "resources/read": "contents",
    "resources/directory/read": "resources",
}
"""The result field with links or contents, by method."""

_EXPRESSION = re.compile(r"\{[^{}]*\}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI or template, in lower case; empty if there is none."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found is not None else ""


def with_alias(alias: str, uri: str) -> str:
    """Return a published URI that can only mean the resource `uri` of the upstream `alias`."""
    if uri.startswith(_APP):
        return f"{_APP}{alias}+{uri.removeprefix(_APP)}"
    # A scheme must begin with a letter and must not contain `_`; Python clients reject a list with an invalid scheme.
    # An alias never contains a dot, so a dot can stand for `_`.
    named = alias if alias[0].isalpha() else f"a__{alias}"
    return f"{named.replace('_', '.')}+{uri}"


def without_alias(uri: str) -> tuple[str, str]:
    """Split a published URI into a possible alias and the upstream's URI; without a plus sign, the alias is empty."""
    scheme = _APP if uri.startswith(_APP) else ""
    alias, plus, rest = uri[len(scheme) :].partition("+")
    return (alias.replace(".", "_").removeprefix("a__"), f"{scheme}{rest}") if plus else ("", uri)


@dataclass(frozen=True, slots=True)
class Route:
    """A resource: its upstream, its URI at that upstream (`uri`), and its URI for clients (`name`)."""

    upstream: Upstream
    uri: str
    name: str


class SharedUriError(Exception):
    """Several upstreams may have the resource that a URI names; `names` has one unambiguous URI for each of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class ResourceRoutes:
    """The published URIs of all resources and templates, and the upstream and URI that each of them stands for.

    Args:
        upstreams: In the order of the configuration.
        aliases: Reserved names. In a URI, an alias before a plus sign always means the upstream with that alias, even
            if that upstream is not running.
        is_ours: Returns whether this server itself serves a URI or template.
        is_alone: Whether there is only one upstream, and this server has no resources. If so, every URI is published
            unchanged.
    """

    def __init__(
        self, upstreams: Sequence[Upstream], aliases: Collection[str], is_ours: Callable[[str], bool], *, is_alone: bool
    ) -> None:
        self.resources: list[tuple[str, Json]] = []  # pairs of the owner's alias and a published resource
        self.templates: list[tuple[str, Json]] = []  # pairs of the owner's alias and a published template
        self.known: dict[str, Route] = {}  # routes by published URI
        self.apps: dict[tuple[str, str], str] = {}  # published URIs of apps, by alias and original URI
        self.claims: dict[str, set[str]] = {}  # by URI or template, the aliases of the upstreams that list it
        self.is_ours = is_ours
        self._upstreams = upstreams
        self._is_alone = is_alone
        self._schemes: dict[str, set[str]] = {}  # by scheme, the aliases of the upstreams that use it
        self._templates: dict[str, list[tuple[str, list[str]]]] = {}
        """By scheme, each template's owner, and the literal parts between the template's expressions."""
        # By scheme, the aliases treated as matching every URI with that scheme.
        self._whole_schemes: dict[str, set[str]] = {}
        self._named_apart = set[tuple[str, str]]()
        """Pairs of an alias and a skill's URI. If one URI of a skill is ambiguous, all URIs of that skill are
        published with the alias.
        """
        self._aliases = aliases
        self._unlisted: dict[str, list[str]] = {}  # URIs that tools and skills mention, by the owner's alias
        links: list[tuple[Upstream, str]] = []
        counts = Counter[str]()
        for upstream in upstreams:
            alias, offer = upstream.alias, upstream.offer
            apps = [uri for tool in offer.items(TOOLS) for uri in app_links(tool)]
            files = [uri for skill in offer.items(SKILLS) for uri in skill_uris(skill)]
            self._unlisted[alias] = list(islice(dict.fromkeys((*apps, *files)), MAX_LINKED))
            links += [(upstream, uri) for uri in apps]
            listed = [(kind, item[kind.key]) for kind in (RESOURCES, TEMPLATES) for item in offer.items(kind)]
            for kind, uri in (*listed, *((RESOURCES, uri) for uri in self._unlisted[alias])):
                self.claims.setdefault(uri, set()).add(alias)
                if scheme := scheme_of(uri):
                    self._schemes.setdefault(scheme, set()).add(alias)
                if kind is RESOURCES or not (scheme or is_alone):
                    continue
                if len(uri) > MAX_TEMPLATE_CHARS or counts[alias] >= MAX_TEMPLATES:
                    self._whole_schemes.setdefault(scheme, set()).add(alias)
                    continue
                counts[alias] += 1
                self._templates.setdefault(scheme, []).append((alias, _EXPRESSION.split(uri)))
        for upstream in upstreams:
            alias, offer = upstream.alias, upstream.offer
            compared = len(offer.items(RESOURCES)) + len(self._unlisted[alias])
            is_compared = compared * (counts.total() - counts[alias]) <= MAX_COMPARED
            for skill in offer.items(SKILLS):
                files = skill_uris(skill)
                if not all(self._is_plain(alias, uri, is_compared=is_compared) for uri in files):
                    self._named_apart |= {(alias, uri) for uri in files}
            for kind, published in ((RESOURCES, self.resources), (TEMPLATES, self.templates)):
                for item in offer.items(kind):
                    uri = item[kind.key]
                    is_plain = self._is_plain(alias, uri, is_compared=is_compared, is_template=kind is TEMPLATES)
                    name = self._know(upstream, uri, is_plain=is_plain)
                    shown = with_origin({**resource_with_visible_texts(item), kind.key: name}, alias)
                    published.append((alias, shown))
            for uri in self._unlisted[alias]:
                self._know(upstream, uri, is_plain=self._is_plain(alias, uri, is_compared=is_compared))
        self.apps = {(each.alias, uri): self.published(each, uri, False) for each, uri in links}

    def _is_plain(self, alias: str, uri: str, *, is_compared: bool, is_template: bool = False) -> bool:
        """Return whether a URI can be published unchanged, because it can only mean this upstream's resource."""
        if self._is_alone or (alias, uri) in self._named_apart:
            return self._is_alone
        is_shared = len(self.claims.get(uri, ())) != 1 or without_alias(uri)[0] in self._aliases
        if is_shared or self.is_ours(uri):
            return False
        if is_template:
            return bool(scheme_of(uri))
        return not self.template_owners(uri, is_compared=is_compared) - {alias}

    def _know(self, upstream: Upstream, uri: str, *, is_plain: bool) -> str:
        name = uri if is_plain else with_alias(upstream.alias, uri)
        self.known.setdefault(name, Route(upstream, uri, name))
        return name

    def template_owners(self, uri: str, *, is_compared: bool = True) -> set[str]:
        """Return the aliases of the upstreams whose templates may match a URI.

        If `is_compared` is false, every template with the URI's scheme counts as matching.
        """
        owners: set[str] = set()
        # A template without a scheme may match any URI, and is recorded only if there is a single upstream.
        for scheme in {scheme_of(uri), ""} if is_compared else {scheme_of(uri)}:
            owners |= self._whole_schemes.get(scheme, set())
            for alias, texts in self._templates.get(scheme, ()):
                if alias not in owners and (not is_compared or _fits(texts, uri)):
                    owners.add(alias)
        return owners

    def find(self, uri: str) -> Route | None:
        """Find the resource that a URI means.

        The lists decide first, then an alias in the URI, then templates, then schemes. Otherwise, the only upstream
        that announces resources is assumed to have it. Raises a `SharedUriError` if several upstreams may have it.
        """
        if (known := self.known.get(uri)) is not None or self.is_ours(uri):
            return known
        alias, rest = without_alias(uri)
        named = next((Route(each, rest, uri) for each in self._upstreams if each.alias == alias), None)
        if named is not None and not self._is_alone:
            return named
        having = self.claims.get(uri, set[str]()) | self.template_owners(uri)
        if not having and named is not None:
            return named
        # A link in a result may lead to an unlisted resource, and resources of a single client's session are never
        # listed.
        having = having or self._schemes.get(scheme_of(uri), set[str]())
        if not having:
            able = [each.alias for each in self._upstreams if each.announces_resources]
            having = set(able) if len(able) == 1 else having
        if len(having) > 1:
            raise SharedUriError([with_alias(each.alias, uri) for each in self._upstreams if each.alias in having])
        return next((Route(each, uri, uri) for each in self._upstreams if each.alias in having), None)

    def published(self, upstream: Upstream, uri: str, is_sought: bool) -> str:
        """Return the URI under which clients reach a resource of an upstream, listed or not.

        If `is_sought` is true, an unlisted URI is compared with templates. Otherwise, it is published with the alias,
        which is always unambiguous.
        """
        # An unlisted URI that this server serves is unchanged, because a link to a file may be for the user's editor.
        if self._is_alone or (self.is_ours(uri) and uri not in self.claims):
            return uri
        if (upstream.alias, uri) in self._named_apart:
            return with_alias(upstream.alias, uri)
        found = self.known.get(uri)
        if found is None and is_sought:
            with suppress(SharedUriError):
                found = self.find(uri)
        is_plain = found is not None and (found.upstream, found.uri) == (upstream, uri)
        return uri if is_plain else with_alias(upstream.alias, uri)

    def published_skill(self, upstream: Upstream, skill: Json) -> Json:
        """Return a skill with its own and its files' published URIs; everything else is unchanged."""
        uris = skill_uris(skill)
        if all(self.published(upstream, uri, number < MAX_SOUGHT) == uri for number, uri in enumerate(uris)):
            return skill

        def named(item: Any) -> Any:
            uri = as_mapping(item).get("uri")
            return {**item, "uri": with_alias(upstream.alias, uri)} if isinstance(uri, str) else item

        files: Any = skill.get("resources")
        renamed = list(map(named, cast("list[Any]", files))) if isinstance(files, list) else files
        return {**named(skill), "resources": renamed} if "resources" in skill else named(skill)


def _fits(texts: list[str], uri: str) -> bool:
    """Return whether a template may match a URI.

    A template may match if the URI consists of its literal parts (`texts`) in order, with other text in between.
    """
    first, *middle = texts
    if not middle:
        return uri == first
    last = middle.pop()
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    start = len(first) + 1
    for text in middle:
        found = uri.find(text, start)
        if found < 0:
            return False
        start = found + len(text) + 1
    return start <= len(uri) - len(last)


def skill_uris(skill: Mapping[str, Any]) -> list[str]:
    """Return a skill's URIs (SEP-2640): its own, those of the files that it names, and those of their folders."""
    files: Any = skill.get("resources")
    items = [skill, *cast("list[Any]", files)] if isinstance(files, list) else [skill]
    uris = [uri for uri in (as_mapping(item).get("uri") for item in items) if isinstance(uri, str)]
    root = uris[0].removesuffix(_MAIN_FILE) if uris else ""
    folders: dict[str, None] = {}
    for uri in uris:
        folder = uri.rpartition("/")[0]
        for _ in range(MAX_FOLDERS):
            if folder in folders or not (folder == root or folder.startswith(f"{root}/")):
                break
            folders[folder] = None
            folder = folder.rpartition("/")[0]
    return list(dict.fromkeys((*uris, *folders)))


def with_links(method: str, result: Json, published: Callable[[str, bool], str]) -> Json:
    """Return a result with published URIs in its links, or `result` itself if no link changes.

    `published` returns the published URI for a URI; its second argument says whether to compare the URI with templates.
    """
    name = _LINKS.get(method, "")
    before: Any = result.get(name)
    if not isinstance(before, list):
        return result
    known: dict[str, str] = {}

    def with_published_uri(item: Json) -> Json:
        uri = item.get("uri")
        if not isinstance(uri, str):
            return item
        if uri not in known:
            known[uri] = published(uri, len(known) < MAX_SOUGHT)
        return item if known[uri] == uri else {**item, "uri": known[uri]}

    after: list[Any] = []
    for item in cast("list[Any]", before):
        fields = as_mapping(item)
        block = as_mapping(fields.get("content")) if name == "messages" else fields
        shown, kind = block, block.get("type")
        if name in ("contents", "resources") or kind == "resource_link":
            shown = with_published_uri(block)
        elif kind == "resource":
            resource = as_mapping(block.get("resource"))
            if (renamed := with_published_uri(resource)) is not resource:
                shown = {**block, "resource": renamed}
        if shown is block:
            after.append(item)
        else:
            after.append({**fields, "content": shown} if name == "messages" else shown)
    return result if all(map(is_, cast("list[Any]", before), after)) else {**result, name: after}
