"""The resources of all upstreams: the URIs by which clients know them, and clients' subscriptions to them.

An unambiguous URI is published unchanged. An ambiguous URI is published with the upstream's alias and a plus sign in
front of it (for an app, after `ui://`). A template counts as matching every URI with its scheme. A template without a
scheme could match any URI, so it is published with the alias too. No upstream keeps an ambiguous URI unchanged,
regardless of the order of the upstreams or of when their lists arrive. Otherwise, an upstream could take over another
upstream's resources.

A subscription (`Watch`) is renewed after a lost connection, and reports changes under the URI that the client watches.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import anyio

from server.clients.announcements import NOTIFY_SECONDS, ListChange, ListenBus
from server.clients.client_request import Exchange
from server.protocol.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, Json, MCPError, as_list, as_mapping
from server.upstreams.catalog.upstream_tool import app_links
from server.upstreams.connections.client_sessions import key_of
from server.upstreams.connections.connection import SessionKey, Upstream
from server.upstreams.connections.pool import bounded_gather
from server.upstreams.relay.request_relay import Relay
from server.upstreams.session.list_reader import RESOURCES, SKILLS, TEMPLATES, TOOLS, resource_with_visible_texts
from server.upstreams.session.upstream_session import ChangeStream, UpstreamSession
from server.upstreams.wire.json_rpc_channel import ConnectionLostError, RelayError, UpstreamError
from server.upstreams.wire.origin_meta import with_origin
from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

MAX_FOLDERS = 16  # maximum number of parent folders to remember for each file of a skill
MAX_LINKED = 10_000  # maximum number of unlisted URIs to remember per upstream

MAX_WATCHED = 1_000  # maximum number of resources that one client connection may watch
# Maximum number of one client's subscriptions to renew at a time, so that the client's requests are not delayed
MAX_RENEWED_AT_ONCE = 10
MAX_UPDATED = 10_000  # maximum number of changed resources that wait for a notification

_MAIN_FILE = "/SKILL.md"  # the file that makes its folder a skill
_APP = "ui://"  # clients open only URIs with this scheme as apps (SEP-1865)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI or template, in lower case; empty if there is none."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match is not None else ""


def with_alias(alias: str, uri: str) -> str:
    """Return a published URI that can only mean the resource `uri` of the upstream `alias`."""
    if uri.startswith(_APP):
        return f"{_APP}{alias}+{uri.removeprefix(_APP)}"
    # A scheme must begin with a letter and must not contain `_`; Python clients reject a whole list if one URI has an
    # invalid scheme. An alias never contains a dot, so a dot can stand for `_`.
    prefix = alias if alias[0].isalpha() else f"a__{alias}"
    return f"{prefix.replace('_', '.')}+{uri}"


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
        upstreams: The upstreams, in the order in which they are configured.
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
        self.by_uri: dict[str, Route] = {}  # routes by published URI
        self.apps: dict[tuple[str, str], str] = {}  # published URIs of apps, by alias and original URI
        self.claims: dict[str, set[str]] = {}  # by URI or template, the aliases of the upstreams that list it
        self.is_ours = is_ours
        self._upstreams = {upstream.alias: upstream for upstream in upstreams}
        self._is_alone = is_alone
        self._schemes: dict[str, set[str]] = {}  # by scheme, the aliases of the upstreams that use it
        # By scheme, the aliases of the upstreams with a template of that scheme. A template without a scheme may match
        # any URI, and is recorded only if there is a single upstream.
        self._template_schemes: dict[str, set[str]] = {}
        self._prefixed_uris = set[tuple[str, str]]()
        """Pairs of an alias and a skill's URI. If one URI of a skill is ambiguous, all URIs of that skill are
        published with the alias.
        """
        self._aliases = aliases
        self._unlisted: dict[str, list[str]] = {}  # URIs that tools and skills mention, by the owner's alias
        links: list[tuple[Upstream, str]] = []
        for upstream in upstreams:
            alias, offer = upstream.alias, upstream.offer
            apps = [uri for tool in offer.items(TOOLS) for uri in app_links(tool)]
            files = [uri for skill in offer.items(SKILLS) for uri in skill_uris(skill)]
            self._unlisted[alias] = list(islice(dict.fromkeys((*apps, *files)), MAX_LINKED))
            links += [(upstream, uri) for uri in apps]
            listed_uris = [(kind, item[kind.key]) for kind in (RESOURCES, TEMPLATES) for item in offer.items(kind)]
            for kind, uri in (*listed_uris, *((RESOURCES, uri) for uri in self._unlisted[alias])):
                self.claims.setdefault(uri, set()).add(alias)
                if scheme := scheme_of(uri):
                    self._schemes.setdefault(scheme, set()).add(alias)
                if kind is TEMPLATES and (scheme or is_alone):
                    self._template_schemes.setdefault(scheme, set()).add(alias)
        for upstream in upstreams:
            alias, offer = upstream.alias, upstream.offer
            for skill in offer.items(SKILLS):
                files = skill_uris(skill)
                if not all(self._is_plain(alias, uri) for uri in files):
                    self._prefixed_uris |= {(alias, uri) for uri in files}
            for kind, published_items in ((RESOURCES, self.resources), (TEMPLATES, self.templates)):
                for item in offer.items(kind):
                    uri = item[kind.key]
                    is_plain = self._is_plain(alias, uri, is_template=kind is TEMPLATES)
                    name = self._add_route(upstream, uri, is_plain=is_plain)
                    published_item = with_origin({**resource_with_visible_texts(item), kind.key: name}, alias)
                    published_items.append((alias, published_item))
            for uri in self._unlisted[alias]:
                self._add_route(upstream, uri, is_plain=self._is_plain(alias, uri))
        self.apps = {(owner.alias, uri): self.published_uri(owner, uri) for owner, uri in links}

    def _is_plain(self, alias: str, uri: str, *, is_template: bool = False) -> bool:
        """Return whether a URI can be published unchanged, because it can only mean this upstream's resource."""
        if self._is_alone or (alias, uri) in self._prefixed_uris:
            return self._is_alone
        is_shared = len(self.claims.get(uri, ())) != 1 or without_alias(uri)[0] in self._aliases
        if is_shared or self.is_ours(uri):
            return False
        if is_template:
            return self._schemes.get(scheme_of(uri)) == {alias}
        return not self.template_owners(uri) - {alias}

    def _add_route(self, upstream: Upstream, uri: str, *, is_plain: bool) -> str:
        name = uri if is_plain else with_alias(upstream.alias, uri)
        self.by_uri.setdefault(name, Route(upstream, uri, name))
        return name

    def template_owners(self, uri: str) -> set[str]:
        """Return the aliases of the upstreams whose templates may match a URI."""
        schemes = self._template_schemes
        return schemes.get(scheme_of(uri), set[str]()) | schemes.get("", set[str]())

    def find(self, uri: str) -> Route | None:
        """Find the resource that a URI means.

        The lists decide first, then an alias in the URI, then the scheme. If none of these decides, and only one
        upstream declares the `resources` capability, that upstream is assumed to have the resource. Raises a
        `SharedUriError` if several upstreams may have it.
        """
        if (route := self.by_uri.get(uri)) is not None or self.is_ours(uri):
            return route
        alias, upstream_uri = without_alias(uri)
        upstream = self._upstreams.get(alias)
        route_by_alias = None if upstream is None else Route(upstream, upstream_uri, uri)
        if route_by_alias is not None and not self._is_alone:
            return route_by_alias
        template_owners = self.template_owners(uri)
        owners = self.claims.get(uri, set[str]()) | template_owners
        if not owners and route_by_alias is not None:
            return route_by_alias
        # A link in a result may lead to an unlisted resource, and resources of a single client's session are never
        # listed. Such a resource may have the scheme of another upstream's template.
        if not owners or template_owners:
            owners |= self._schemes.get(scheme_of(uri), set[str]())
        if not owners:
            candidates = [alias for alias, upstream in self._upstreams.items() if upstream.announces_resources]
            owners = set(candidates) if len(candidates) == 1 else owners
        routes = [Route(upstream, uri, uri) for alias, upstream in self._upstreams.items() if alias in owners]
        if len(routes) > 1:
            raise SharedUriError([with_alias(route.upstream.alias, uri) for route in routes])
        return routes[0] if routes else None

    def published_uri(self, upstream: Upstream, uri: str) -> str:
        """Return the URI under which clients reach a resource of an upstream, listed or not."""
        # If this server itself serves an unlisted URI, the URI is published unchanged, because a link to a file may be
        # meant for the user's editor.
        if self._is_alone or (self.is_ours(uri) and uri not in self.claims):
            return uri
        if (upstream.alias, uri) in self._prefixed_uris:
            return with_alias(upstream.alias, uri)
        route, scheme_users = self.by_uri.get(uri), self._schemes.get(scheme_of(uri))
        if route is None and scheme_users in (None, {upstream.alias}):
            with suppress(SharedUriError):
                route = self.find(uri)
        is_plain = route is not None and (route.upstream, route.uri) == (upstream, uri)
        return uri if is_plain else with_alias(upstream.alias, uri)

    def published_skill(self, upstream: Upstream, skill: Json) -> Json:
        """Return a skill with the published URIs of the skill and of its files; everything else is unchanged."""
        uris = skill_uris(skill)
        if all(self.published_uri(upstream, uri) == uri for uri in uris):
            return skill

        def with_published_uri(item: Any) -> Any:
            uri = as_mapping(item).get("uri")
            return {**item, "uri": with_alias(upstream.alias, uri)} if isinstance(uri, str) else item

        published_skill: Json = with_published_uri(skill)
        if files := as_list(skill.get("resources")):
            return {**published_skill, "resources": list(map(with_published_uri, files))}
        return published_skill


