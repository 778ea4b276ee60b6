"""Client subscriptions to upstream resources: notifications, and renewal after a lost connection."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup

from server.clients.announcements import NOTIFY_SECONDS, ListChange, ListenBus
from server.clients.client_request import Exchange
from server.upstreams.connections.client_sessions import key_of
from server.upstreams.connections.connection import SessionKey, Upstream
from server.upstreams.connections.pool import bounded_gather
from server.upstreams.relay.published_resources import Route
from server.upstreams.relay.request_relay import Relay
from server.upstreams.session.upstream_session import UpstreamSession
from server.upstreams.session.upstream_subscriptions import ChangeStream
from server.upstreams.wire.json_rpc_channel import ConnectionLostError, RelayError, UpstreamError
from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

MAX_WATCHED = 1_000  # maximum number of resources that one client connection may watch
MAX_UPDATED = 10_000  # maximum number of changed resources that wait for a notification

FIRST_PAUSE_SECONDS = 1.0  # pause before a failed renewal is tried again; doubles after each failure
LAST_PAUSE_SECONDS = 60.0  # longest such pause


class TooManyWatchedError(Exception):
    """The client already watches the maximum number of resources."""


@dataclass(eq=False, repr=False, slots=True)
class Watch:
    """A client's subscription to a resource, which the client knows under the URI `name`.

    The subscription stores only the upstream's alias. After a settings change, it is renewed at the upstream that then
    has this alias. A handshake-era client is identified by its connection.
    """

    alias: str
    uri: str
    name: str
    exchange: Exchange
    is_ended: bool = False
    is_refused: bool = False  # whether the upstream refused to renew this subscription after a reconnect
    _is_begun: bool = False
    _session: UpstreamSession | None = None
    _stream: ChangeStream | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the upstream connection that reported changes is gone."""
        is_wanted = self._is_begun and not (self.is_ended or self.is_refused)
        return is_wanted and (self._session is None or self._session.lost.is_set())

    @property
    def is_active(self) -> bool:
        return self._is_begun and not (self.is_ended or self.is_refused or self.is_lost)

    async def begin(self, upstream: Upstream, session: UpstreamSession, lost: Callable[[str], None]) -> None:
        """Subscribe at the upstream. Raises the upstream's error.

        `lost` is called with the alias when the session with the subscription is lost.
        """
        stream = None
        if session.era.is_modern:
            # Use the single stream of the listing session, unless that session is already lost, because its `on_lost`
            # would then never be called.
            listing, stream = upstream.session, upstream.change_stream
            if listing is None or stream is None or listing.lost.is_set():
                raise ConnectionLostError
            session = listing
            stream.watch(self.uri)
        else:
            await session.subscriptions.watch(self.uri)
            if session.lost.is_set():
                raise ConnectionLostError
        self._session, self._stream = session, stream
        self._is_begun = True
        session.on_lost = lambda: lost(self.alias)
        if self.is_ended:
            self._leave()

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._leave()

    def _leave(self) -> None:
        session, stream = self._session, self._stream
        self._session = self._stream = None
        if stream is not None:
            stream.unwatch(self.uri)
        elif session is not None:
            session.subscriptions.unwatch(self.uri)


