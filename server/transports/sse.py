"""The older transport of MCP over HTTP: the server's messages by SSE at `/sse`, the client's posted to `/messages/`.

A session is one run of the server, with a bounded number of unread answers: requests come on other connections than the
answers go, so that a client that reads nothing could go on asking, and each answer would be held.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.shared.message import SessionMessage
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from server.json_rpc import error_of
from server.principals import Principal
from server.sdk_seams import WriteStream, sse_session
from server.transports.http_requests import (
    CLAIM,
    OPEN_REQUEST,
    SERVER_ENDS,
    SESSION_EXPIRED,
    RequestClaim,
    as_event,
)

logger = logging.getLogger(__name__)

MOST_UNREAD = 64  # messages of a session that wait to be taken by its connection, before no more is taken in from it
_ENDPOINT = re.compile(rb"session_id=([0-9a-f]{32})")


class SseSessions:
    """Opens sessions, and takes in what their clients post."""

    def __init__(self, server: Server[Any], transport: SseServerTransport) -> None:
        self._server = server
        self._transport = transport
        self._unread: dict[str, _Unread] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session, unread = "", _Unread(scope.get("user"), scope.get(OPEN_REQUEST))

        async def watched(message: Message) -> None:
            # The SDK tells the session's id to the client alone.
            nonlocal session
            if not session and (found := _ENDPOINT.search(message.get("body", b""))):
                session = found[1].decode()
                self._unread[session] = unread
            await send(message)

        try:
            async with self._transport.connect_sse(scope, receive, watched) as (read_stream, write_stream):
                options = self._server.create_initialization_options()
                unread.stream = write_stream
                await self._server.run(read_stream, unread, options)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                why = SESSION_EXPIRED if unread.is_expired else SERVER_ENDS
                for claim in unread.owed:
                    event = as_event(error_of(claim.request.id, why, types.CONNECTION_CLOSED))
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            raise
        except ValueError:
            # The request was refused and answered (Host or Origin); the SDK reports that by this exception too.
            logger.info("an SSE connection was refused")
        finally:
            self._unread.pop(session, None)

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take in a message, as soon as its client has read enough of what is there for it."""
        unread, claim = self._unread.get(named_session(scope) or ""), scope.get(CLAIM)
        if unread is not None:
            unread.last_with(scope.get("user"))
            await unread.owe(claim)
        # The session may end when its message was accepted already; the SDK reports that in this way.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._transport.handle_post_message(scope, receive, send)
        if unread is not None and claim is not None and not claim.is_accepted and claim in unread.owed:
            unread.owed.remove(claim)  # it was refused, by the answer to its own request


def named_session(scope: Scope) -> str | None:
    try:
        return sse_session(Request(scope).query_params.get("session_id"))
    except ValueError:
        return None


class _Unread:
    """The way out of a session: messages that wait there to be taken by its connection, and answers that it is owed."""

    stream: WriteStream[SessionMessage]

    def __init__(self, user: Principal | None, request: anyio.CancelScope | None) -> None:
        self._user, self._request = user, request
        self.owed: list[RequestClaim] = []  # requests without an answer
        self._count = 0
        self._fewer = anyio.Event()

    @property
    def is_expired(self) -> bool:
        """Whether all tokens have expired that were shown for it."""
        return self._request is not None and self._request.deadline <= anyio.current_time()

    def last_with(self, user: Principal | None) -> None:
        """Let the session last as long as the token that its client shows now."""
        name = None if self._user is None else self._user.display_name
        if user is not None and user.display_name == name and self._request is not None:
            self._request.deadline = max(self._request.deadline, anyio.current_time() + user.seconds_left)

    async def owe(self, claim: RequestClaim | None) -> None:
        """Take a request in, as soon as its client has read enough of what is there for it."""
        while self._count >= MOST_UNREAD:
            await self._fewer.wait()
        # One that was cancelled by its client has no answer.
        self.owed = [other for other in self.owed if not other.is_done]
        if claim is not None:
            self.owed.append(claim)

    async def send(self, item: SessionMessage) -> None:
        self._count += 1
        try:
            await self.stream.send(item)
        finally:
            # Ended sessions too: who waits to be taken in is told then that there is no session.
            self._count -= 1
            if self._count < MOST_UNREAD:
                self._fewer.set()
                self._fewer = anyio.Event()
        message = item.message
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self.owed = [claim for claim in self.owed if claim.request.id != message.id]

    async def aclose(self) -> None:
        await self.stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self.stream.__aexit__(exc_type, exc_val, exc_tb)
