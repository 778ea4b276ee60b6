"""Sessions of Streamable HTTP, in bounded number: when too many are open, one that is silent ends.

The SDK would refuse everybody new until old sessions expire. Clients often leave without a word, so whoever opens
enough sessions would keep all others out. A client whose session was ended gets 404 and opens a new one, as the
protocol wants.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import OrderedDict
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
"""Sessions kept, and beyond them only those that are not silent. What one costs is in docs/scale.md, and each search
for garbage looks at all of it: with 10,000 that would hold the event loop for seconds."""
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
class _Session:
    """One session: `user` is its owner as the SDK knows it, who is a person with one of their programs."""

    user: Any
    silent_since: float
    requests: int = 0  # and streams of it that are open


@dataclass(slots=True)
class _PrincipalSessions:
    """The sessions of one principal, or of all clients where there are no tokens; the longest silent ones first."""

    silent: OrderedDict[str, _Session] = field(default_factory=OrderedDict[str, _Session])
    busy: dict[str, _Session] = field(default_factory=dict[str, _Session])

    @property
    def count(self) -> int:
        return len(self.silent) + len(self.busy)


class BoundedSessions:
    """The SDK's application for Streamable HTTP, in which one session more can always be opened."""

    def __init__(self, app: ASGIApp, most: int, idle_seconds: float) -> None:
        self._app = app
        self._most = most
        self._idle_seconds = idle_seconds
        self._principals: dict[str, _PrincipalSessions] = {}
        self._has_warned = False
        self._ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        owner = "" if user is None else user.display_name
        principal = self._principals.get(owner) or _PrincipalSessions()
        silent, busy = principal.silent, principal.busy
        name = header_of(scope["headers"], SESSION_HEADER)
        session = None if name is None else silent.get(name) or busy.get(name)
        has_opened = False

        async def watched(message: Message) -> None:
            nonlocal has_opened
            if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
                if name is not None:
                    silent.pop(name, None)
                    busy.pop(name, None)
                elif (opened := header_of(message.get("headers", ()), SESSION_HEADER)) is not None:
                    # Before the client can know it: it may use it at once.
                    has_opened = True
                    opened_by = self._principals.setdefault(owner, _PrincipalSessions())
                    opened_by.silent[opened] = _Session(user, time.monotonic())
            await send(message)

        if name is None:
            try:
                await self._app(scope, receive, watched)
            finally:
                if has_opened:
                    await self._end_silent()
        elif session is None:
            await self._app_without_session(scope, receive, send)
        elif scope["method"] == "DELETE":
            await self._app(scope, receive, watched)
        else:
            busy[name] = session
            silent.pop(name, None)
            session.requests += 1
            try:
                await self._app(scope, receive, send)
            finally:
                session.requests -= 1
                # It may have been ended meanwhile.
                if not session.requests and busy.pop(name, None) is not None:
                    session.silent_since = time.monotonic()
                    silent[name] = session

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
        for name, principal in tuple(self._principals.items()):
            while principal.silent and next(iter(principal.silent.values())).silent_since < horizon:
                principal.silent.popitem(last=False)  # the SDK has ended it
            if not principal.count:
                del self._principals[name]
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
            await self._end(*principal.silent.popitem(last=False))

    async def _end(self, name: str, session: _Session) -> None:
        """End a session as its client would."""
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "DELETE",
            "scheme": "http",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (SESSION_HEADER, name.encode())],
        }
        if session.user is not None:
            scope["user"] = session.user

        async def receive_nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send_nowhere(_message: Message) -> None:
            """Nobody hears the answer."""

        await self._app(scope, receive_nothing, send_nowhere)
        self._ended += 1
        if self._ended % ENDED_AT_ONCE == 0:
            gc.collect()
