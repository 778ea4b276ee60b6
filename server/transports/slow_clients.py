"""Connections of clients that are slow, silent or gone: each is closed after a bounded time, at a bounded cost."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from server.transports.streamable_http import is_of_handshake_era


class ClientConnection(H11Protocol):
    """One connection: uvicorn's protocol with time limits. uvicorn itself limits only the pause between requests.

    If there are too many connections, the one without a request for longest is closed. uvicorn would keep those, and
    refuse everybody else's requests: without a token, anyone could shut out all others by opening enough connections.
    """

    _waiting: ClassVar[WeakKeyDictionary[ServerState, OrderedDict[ClientConnection, None]]] = WeakKeyDictionary()
    """The connections of each server without a request in progress, the one that waits longest first."""

    head_seconds: ClassVar[float] = 15.0  # for the head of a request, from connecting or the first byte after an answer
    body_seconds: ClassVar[float] = 60.0  # for the body after that
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
        self._make_room()
        # The system closes a connection whose other end receives nothing, or is gone without notice. Otherwise a little
        # data in the system's own buffer would never be noticed. Set by name, since type stubs know it only on Linux;
        # elsewhere the system's limit of some minutes applies.
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
        """Receive data. The head of a request begins with the first byte after an answer."""
        super().data_received(data)
        # Checked afterwards: most requests arrive in one piece, and need no limit.
        if self._slow_sender is None and self._is_between_requests():
            self._expect(self.head_seconds)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride] - uvicorn's closes always
        """Return the client sends no more, or is gone. It may still read, so its complete requests are answered.

        This does not apply where leaving means that the answer is not wanted, as in 2026-07-28 and for endless streams.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.more_body or cycle.scope["method"] != "POST":
            return False
        # Over TLS nothing can be half open.
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
        """The client reads more slowly than data is written."""
        self.flow.pause_writing()
        self._note_read()
        self._slow_reader = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._note_read()
        self.flow.resume_writing()

    def _wait(self) -> None:
        self._waiting_here[self] = None
        self._waiting_here.move_to_end(self)

    def _make_room(self) -> None:
        """Keep the number of connections below uvicorn's limit for refusing requests."""
        most, waiting = self.limit_concurrency, self._waiting_here
        while most is not None and len(self.connections) >= most and (longest := next(iter(waiting))) is not self:
            del waiting[longest]
            # The end of the connection is reported only later.
            self.connections.discard(longest)
            longest.transport.abort()

    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _expect(self, seconds: float | None) -> None:
        """Close the connection after this time, unless this is called again."""
        if self._slow_sender is not None:
            self._slow_sender.cancel()
        self._slow_sender = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _note_read(self) -> None:
        if self._slow_reader is not None:
            self._slow_reader.cancel()
            self._slow_reader = None
