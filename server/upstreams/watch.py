"""One resource of an upstream that one client watches: where that is noted, until it is watched no longer."""

from __future__ import annotations

from collections.abc import Callable

from server.exchange import Exchange
from server.upstreams.connection import Upstream
from server.upstreams.peer import ConnectionLostError
from server.upstreams.session import UpstreamSession
from server.upstreams.subscriptions import Subscriptions


class Watch:
    """A client's interest in a resource.

    Args:
        alias: The upstream, which may be another one of this name after the settings have changed.
        uri: The URI there.
        name: The URI by which the client calls it.
        exchange: The client; one of the handshake era as it can be reached at any time.
    """

    def __init__(self, alias: str, uri: str, name: str, exchange: Exchange) -> None:
        self.alias = alias
        self.uri = uri
        self.name = name
        self.exchange = exchange
        self.is_begun = False
        """Whether it was noted, at least once."""
        self.is_ended = False
        self.is_refused = False
        """Whether the upstream came back and does not let it be watched any more."""
        self._session: UpstreamSession | None = None
        self._stream: Subscriptions | None = None

    @property
    def is_told_directly(self) -> bool:
        """Whether its client is told by us; one of the 2026-07-28 revision hears of changes by its stream."""
        return not self.exchange.is_modern

    @property
    def is_lost(self) -> bool:
        """Whether the connection in which it was noted has gone."""
        is_wanted = self.is_begun and not (self.is_ended or self.is_refused)
        return is_wanted and (self._session is None or self._session.lost.is_set())

    @property
    def is_standing(self) -> bool:
        """Whether the upstream has noted it, and tells of it."""
        return self.is_begun and not (self.is_ended or self.is_refused or self.is_lost)

    async def begin(self, upstream: Upstream, session: UpstreamSession, lost: Callable[[str], None]) -> None:
        """Have it noted.

        Args:
            upstream: Of its alias.
            session: In which the client's requests are brought there.
            lost: Told of the alias when the connection has gone.

        Raises:
            UpstreamError: The upstream refuses.
            ConnectionLostError: There is no connection.
            TimeoutError: It was not noted in time.
        """
        if session.era.is_modern:
            stream = upstream.subscriptions
            # What is noted after the end is never told of: nobody is told of that end any more.
            if stream is None or stream.session.lost.is_set():
                raise ConnectionLostError
            stream.watch(self.uri)
            self._session, self._stream = stream.session, stream
        else:
            await session.watched.watch(self.uri)
            if session.lost.is_set():
                raise ConnectionLostError
            self._session, self._stream = session, None
        self.is_begun = True
        self._session.at_end = lambda: lost(self.alias)
        if self.is_ended:
            self._leave()

    def end(self) -> None:
        """It is watched no longer."""
        if not self.is_ended:
            self.is_ended = True
            self._leave()

    def _leave(self) -> None:
        session, stream = self._session, self._stream
        self._session = self._stream = None
        if stream is not None:
            stream.unwatch(self.uri)
        elif session is not None:
            session.watched.unwatch(self.uri)
