"""Sessions of Streamable HTTP, in bounded number: when too many are open, one that is silent ends.

The SDK would refuse everybody new until old sessions expire. Clients often leave without a word, so whoever opens
enough sessions would keep all others out. A client whose session was ended gets 404 and opens a new one, as the
protocol wants.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

MOST_SESSIONS = 1_000
"""Sessions kept, and beyond them only those that are not silent. One costs 40 kB, and each search for garbage looks at
all of it: with 10,000 that would hold the event loop for seconds."""
ENDED_AT_ONCE = 500
"""After so many ended sessions garbage is looked for: each holds itself by references in a circle, and by itself Python
would let some thousands gather."""
SESSION_HEADER = b"mcp-session-id"
REVISION_HEADER = MCP_PROTOCOL_VERSION_HEADER.encode()

_NO_SUCH_SESSION = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {
        "code": INVALID_REQUEST,
        "message": (
            "There is no such session here, and nothing was done: it has ended, or the server that it was opened at "
            "was started anew. Send initialize without the header Mcp-Session-Id to open another one, and ask there."
        ),
    },
}


def header_of(headers: Iterable[tuple[bytes, bytes]], header: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == header), None)


def is_of_handshake_era(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    revision = header_of(headers, REVISION_HEADER)
    return revision is None or revision in HANDSHAKE_PROTOCOL_VERSIONS


def session_of(scope: Scope) -> str | None:
    """The session that a request is in; those of 2026-07-28 are in none, whatever they say."""
    headers = scope["headers"]
    return header_of(headers, SESSION_HEADER) if is_of_handshake_era(headers) else None


@dataclass(slots=True)
class _Principal:
    """The sessions of one token's name, or of all clients where there are no tokens.

    `user` is the owner as the SDK knows it; the silent ones are known with the time since when, the longest first, and
    the busy ones with the number of their open requests and streams.
    """

    user: Any
    silent: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float])
    busy: Counter[str] = field(default_factory=Counter[str])

    @property
    def count(self) -> int:
        return len(self.silent) + len(self.busy)


class BoundedSessions:
    """The SDK's application for Streamable HTTP, in which one session more can always be opened."""

    def __init__(self, app: ASGIApp, most: int, idle_seconds: float) -> None:
        self._app = app
        self._most = most
        self._idle_seconds = idle_seconds
        self._principals: dict[str, _Principal] = {}
        self._has_warned = False
        self._ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        name = "" if user is None else user.display_name
        principal = self._principals.get(name)
        if principal is None:
            principal = self._principals[name] = _Principal(user)
        silent, busy = principal.silent, principal.busy
        session = header_of(scope["headers"], SESSION_HEADER)
        has_opened = False

        async def watched(message: Message) -> None:
            nonlocal has_opened
            if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
                if session is not None:
                    silent.pop(session, None)
                    busy.pop(session, None)
                elif (opened := header_of(message.get("headers", ()), SESSION_HEADER)) is not None:
                    # Before the client can know it: it may use it at once.
                    has_opened = True
                    silent[opened] = time.monotonic()
            await send(message)

        if session is None:
            try:
                await self._app(scope, receive, watched)
            finally:
                if has_opened:
                    await self._end_silent()
        elif session not in silent and session not in busy:
            await self._app_without_session(scope, receive, send)
        elif scope["method"] == "DELETE":
            await self._app(scope, receive, watched)
        else:
            silent.pop(session, None)
            busy[session] += 1
            try:
                await self._app(scope, receive, send)
            finally:
                # It may have been ended meanwhile.
                if session in busy:
                    busy[session] -= 1
                    if not busy[session]:
                        del busy[session]
                        silent[session] = time.monotonic()

    async def _app_without_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The SDK says no more than that it has found none."""
        is_unknown = False

        async def watched(message: Message) -> None:
            nonlocal is_unknown
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
                is_unknown = True
            elif not is_unknown:
                await send(message)

        await self._app(scope, receive, watched)
        if is_unknown:
            await JSONResponse(_NO_SUCH_SESSION, HTTPStatus.NOT_FOUND)(scope, receive, send)

    async def _end_silent(self) -> None:
        """End silent sessions until there are no more than may be kept."""
        horizon = time.monotonic() - self._idle_seconds
        for principal in self._principals.values():
            while principal.silent and next(iter(principal.silent.values())) < horizon:
                principal.silent.popitem(last=False)  # the SDK has ended it
        while sum(principal.count for principal in self._principals.values()) > self._most:
            # Whoever has most loses one, so that nobody loses theirs because of somebody else's many.
            with_silent = [principal for principal in self._principals.values() if principal.silent]
            if not with_silent:
                return
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%d sessions are open: for each new one, the one that is silent longest ends", self._most
                )
            principal = max(with_silent, key=lambda principal: principal.count)
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

        async def receive_nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send_nowhere(_message: Message) -> None:
            """Nobody hears the answer."""

        await self._app(scope, receive_nothing, send_nowhere)
        self._ended += 1
        if self._ended % ENDED_AT_ONCE == 0:
            gc.collect()