class Watching:
    """All subscriptions, and pending notifications."""

    def __init__(self, relay: Relay, bus: ListenBus) -> None:
        self.untold: dict[tuple[str, str, SessionKey | None], None] = {}
        """Changed resources to report: alias, URI, and the session key of the client if only one client should be
        notified.
        """
        self._relay = relay
        self._bus = bus
        self._tasks: TaskGroup | None = None
        self._is_telling = False
        self._watches: dict[tuple[str, str], list[Watch]] = {}
        self._renewed: set[str] = set()
        self._connections: set[int] = set()  # the connections of handshake-era clients that have subscribed

    def start(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    def updated(self, upstream: Upstream, uri: str, whose: SessionKey | None) -> None:
        """Record that a resource has changed, for all clients or only for the client with the session key `whose`.

        Repeated changes before the next notification are reported only once.
        """
        if self._tasks is None or len(self.untold) >= MAX_UPDATED:
            return
        self.untold[upstream.alias, uri, whose] = None
        if not self._is_telling:
            self._is_telling = True
            self._tasks.start_soon(self._tell_all)

    async def _tell_all(self) -> None:
        async def tell(watch: Watch) -> None:
            # Report the URI under which the client watches the resource. A 2026-07-28 client is notified on its stream.
            if watch.exchange.is_modern:
                self._bus.publish_to(watch.exchange, ListChange("resource", watch.name))
            else:
                await watch.exchange.notify("notifications/resources/updated", {"uri": watch.name})

        try:
            while self.untold:
                alias, uri, whose = changed = next(iter(self.untold))
                del self.untold[changed]
                with anyio.move_on_after(NOTIFY_SECONDS):
                    async with anyio.create_task_group() as tasks:
                        for watch in self._watches.get((alias, uri), ()):
                            if whose is None or whose == key_of(watch.exchange):
                                tasks.start_soon(tell, watch)
        finally:
            self._is_telling = False

    async def subscribe(self, route: Route, exchange: Exchange) -> None:
        """Subscribe a handshake-era client to a resource. Raises an error if this fails."""
        client = exchange.outside_request()
        known = self._of(exchange, route)
        if client is None or any(watch.is_active for watch in known):
            return
        if not known and len(self._of(exchange)) >= MAX_WATCHED:
            raise TooManyWatchedError
        if id(exchange.connection) not in self._connections:
            # Add the callback only once per connection, because the connection keeps callbacks until it is closed.
            self._connections.add(id(exchange.connection))
            exchange.at_end(partial(self._forget, client))
        await self._begin(route, client)
        for each in known:
            self._end(each)

    def unsubscribe(self, route: Route, exchange: Exchange) -> None:
        for watch in self._of(exchange, route):
            self._end(watch)

    @asynccontextmanager
    async def watched(self, routes: list[Route], exchange: Exchange) -> AsyncGenerator[None]:
        """Watch resources until the context exits; refusals by an upstream are only logged.

        The subscriptions start concurrently, and slow ones are not awaited, because the stream also reports other
        changes.
        """
        begun: list[Watch] = []
        scope = anyio.CancelScope()
        is_late = False

        async def begin(route: Route) -> None:
            try:
                watch = await self._begin(route, exchange)
            except (RelayError, ToolError, TimeoutError):
                route.upstream.log.info("upstream %s does not allow watching a resource", route.upstream.alias)
                return
            if scope.cancel_called:
                self._end(watch)
                return
            begun.append(watch)
            if is_late:
                # The client believes that it is already subscribed, so it may have missed a change: report one.
                route.upstream.resource_updated(route.uri, key_of(exchange))

        try:
            work = [partial(begin, route) for route in dict.fromkeys(routes[:MAX_WATCHED])]
            if work and self._tasks is not None:
                is_late = not await bounded_gather(self._tasks, work, scope)
            yield
        finally:
            scope.cancel()
            for watch in begun:
                self._end(watch)

    async def _begin(self, route: Route, exchange: Exchange) -> Watch:
        if self._relay.pool.login_principal(route.upstream, exchange) and route.upstream.change_stream is not None:
            # The upstream's single change stream would use the login of this machine's user.
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                "Resources of that server cannot be watched with a personal login.",
            )
        watch = Watch(route.upstream.alias, route.uri, route.name, exchange)
        # Record the subscription before waiting for the upstream, so that it can be ended in the meantime.
        self._watches.setdefault((watch.alias, watch.uri), []).append(watch)
        try:
            await watch.begin(route.upstream, await self._relay.session_of(route.upstream, exchange), self._lost)
        except BaseException:
            self._end(watch)
            raise
        return watch

    def _end(self, watch: Watch) -> None:
        left = [each for each in self._watches.pop((watch.alias, watch.uri), ()) if each is not watch]
        if left:
            self._watches[watch.alias, watch.uri] = left
        watch.end()

    def _of(self, exchange: Exchange, route: Route | None = None) -> list[Watch]:
        """Return all subscriptions of a handshake-era client, or only those to `route` (two during a renewal)."""
        watches = [watch for watches in self._watches.values() for watch in watches]
        if route is not None:
            watches = self._watches.get((route.upstream.alias, route.uri), [])
        return [watch for watch in watches if watch.exchange.connection is exchange.connection]

    def _forget(self, exchange: Exchange) -> None:
        self._connections.discard(id(exchange.connection))
        for watch in self._of(exchange):
            self._end(watch)

    def _lost(self, alias: str) -> None:
        if self._tasks is not None and alias not in self._renewed and self._lost_of(alias):
            self._renewed.add(alias)
            self._tasks.start_soon(self._renew, alias)

    def _lost_of(self, alias: str) -> list[Watch]:
        return [
            watch for (of, _), watches in self._watches.items() if of == alias for watch in watches if watch.is_lost
        ]

    async def _renew(self, alias: str) -> None:
        """Renew all subscriptions lost with a connection to an upstream, once the upstream is available again."""
        pause, log = FIRST_PAUSE_SECONDS, logging.LoggerAdapter(logger, {"upstream": alias})
        try:
            while lost := self._lost_of(alias):
                upstream = self._relay.pool.by_alias.get(alias)
                if upstream is None:
                    log.info(
                        "resources of upstream %s are no longer watched, because the upstream is no longer used", alias
                    )
                    return
                await upstream.connected.wait()
                failed: set[int] = set()
                for watch in lost:
                    client = id(watch.exchange.connection)
                    if client in failed or watch.is_ended:
                        continue
                    try:
                        await watch.begin(upstream, await self._relay.session_of(upstream, watch.exchange), self._lost)
                    except UpstreamError:
                        watch.is_refused = True
                        log.warning("upstream %s is back, but a resource can no longer be watched", alias)
                    except (RelayError, ToolError, TimeoutError):
                        failed.add(client)
                        log.info("upstream %s was lost, and its resources cannot be watched again yet", alias)
                        continue
                    # The resource may have changed in the meantime, so report a change.
                    upstream.resource_updated(watch.uri, key_of(watch.exchange))
                if self._lost_of(alias):
                    await anyio.sleep(pause)
                    pause = min(pause * 2, LAST_PAUSE_SECONDS)
        finally:
            self._renewed.discard(alias)
