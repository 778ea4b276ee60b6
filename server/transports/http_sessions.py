"""Room for new sessions of Streamable HTTP: when too many are open, one that is silent ends.

The SDK would refuse everybody new until old sessions expire. Clients often leave without a word, so whoever opens
enough sessions would keep all others out. A client whose session was ended gets 404 and opens a new one, as the
protocol wants.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

MOST_SESSIONS = 1_000
"""Sessions kept, and beyond them only those that are not silent. One costs 40 kB, and each search for garbage looks at
all of it: with 10,000 that would hold the event loop for seconds."""

ENDED_AT_ONCE = 500
"""After so many ended sessions garbage is looked for: each holds itself by references in a circle, and by itself Python
would let some thousands gather."""

SESSION_HEADER = b"mcp-session-id"

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class _Principal:
    """The sessions of one token's name, or of all clients where there are no tokens.

    Args:
        user: As whom the SDK knows the owner.
        silent: Since when, the longest first.
        busy: Those with a request under way or an open stream, and how many.
    """

    user: Any
    silent: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float])
    busy: Counter[str] = field(default_factory=Counter[str])

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.silent) + len(self.busy)

    def knows(self, session: str) -> bool:
        """Whether this session is open, as far as known here."""
        return session in self.silent or session in self.busy

    def drop(self, session: str) -> None:
        """Know nothing of a session that has ended."""
        self.silent.pop(session, None)
        self.busy.pop(session, None)

    def drop_silent_since(self, horizon: float) -> None:
        """Know nothing of sessions that were silent so long that they have ended."""
        while self.silent and next(iter(self.silent.values())) < horizon:
            self.silent.popitem(last=False)

    @contextmanager
    def at_work(self, session: str) -> Generator[None]:
        """Keep a session from counting as silent."""
        self.silent.pop(session, None)
        self.busy[session] += 1
        try:
            yield
        finally:
            # It may have been ended meanwhile.
            if session in self.busy:
                self.busy[session] -= 1
                if not self.busy[session]:
                    del self.busy[session]
                    self.silent[session] = time.monotonic()


class BoundedSessions:
    """The SDK's application for Streamable HTTP, in which there is always room for one session more.

    Args:
        app: Opens, serves and ends sessions.
        most: So many are kept.
        idle_seconds: After that the SDK itself ends one that is silent.
    """

    def __init__(self, app: ASGIApp, most: int, idle_seconds: float) -> None:
        self._app = app
        self._most = most
        self._idle_seconds = idle_seconds
        self._principals: dict[str, _Principal] = {}
        self._has_warned = False
        self._ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        user = scope.get("user")
        name = "" if user is None else user.display_name
        principal = self._principals.get(name)
        if principal is None:
            principal = self._principals[name] = _Principal(user)
        session = session_of(scope["headers"])
        if session is None:
            await self._open(principal, scope, receive, send)
        elif not principal.knows(session):
            await self._app(scope, receive, send)
        elif scope["method"] == "DELETE":
            await self._app(scope, receive, _on_good_answer(send, lambda _: principal.drop(session)))
        else:
            with principal.at_work(session):
                await self._app(scope, receive, send)

    async def _open(self, principal: _Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may open a session, and end another one if that is one too many."""
        has_opened = False

        def note(headers: Headers) -> None:
            # Before the client can know it: it may use it at once.
            nonlocal has_opened
            if (session := session_of(headers)) is not None:
                has_opened = True
                principal.silent[session] = time.monotonic()

        try:
            await self._app(scope, receive, _on_good_answer(send, note))
        finally:
            if has_opened:
                await self._make_room()

    async def _make_room(self) -> None:
        horizon = time.monotonic() - self._idle_seconds
        for principal in self._principals.values():
            principal.drop_silent_since(horizon)
        while sum(principal.count for principal in self._principals.values()) > self._most:
            # Whoever has most loses one, so that nobody loses theirs because of somebody else's many.
            principal = max((one for one in self._principals.values() if one.silent), key=_count, default=None)
            if principal is None:
                return
            self._warn()
            session, _ = principal.silent.popitem(last=False)
            await self._end(principal, session)

    async def _end(self, principal: _Principal, session: str) -> None:
        """End a session as its client would."""
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "DELETE",
            "scheme": "http",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (SESSION_HEADER, session.encode())],
        }
        if principal.user is not None:
            scope["user"] = principal.user
        await self._app(scope, _receive_nothing, _send_nowhere)
        self._ended += 1
        if self._ended % ENDED_AT_ONCE == 0:
            gc.collect()

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%d sessions are open: for each new one, the one that is silent longest ends", self._most)


def _count(principal: _Principal) -> int:
    return principal.count


def session_of(headers: Headers) -> str | None:
    """The session that headers name."""
    return next((value.decode("latin-1") for name, value in headers if name == SESSION_HEADER), None)


def _on_good_answer(send: Send, note: Callable[[Headers], None]) -> Send:
    """Tell of the headers of an answer that is no error, before it is sent."""

    async def watching(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
            note(message.get("headers", ()))
        await send(message)

    return watching


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_nowhere(message: Message) -> None:
    del message
