"""Closes connections of clients that are slow, silent or gone, in bounded time and at bounded cost."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from server.protocol.revisions import is_of_handshake_era


class ClientConnection(H11Protocol):
    """One connection: uvicorn's protocol with more time limits. uvicorn limits only the pause between requests.

    If there are too many connections, the longest-idle one is closed. uvicorn would keep idle connections and refuse
    new requests, so anyone could shut out all others by opening enough connections, even without a token.
    """

    _waiting: ClassVar[WeakKeyDictionary[ServerState, OrderedDict[ClientConnection, None]]] = WeakKeyDictionary()
    """The idle connections of each server, longest-idle first."""

    # The limit for a request's head, counted from the start of the connection or from the first byte after a response
    head_seconds: ClassVar[float] = 15.0
    body_seconds: ClassVar[float] = 60.0  # the limit for a request's body, counted from the end of its head
    unread_seconds: ClassVar[float] = 30.0  # how long a client may leave data unread

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._waiting_here = self._waiting.setdefault(self.server_state, OrderedDict())
        self._latest: RequestResponseCycle | None = None
        self._awaits_body = False
        self._slow_sender: asyncio.TimerHandle | None = None
        self._slow_reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._wait()
        # Keep the number of connections below the limit at which uvicorn refuses requests.
        most, waiting = self.limit_concurrency, self._waiting_here
        while most is not None and len(self.connections) >= most and (longest := next(iter(waiting))) is not self:
            del waiting[longest]
            # Remove the connection here, because it reports only later that it was closed.
            self.connections.discard(longest)
            longest.transport.abort()
        # This option lets the system close a connection whose other end receives nothing or has vanished. Otherwise, a
        # small amount of unread data could stay in the system's buffer unnoticed. The option is looked up by name,
        # because type stubs have it only on Linux. Other systems apply their own limit of several minutes.
        option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            milliseconds = int(self.unread_seconds * 1000)
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, milliseconds)
        self._expect(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting_here.pop(self, None)
        self._expect(None)
        self._note_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive data. A request's head starts with the first byte after a response."""
        super().data_received(data)
        # Check after parsing the data, because most requests arrive in one piece and need no limit.
        if self._slow_sender is None and self._is_between_requests():
            self._expect(self.head_seconds)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride] - uvicorn's method always closes
        """Handle a client that sends nothing more, or is gone.

        The client may still read, so complete requests are answered. This does not apply if closing the connection
        means that the response is unwanted, as in the 2026-07-28 revision and for endless streams.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.more_body or cycle.scope["method"] != "POST":
            return False
        # TLS connections cannot be half-open.
        if self.scheme == "https" or not is_of_handshake_era(cycle.scope["headers"]):
            return False
        cycle.keep_alive = False
        return True

    def handle_events(self) -> None:
        super().handle_events()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return
        if cycle is not self._latest:
            self._latest = cycle
            self._waiting_here.pop(self, None)
            self._awaits_body = cycle.more_body
            self._expect(self.body_seconds if cycle.more_body else None)
        elif self._awaits_body and not cycle.more_body:
            self._awaits_body = False
            self._expect(None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_between_requests() and not self.transport.is_closing():
            self._wait()

    def pause_writing(self) -> None:
        """Start the time limit for a client that reads more slowly than data is written."""
        self.flow.pause_writing()
        self._note_read()
        self._slow_reader = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._note_read()
        self.flow.resume_writing()

    def _wait(self) -> None:
        self._waiting_here[self] = None
        self._waiting_here.move_to_end(self)

    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _expect(self, seconds: float | None) -> None:
        """Close the connection after this time, unless this method is called again."""
        if self._slow_sender is not None:
            self._slow_sender.cancel()
        self._slow_sender = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _note_read(self) -> None:
        if self._slow_reader is not None:
            self._slow_reader.cancel()
            self._slow_reader = None