def skill_uris(skill: Mapping[str, Any]) -> list[str]:
    """Return a skill's URIs (SEP-2640): its own, those of the files that it names, and those of their folders."""
    items = [skill, *as_list(skill.get("resources"))]
    uris = [uri for item in items if isinstance(uri := as_mapping(item).get("uri"), str)]
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


@dataclass(eq=False, repr=False, slots=True)
class Watch:
    """A client's subscription to a resource, which the client knows under the URI `name`.

    The subscription stores only the upstream's alias. After a settings change, the subscription is renewed at whichever
    upstream has this alias at that time. A handshake-era client is identified by its connection.
    """

    alias: str
    uri: str
    name: str
    exchange: Exchange
    is_ended: bool = False
    _session: UpstreamSession | None = None  # the session that reports changes; kept when it is lost
    _stream: ChangeStream | None = None

    @property
    def is_lost(self) -> bool:
        return self._session is not None and self._session.lost.is_set()

    @property
    def is_active(self) -> bool:
        return self._session is not None and not self._session.lost.is_set()

    async def begin(self, upstream: Upstream, session: UpstreamSession, on_lost: Callable[[str], None]) -> None:
        """Subscribe at the upstream, or raise its error. `on_lost` is called with the alias if the session is lost."""
        stream = None
        if session.era.is_modern:
            # Use the single stream of the listing session, unless that session is already lost, because its `on_lost`
            # would then never be called.
            listing_session, stream = upstream.session, upstream.change_stream
            if listing_session is None or stream is None or listing_session.lost.is_set():
                raise ConnectionLostError
            if not listing_session.era.announces("resources", "subscribe"):
                raise UpstreamError({"code": METHOD_NOT_FOUND, "message": "no subscriptions"})
            session = listing_session
            stream.watch(self.uri)
        else:
            await session.subscriptions.watch(self.uri)
            if session.lost.is_set():
                raise ConnectionLostError
        self._session, self._stream = session, stream
        session.on_lost = lambda: on_lost(self.alias)
        if self.is_ended:
            self.unwatch()

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.unwatch()

    def unwatch(self) -> None:
        session, stream = self._session, self._stream
        self._session = self._stream = None
        if stream is not None:
            stream.unwatch(self.uri)
        elif session is not None:
            session.subscriptions.unwatch(self.uri)


