"""MCP's older HTTP transport: it sends server messages by SSE at `/sse`, and clients post theirs to `/messages/`.

Requests and responses use different connections. A client that reads nothing could therefore keep sending requests, and
every response would take memory. To prevent this, posted messages are accepted only while few messages are unread.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import quote

import anyio
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from server.clients.client_request import Principal, principal_of
from server.protocol.json_rpc import ID_IS_TAKEN, Request, error_of
from server.protocol.request_table import RequestTable
from server.transports.dispatcher import Conversation, Dispatcher
from server.transports.http_messages import (
    OPEN_REQUEST,
    ROOT_PATH,
    SERVER_ENDS,
    ClientWatch,
    EventStream,
    RequestRefusedError,
    read_posted,
    say_accepted,
    send_events,
)

MAX_UNREAD = 64  # number of a session's unread messages at which posted messages must wait
SESSION_EXPIRED = (
    "The token of this connection has expired, so the connection is being closed, and this request was cancelled. "
    "Connect again with a new token."
)


class _Session:
    """A client for the lifetime of its stream."""

    def __init__(self, table: RequestTable, principal: Principal | None, request: anyio.CancelScope | None) -> None:
        self.owner = None if principal is None else principal.owner
        # The cancel scope of the stream's HTTP request; its deadline is the latest expiry of the client's tokens.
        self.request = request
        self._room = asyncio.Event()
        self.events = EventStream()
        self.dispatcher = Dispatcher(self.events, on_resume=self._room.set)
        self.events.on_read = self._on_read
        conversation = Conversation(table, self.dispatcher)
        self.connection = conversation.connection
        self.dispatcher.start(conversation.on_request, conversation.on_notify)

    def _on_read(self) -> None:
        self.dispatcher.start_waiting()
        self._room.set()

    def end(self) -> None:
        self.events.end()
        self._room.set()

    async def wait_for_room(self) -> None:
        """Wait until the client has read enough events, and the dispatcher has room for another message."""
        while not self.events.is_ended and (self.events.unread >= MAX_UNREAD or self.dispatcher.is_full):
            self._room.clear()
            await self._room.wait()


class SseSessions:
    """The endpoints `/sse`, which opens a session, and `/messages`, to which its client posts."""

    def __init__(self, table: RequestTable, max_bytes: int) -> None:
        self._table = table
        self._max_bytes = max_bytes
        self._sessions: dict[str, _Session] = {}

    async def connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = principal_of(HttpRequest(scope))
        name, session = uuid.uuid4().hex, _Session(self._table, principal, scope.get(OPEN_REQUEST))
        self._sessions[name] = session
        path = quote(scope.get(ROOT_PATH, "") + "/messages/")
        endpoint = f"event: endpoint\r\ndata: {path}?session_id={name}\r\n\r\n".encode()
        try:
            with ClientWatch(receive, session.events) as watch:
                await send_events(session.events, watch, send, first=endpoint)
        except anyio.get_cancelled_exc_class():
            is_expired = session.request is not None and session.request.deadline <= anyio.current_time()
            session.events.is_read = True
            session.dispatcher.abort(SESSION_EXPIRED if is_expired else SERVER_ENDS)
            with anyio.CancelScope(shield=True):
                events = b"".join(session.events.as_event(line, 0) for line in session.events.take())
                await send({"type": "http.response.body", "body": events, "more_body": True})
            raise
        finally:
            del self._sessions[name]
            session.end()
            with anyio.CancelScope(shield=True):
                await session.dispatcher.aclose()
            session.connection.close()

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept a posted message, once the session has room for it."""
        if scope["method"] != "POST":
            text = f"/messages does not accept {scope['method']}."
            raise RequestRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, {"Allow": "POST"})
        http_request = HttpRequest(scope, receive)
        principal, name = principal_of(http_request), None
        with suppress(ValueError):
            name = uuid.UUID(hex=http_request.query_params.get("session_id", "")).hex
        session = self._sessions.get(name or "")
        owner = None if principal is None else principal.owner
        if name is None or session is None or session.owner != owner:
            text = (
                "There is no such session for this token: it has ended, never existed, or was opened with other "
                "scopes. Open another one at /sse."
            )
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST if name is None else HTTPStatus.NOT_FOUND, text)
        takes_batches = session.dispatcher.takes_batches
        message, body = await read_posted(scope, receive, self._max_bytes, takes_batches=takes_batches)
        if principal is not None and session.request is not None:
            session.request.deadline = max(session.request.deadline, anyio.current_time() + principal.seconds_left)
        await session.wait_for_room()
        if isinstance(message, Request) and session.dispatcher.has_open(message.id):
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, error_of(message.id, ID_IS_TAKEN))
        if session.events.is_ended:
            text = "The session has ended, and nothing was done. Open another one at /sse."
            raise RequestRefusedError(HTTPStatus.NOT_FOUND, text)
        session.dispatcher.receive(message, body, None, http_request)
        await say_accepted(send, b"Accepted")
