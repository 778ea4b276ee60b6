"""Resources that clients watch at upstreams: who has to be told of a change, and what the upstream has to be told."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from server.exchange import Exchange
from server.upstreams.connection import Upstream
from server.upstreams.peer import Json, RelayError
from server.upstreams.routes import Route
from server.upstreams.session import UpstreamSession
from tools.contract.errors import ToolError

logger = logging.getLogger(__name__)

MOST_WATCHED = 1_000
"""Resources that one connection of a client may watch."""

SECONDS = 10.0
"""How long an upstream may take to note a subscription."""

End = Callable[[], None]

SessionOf = Callable[[Upstream, Exchange], Awaitable[UpstreamSession]]


class TooManyWatchedError(Exception):
    """The client watches as much as it may."""


@dataclass(slots=True)
class Watching:
    """Who watches what.

    Args:
        session_of: Finds the session in which a client's requests are brought to an upstream.
    """

    session_of: SessionOf
    _watchers: dict[tuple[str, str], list[Exchange]] = field(default_factory=dict[tuple[str, str], list[Exchange]])

    def watchers(self, upstream: Upstream, uri: str, connection: int | None) -> list[Exchange]:
        """The clients of the handshake era that watch a resource, as they can be reached at any time.

        Args:
            upstream: Whose resource it is.
            uri: The URI there.
            connection: The only client's connection, by its identity, that is to be told, if it is just one.
        """
        watchers = self._watchers.get((upstream.alias, uri), ())
        return [each for each in watchers if connection in (None, id(each.connection))]

    async def subscribe(self, route: Route, exchange: Exchange) -> None:
        """A client of the handshake era watches a resource from now on.

        Raises:
            UpstreamError: The upstream refuses.
            ConnectionLostError: There is no connection any more.
            ToolError: There is no connection.
            TooManyWatchedError: It watches too much already.
            TimeoutError: The upstream did not note it in time.
        """
        standing = exchange.standing()
        if standing is None:
            return
        watchers = self._watchers.setdefault((route.upstream.alias, route.uri), [])
        if any(each.connection is exchange.connection for each in watchers):
            return
        if self._count(exchange) >= MOST_WATCHED:
            raise TooManyWatchedError
        end = await self._begin(route, exchange)
        watchers.append(standing)
        exchange.at_end(lambda: end() if self._drop(route, exchange) else None)

    async def unsubscribe(self, route: Route, exchange: Exchange) -> None:
        """It watches a resource no longer."""
        if self._drop(route, exchange):
            session = await self.session_of(route.upstream, exchange)
            self._ending(route, session)()

    @asynccontextmanager
    async def watched(self, routes: list[Route], exchange: Exchange) -> AsyncGenerator[None]:
        """Resources are watched as long as this lasts; what an upstream refuses is only logged."""
        ends: list[End] = []
        try:
            for route in routes[:MOST_WATCHED]:
                try:
                    ends.append(await self._begin(route, exchange))
                except (RelayError, ToolError, TimeoutError):
                    logger.info("upstream %s does not let a resource be watched", route.upstream.alias)
            yield
        finally:
            for end in ends:
                end()

    async def _begin(self, route: Route, exchange: Exchange) -> End:
        """Watch a resource once more; returns what ends it."""
        session = await self.session_of(route.upstream, exchange)
        if session.era.is_modern:
            if (subscriptions := route.upstream.subscriptions) is not None:
                subscriptions.watch(route.uri)
        else:
            session.watched[route.uri] = session.watched.get(route.uri, 0) + 1
            if session.watched[route.uri] == 1:
                try:
                    await session.request("resources/subscribe", _named(route), SECONDS)
                except BaseException:
                    session.watched.pop(route.uri, None)
                    raise
        return self._ending(route, session)

    def _ending(self, route: Route, session: UpstreamSession) -> End:
        def end() -> None:
            if session.era.is_modern:
                if (subscriptions := route.upstream.subscriptions) is not None:
                    subscriptions.unwatch(route.uri)
                return
            left = session.watched.pop(route.uri, 0) - 1
            if left > 0:
                session.watched[route.uri] = left
            elif left == 0 and not session.lost.is_set():
                session.tasks.start_soon(_unsubscribe, route, session)

        return end

    def _count(self, exchange: Exchange) -> int:
        return sum(
            any(each.connection is exchange.connection for each in watchers) for watchers in self._watchers.values()
        )

    def _drop(self, route: Route, exchange: Exchange) -> bool:
        """Forget that a client watches a resource; whether it did."""
        key = (route.upstream.alias, route.uri)
        watchers = self._watchers.get(key, [])
        kept = [each for each in watchers if each.connection is not exchange.connection]
        if kept:
            self._watchers[key] = kept
        else:
            self._watchers.pop(key, None)
        return len(kept) < len(watchers)


async def _unsubscribe(route: Route, session: UpstreamSession) -> None:
    try:
        await session.request("resources/unsubscribe", _named(route), SECONDS)
    except (RelayError, TimeoutError):
        logger.info("upstream %s goes on to tell of a resource", route.upstream.alias)


def _named(route: Route) -> Json:
    return {"uri": route.uri}