class Watching:
    """All subscriptions, and pending notifications."""

    def __init__(self, relay: Relay, bus: ListenBus) -> None:
        self.pending_updates: dict[tuple[str, str, SessionKey | None], None] = {}
        """Changed resources to report: alias, URI, and the session key of the client if only one client should be
        notified.
        """
        self._relay = relay
        self._pool = relay.pool
        self._bus = bus
        self._is_notifying = False
        self._watches: dict[tuple[str, str], list[Watch]] = {}
        self._connections: set[int] = set()  # the `id` of each connection with a handshake-era subscription

    def updated(self, upstream: Upstream, uri: str, session_key: SessionKey | None) -> None:
        """Record that a resource has changed, for all clients or only for the client with the key `session_key`.

        Repeated changes before the next notification are reported only once.
        """
        if self._pool.tasks is None or len(self.pending_updates) >= MAX_UPDATED:
            return
        self.pending_updates[upstream.alias, uri, session_key] = None
        if not self._is_notifying:
            self._is_notifying = True
            self._pool.tasks.start_soon(self._send_updates)

    async def _send_updates(self) -> None:
        async def notify(watch: Watch) -> None:
            # Report the URI under which the client watches the resource. A 2026-07-28 client is notified on its stream.
            if watch.exchange.is_modern:
                self._bus.publish_to(watch.exchange, ListChange("resource", watch.name))
            else:
                await watch.exchange.notify("notifications/resources/updated", {"uri": watch.name})

        try:
            while self.pending_updates:
                alias, uri, session_key = change = next(iter(self.pending_updates))
                del self.pending_updates[change]
                with anyio.move_on_after(NOTIFY_SECONDS):
                    async with anyio.create_task_group() as tasks:
                        for watch in self._watches.get((alias, uri), ()):
                            if session_key is None or session_key == key_of(watch.exchange):
                                tasks.start_soon(notify, watch)
        finally:
            self._is_notifying = False

    async def subscribe(self, route: Route, exchange: Exchange) -> None:
        """Subscribe a handshake-era client to a resource. Raises an error if this fails."""
        client = exchange.outside_request()
        old_watches = self._watches_of(exchange, route)
        if client is None or any(watch.is_active for watch in old_watches):
            return
        if not old_watches and len(self._watches_of(exchange)) >= MAX_WATCHED:
            raise MCPError(INVALID_PARAMS, "Too many resources are watched; unsubscribe from one first.")
        if id(exchange.connection) not in self._connections:
            # Add the callback only once per connection, because the connection keeps callbacks until it is closed.
            self._connections.add(id(exchange.connection))
            exchange.at_end(partial(self._forget, client))
        await self._begin(route, client)
        for old_watch in old_watches:
            self._end(old_watch)

    def unsubscribe(self, route: Route, exchange: Exchange) -> None:
        for watch in self._watches_of(exchange, route):
            self._end(watch)

    @asynccontextmanager
    async def watched(self, routes: list[Route], exchange: Exchange) -> AsyncGenerator[set[str]]:
        """Watch resources until the context exits. Yields their names, without those that an upstream refused.

        The subscriptions start concurrently. Slow ones are not awaited: the stream also reports other changes.
        """
        routes = list(dict.fromkeys(routes[:MAX_WATCHED]))
        names = {route.name for route in routes}
        watches: list[Watch] = []
        scope = anyio.CancelScope()
        is_late = False

        async def begin(route: Route) -> None:
            try:
                watch = await self._begin(route, exchange)
            except (RelayError, ToolError, TimeoutError):
                route.upstream.log.info("a resource of upstream %s cannot be watched", route.upstream.alias)
                names.discard(route.name)
                return
            if scope.cancel_called:
                self._end(watch)
                return
            watches.append(watch)
            if is_late:
                # The client believes that it is already subscribed, so it may have missed a change: report one.
                route.upstream.resource_updated(route.uri, key_of(exchange))

        try:
            jobs = [partial(begin, route) for route in routes]
            if jobs and self._pool.tasks is not None:
                is_late = not await bounded_gather(self._pool.tasks, jobs, scope)
            yield names
        finally:
            scope.cancel()
            for watch in watches:
                self._end(watch)

    async def _begin(self, route: Route, exchange: Exchange) -> Watch:
        if self._pool.login_principal(route.upstream, exchange) and route.upstream.change_stream is not None:
            # The upstream's only change stream uses the login of this machine's user, not the client's personal login.
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"Resources of the server {route.upstream.alias} cannot be watched with a personal login.",
            )
        watch = Watch(route.upstream.alias, route.uri, route.name, exchange)
        # Record the subscription before waiting for the upstream, so that the watch can be ended in the meantime.
        self._watches.setdefault((watch.alias, watch.uri), []).append(watch)
        try:
            await watch.begin(route.upstream, await self._relay.session_of(route.upstream, exchange), self._on_lost)
        except BaseException:
            self._end(watch)
            raise
        return watch

    def _end(self, watch: Watch) -> None:
        remaining = [
            other_watch for other_watch in self._watches.pop((watch.alias, watch.uri), ()) if other_watch is not watch
        ]
        if remaining:
            self._watches[watch.alias, watch.uri] = remaining
        watch.end()

    def _watches_of(self, exchange: Exchange, route: Route | None = None) -> list[Watch]:
        """Return all subscriptions of a handshake-era client, or only those to `route`.

        While a subscription is being renewed, the client may have two subscriptions to the same resource.
        """
        watches = self._all_watches()
        if route is not None:
            watches = self._watches.get((route.upstream.alias, route.uri), ())
        return [watch for watch in watches if watch.exchange.connection is exchange.connection]

    def _forget(self, exchange: Exchange) -> None:
        self._connections.discard(id(exchange.connection))
        for watch in self._watches_of(exchange):
            self._end(watch)

    def _on_lost(self, alias: str) -> None:
        lost_watches = [watch for watch in self._all_watches() if watch.alias == alias and watch.is_lost]
        if self._pool.tasks is not None and lost_watches:
            for watch in lost_watches:
                watch.unwatch()  # no longer lost, so it is renewed only once
            self._pool.tasks.start_soon(self._renew, alias, lost_watches)

    def _all_watches(self) -> Iterator[Watch]:
        return chain.from_iterable(self._watches.values())

    async def _renew(self, alias: str, lost_watches: list[Watch]) -> None:
        """When an upstream is available again, try once to renew the subscriptions that were lost with a connection."""
        upstream = await self._available_upstream(alias)
        if upstream is None:
            logger.info(
                "resources of upstream %s are no longer watched, because the upstream is no longer used",
                alias,
                extra={"upstream": alias},
            )
            return
        limits = defaultdict[int, anyio.CapacityLimiter](lambda: anyio.CapacityLimiter(MAX_RENEWED_AT_ONCE))

        async def begin(watch: Watch) -> None:
            async with limits[id(watch.exchange.connection)]:
                if watch.is_ended:
                    return
                try:
                    await watch.begin(upstream, await self._relay.session_of(upstream, watch.exchange), self._on_lost)
                except (RelayError, ToolError, TimeoutError):
                    upstream.log.warning("upstream %s is back, but a resource can no longer be watched", alias)
            # The resource may have changed in the meantime, so report a change.
            upstream.resource_updated(watch.uri, key_of(watch.exchange))

        async with anyio.create_task_group() as tasks:
            for watch in lost_watches:
                tasks.start_soon(begin, watch)

    async def _available_upstream(self, alias: str) -> Upstream | None:
        """Return an upstream once it is available, or `None` if it is no longer used."""
        while (upstream := self._pool.by_alias.get(alias)) is not None:
            session = upstream.live_session
            if session is None:
                await upstream.connected.wait()  # also set when a settings change replaces or removes the upstream
                continue
            # Only a request shows that a remote server is lost, so a client's session may be lost before this one.
            with suppress(ConnectionLostError):
                await session.flush()
            if upstream.live_session is session and self._pool.by_alias.get(alias) is upstream:
                break
        return upstream
