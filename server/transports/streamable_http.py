"""Streamable HTTP, at `/mcp`. Handshake-era clients have sessions; clients of the 2026-07-28 revision do not.

A request is answered with plain JSON if its response is ready within a second and nothing has to be sent before it. All
other requests are answered with an event stream, if the client accepts one. In a session, a client that loses a stream
resumes it with `Last-Event-ID`, while its requests continue. In the 2026-07-28 revision, closing the connection means
that the response is unwanted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import anyio
from starlette.requests import Request as HttpRequest
from starlette.types import Message, Receive, Scope, Send

from server.clients.client_request import principal_of
from server.protocol.json_rpc import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    ID_IS_TAKEN,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Json,
    MCPError,
    Notification,
    Request,
    RequestId,
    as_mapping,
    encoded,
    error_of,
    fields_of,
    response_to,
)
from server.protocol.request_table import (
    McpConnection,
    NoOutbound,
    RequestContext,
    RequestTable,
    opened_by,
    unsupported,
)
from server.protocol.revisions import (
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    REVISION_HEADER,
    decode_header,
    header_of,
    is_of_handshake_era,
)
from server.transports.dispatcher import Conversation, Dispatcher
from server.transports.http_messages import (
    EVENT_STREAM,
    SERVER_ENDS,
    AnswerStream,
    ClientWatch,
    EventStream,
    RequestRefusedError,
    RequestStream,
    read_posted,
    refuse,
    say_accepted,
    send_events,
    send_json,
)

logger = logging.getLogger(__name__)

MAX_SESSIONS = 1_000
"""The maximum number of sessions; above it, a silent session is closed for each new one. Clients often leave without
notice, and without this rule, a client that opens enough sessions could shut out all others. A client whose session was
closed gets 404 and opens a new session, as the protocol requires. docs/scale.md has the cost of a session.
"""
MAX_KEPT = 64
KEPT_BYTES = 512 << 10
"""The limits on finished streams kept per session, in number and bytes. Streams are kept for clients that lose their
connection, because a response that was sent may not have arrived.
"""
JSON, STREAM = "application/json", "text/event-stream"
SESSION_HEADER = b"mcp-session-id"
METHOD_HEADER = b"mcp-method"
NAME_HEADER = b"mcp-name"
EVENT_HEADER = b"last-event-id"
LONGEST_NUMBER = 19  # this server's event numbers have fewer digits than this
PRIMED_SINCE = "2025-11-25"  # since this revision, a stream begins with an event that has only an id
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""For each method, the parameter that the `Mcp-Name` header repeats."""
_STATUS = {
    PARSE_ERROR: HTTPStatus.BAD_REQUEST,
    INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    INVALID_PARAMS: HTTPStatus.BAD_REQUEST,
    HEADER_MISMATCH: HTTPStatus.BAD_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY: HTTPStatus.BAD_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION: HTTPStatus.BAD_REQUEST,
    METHOD_NOT_FOUND: HTTPStatus.NOT_FOUND,
}
"""The HTTP status of error responses in the 2026-07-28 revision, by error code; all other responses have 200."""
_REFUSED = re.compile(r"\bq\s*=\s*0(?:\.0*)?\s*(?:;|$)")  # a weight of zero
SESSION_ENDED = "The session ended before this request was answered, so it was cancelled."
NO_SUCH_SESSION = (
    "There is no such session for this token: it has ended, its server was restarted, or it was opened with other "
    "scopes. Nothing was done. Send initialize without the Mcp-Session-Id header to open another session, and repeat "
    "the request there."
)
NO_SESSION = (
    "This request names no session: send initialize first, and repeat the Mcp-Session-Id header of its response in "
    "every later request."
)


class HttpSession:
    """The session of a handshake-era client."""

    def __init__(self, table: RequestTable, owner: object, principal_name: str) -> None:
        self.id = uuid.uuid4().hex
        self.owner = owner  # the owner of the token with which the session was opened
        self.principal_name = principal_name  # the key under which `Sessions` counts this session
        self.requests = 0  # open HTTP requests, including streams
        self.silent_since = time.monotonic()
        self.events = EventStream("0", is_read=False)  # for messages outside of requests
        self.streams: dict[str, EventStream] = {}  # the streams of requests, oldest first
        self.dispatcher = Dispatcher(self.events, on_resume=lambda: None, is_bounded=False)
        conversation = Conversation(table, self.dispatcher, is_modern=False)
        self.connection = conversation.connection
        self.dispatcher.start(conversation.on_request, conversation.on_notify)
        self._streams = 0

    def new_stream(self) -> RequestStream:
        self._streams += 1
        # If the client leaves early, `send_stream` returns before the stream ends, so `_forget_streams` must run again.
        return RequestStream(str(self._streams), on_end=self._forget_streams)

    def stream_after(self, event_id: str) -> EventStream | None:
        name, _, number = event_id.partition("/")
        stream = self.events if name == self.events.name else self.streams.get(name)
        if stream is not None:
            # A longer number is not from this server.
            is_number = number.isascii() and number.isdecimal() and len(number) < LONGEST_NUMBER
            stream.rewind(int(number) if is_number else 0)
        return stream

    async def send_stream(self, stream: EventStream, receive: Receive, send: Send, first: bytes = b"") -> None:
        """Send a stream to its end, and keep it in case the client loses its connection."""
        if stream is not self.events:
            self.streams[stream.name] = stream
        with ClientWatch(receive, stream) as watch:
            await send_events(stream, watch, send, [(SESSION_HEADER, self.id.encode())], first)
        self._forget_streams()

    def _forget_streams(self) -> None:
        """Drop the oldest finished streams that nobody reads, until the others are within the limits."""
        finished_streams = [stream for stream in self.streams.values() if stream.is_ended and not stream.is_read]
        size = sum(stream.kept_bytes for stream in finished_streams)
        while len(finished_streams) > MAX_KEPT or size > KEPT_BYTES:
            oldest = finished_streams.pop(0)
            size -= oldest.kept_bytes
            del self.streams[oldest.name]

    async def aclose(self) -> None:
        await self.dispatcher.aclose(SESSION_ENDED)
        self.events.end()
        self.streams.clear()
        self.connection.close()


@dataclass(slots=True)
class _PrincipalSessions:
    """The sessions of one principal, or of all clients without tokens."""

    silent: OrderedDict[str, HttpSession] = field(default_factory=OrderedDict[str, HttpSession])  # longest-silent first
    count: int = 0  # the number of silent and busy sessions


class Sessions:
    """All sessions. Opening one never fails: above the maximum number, a silent session is closed, if there is one."""

    def __init__(self, table: RequestTable, max_sessions: int, idle_seconds: float) -> None:
        self._table = table
        self._max_sessions = max_sessions
        self._idle_seconds = idle_seconds  # how long a session may have no request and no open stream
        self._sessions: dict[str, HttpSession] = {}
        self._principals: dict[str, _PrincipalSessions] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._idle_check: asyncio.TimerHandle | None = None
        self._has_warned = False

    def find(self, name: str, owner: object) -> HttpSession | None:
        session = self._sessions.get(name)
        return session if session is not None and session.owner == owner else None

    def open(self, owner: object, principal_name: str) -> HttpSession:
        """Open a session, which counts as busy until it is released."""
        session = HttpSession(self._table, owner, principal_name)
        self._sessions[session.id] = session
        self._principals.setdefault(principal_name, _PrincipalSessions()).count += 1
        self.take(session)
        while len(self._sessions) > self._max_sessions:
            # The principal with the most sessions loses one, so that others are not affected.
            candidates = [group for group in self._principals.values() if group.silent]
            if not candidates:
                break
            if not self._has_warned:
                self._has_warned = True
                logger.warning("%d sessions are open, so each new session closes a silent one", self._max_sessions)
            self.end(next(iter(max(candidates, key=lambda group: group.count).silent.values())))
        if self._idle_check is None:
            self._schedule_idle_check(self._idle_seconds)
        return session

    def take(self, session: HttpSession) -> None:
        """Record that a request or an open stream uses a session."""
        session.requests += 1
        if session.id in self._sessions:  # otherwise the session was closed in the meantime
            self._principals[session.principal_name].silent.pop(session.id, None)

    def release(self, session: HttpSession) -> None:
        session.requests -= 1
        if not session.requests and session.id in self._sessions:
            session.silent_since = time.monotonic()
            self._principals[session.principal_name].silent[session.id] = session

    def end(self, session: HttpSession) -> None:
        """End a session at once; its cancelled requests may take a moment to clean up."""
        if self._sessions.pop(session.id, None) is None:
            return
        group = self._principals[session.principal_name]
        group.silent.pop(session.id, None)
        group.count -= 1
        if not group.count:
            del self._principals[session.principal_name]
        task = asyncio.create_task(session.aclose())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        if self._idle_check is not None:
            self._idle_check.cancel()
        for session in tuple(self._sessions.values()):
            self.end(session)
        if self._ending:
            await asyncio.wait(self._ending)

    def _schedule_idle_check(self, seconds: float) -> None:
        self._idle_check = asyncio.get_running_loop().call_later(max(seconds, 0.01), self._end_idle)

    def _end_idle(self) -> None:
        self._idle_check = None
        now = time.monotonic()
        oldest = now
        for group in tuple(self._principals.values()):
            while group.silent:
                session = next(iter(group.silent.values()))
                if session.silent_since > now - self._idle_seconds:
                    oldest = min(oldest, session.silent_since)
                    break
                self.end(session)
        if self._sessions:
            self._schedule_idle_check(oldest + self._idle_seconds - now)


@dataclass(eq=False, slots=True)
class _ModernRequest(NoOutbound):
    """A request of the 2026-07-28 revision. While it is open, its client receives notifications, but never requests."""

    stream: EventStream

    async def notify(self, method: str, params: Json | None) -> None:
        self.stream.put(encoded(fields_of(Notification(method, params))))
        await self.stream.backpressure.wait()

    def person_is_asked(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class StreamableHttp:
    """The endpoint `/mcp`."""

    table: RequestTable
    schema_of: Callable[[str], Awaitable[Mapping[str, Any] | None]]
    """Returns a tool's schema if clients must repeat some of its arguments in HTTP headers, otherwise `None`; may wait
    until the tool is known.
    """
    max_bytes: int  # the maximum size of a body
    sessions: Sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, headers = scope["method"], scope["headers"]
        if not is_of_handshake_era(headers):
            if method == "POST":
                await self._post_modern(scope, receive, send)
            elif (version := header_of(headers, REVISION_HEADER)) in MODERN_PROTOCOL_VERSIONS:
                message = f"In the 2026-07-28 revision, /mcp does not accept {method}."
                raise RequestRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, message, {"Allow": "POST"})
            else:
                raise _unsupported(None, version or "")
        elif method == "POST":
            await self._post(scope, receive, send)
        elif method == "GET":
            await self._listen(self._session(scope), scope, receive, send)
        elif method == "DELETE":
            self.sessions.end(self._session(scope))
            await send_json(b"null", HTTPStatus.OK, send)
        else:
            message = f"/mcp does not accept {method}."
            raise RequestRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, message, {"Allow": "GET, POST, DELETE"})

    def _session(self, scope: Scope) -> HttpSession:
        """Return the session that a request names, or refuse the request."""
        name = header_of(scope["headers"], SESSION_HEADER)
        if not name:
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, NO_SESSION)
        principal = principal_of(HttpRequest(scope))
        session = self.sessions.find(name, None if principal is None else principal.owner)
        if session is None:
            raise RequestRefusedError(HTTPStatus.NOT_FOUND, NO_SUCH_SESSION)
        return session

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a message in a session, or one that opens a session."""
        _check_accept(scope, JSON)
        is_named = header_of(scope["headers"], SESSION_HEADER) is not None
        takes_batches = is_named and self._session(scope).dispatcher.takes_batches
        message, body = await read_posted(scope, receive, self.max_bytes, takes_batches=takes_batches)
        http_request = HttpRequest(scope, receive)
        if not is_named and isinstance(message, Request) and message.method == "initialize":
            principal = principal_of(http_request)
            owner, principal_name = (None, "") if principal is None else (principal.owner, principal.unique_name)
            session = self.sessions.open(owner, principal_name)
        else:
            # This check also refuses a request that names no session, and one whose session has ended in the meantime.
            # The check above runs before the body is read, and shows whether the body may be a batch.
            session = self._session(scope)
            self.sessions.take(session)
        try:
            identity, stream = (message.id if isinstance(message, Request) else None), None
            if identity is not None and session.dispatcher.has_open(identity):
                await refuse(HTTPStatus.BAD_REQUEST, error_of(identity, ID_IS_TAKEN), send)
                return
            if any(isinstance(item, Request) for item in (message if isinstance(message, list) else [message])):
                stream = session.new_stream() if _accepts(scope, STREAM) else AnswerStream(session.events)
            # Another task puts the response into `stream`.
            session.dispatcher.receive(message, body, stream, http_request)
            if stream is None:
                await say_accepted(send)
                return
            async with _answered(identity, stream, send) as guarded_send:
                await stream.wait(stream.silent_seconds)
                headers = [(SESSION_HEADER, session.id.encode())] if session.connection.is_open else []
                if (response := stream.only_message()) is not None:
                    await send_json(response, HTTPStatus.OK, guarded_send, headers)
                    return
                first = b""
                if session.connection.protocol_version >= PRIMED_SINCE:
                    first = b"id: %b/0\r\ndata: \r\n\r\n" % stream.name.encode()
                await session.send_stream(stream, receive, guarded_send, first)
        finally:
            if not session.connection.is_open:  # initialize failed
                self.sessions.end(session)
            self.sessions.release(session)

    async def _listen(self, session: HttpSession, scope: Scope, receive: Receive, send: Send) -> None:
        """Open a stream for messages outside of requests, or resume a lost one."""
        _check_accept(scope, STREAM)
        stream = session.events
        if (last_event := header_of(scope["headers"], EVENT_HEADER)) is not None:
            if (kept_stream := session.stream_after(last_event)) is None:
                message = "The stream of this Last-Event-ID is no longer kept. Open another one without that header."
                # 404 would mean that there is no such session.
                raise RequestRefusedError(HTTPStatus.BAD_REQUEST, message)
            stream = kept_stream
        self.sessions.take(session)
        try:
            await session.send_stream(stream, receive, send)
        finally:
            self.sessions.release(session)

    async def _post_modern(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of the 2026-07-28 revision."""
        _check_accept(scope, JSON)
        message, _ = await read_posted(scope, receive, self.max_bytes)
        version = header_of(scope["headers"], REVISION_HEADER) or ""
        if version not in MODERN_PROTOCOL_VERSIONS:
            raise _unsupported(message.id if isinstance(message, Request) else None, version)
        if isinstance(message, Notification):
            # The 2026-07-28 revision has no client notifications over HTTP, and nobody would read an error.
            await say_accepted(send)
            return
        if not isinstance(message, Request):
            text = (
                "The body must be one request or one notification: in the 2026-07-28 revision, a server sends no "
                "requests that a client could answer."
            )
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, text)
        if message.method == "subscriptions/listen":
            _check_accept(scope, STREAM)
        stream = RequestStream() if _accepts(scope, STREAM) else AnswerStream()
        work_scope = anyio.CancelScope()
        work = asyncio.create_task(self._process(message, HttpRequest(scope, receive), stream, work_scope))
        try:
            async with _answered(message.id, stream, send) as guarded_send:
                with ClientWatch(receive, stream) as watch:
                    await stream.wait(stream.silent_seconds)
                    if (response := stream.only_message()) is not None:
                        await send_json(response, await work, guarded_send)
                    elif not watch.has_left:
                        await send_events(stream, watch, guarded_send)
        finally:
            if not work.done():
                work_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([work])

    async def _process(
        self, request: Request, http_request: HttpRequest, stream: EventStream, scope: anyio.CancelScope
    ) -> int:
        """Process a request, and return the HTTP status for a response that is not a stream."""

        async def work() -> Json:
            connection = await self._connection_of(request, http_request)
            try:
                outbound = _ModernRequest(stream)
                ctx = RequestContext(request.method, request.params, request.id, connection, outbound, http_request)
                return await self.table.answer(ctx)
            finally:
                connection.close()

        answer: Json = {}
        with scope:
            answer = await response_to(request, work())
        stream.put_answer(encoded(answer)) if answer else stream.end()
        return _STATUS.get(as_mapping(answer.get("error")).get("code", 0), HTTPStatus.OK)

    async def _connection_of(self, request: Request, http_request: HttpRequest) -> McpConnection:
        """Return the connection of a request's sender; raises `MCPError` if headers contradict its body."""
        headers, params = http_request.scope["headers"], request.params or {}
        for name in (REVISION_HEADER, METHOD_HEADER, NAME_HEADER):
            if [header_name for header_name, _ in headers].count(name) > 1:
                raise MCPError(HEADER_MISMATCH, f"The header {name.decode()} occurs more than once.")
        meta = as_mapping(params.get("_meta"))
        if PROTOCOL_VERSION_META_KEY in meta:  # otherwise another error reports what is missing
            body_values = {REVISION_HEADER: meta[PROTOCOL_VERSION_META_KEY], METHOD_HEADER: request.method}
            header_values = {name: header_of(headers, name) for name in body_values}
            if (value := params.get(_NAMED_BY.get(request.method, ""))) is not None:
                body_values[NAME_HEADER] = value
                header_values[NAME_HEADER] = decode_header(header_of(headers, NAME_HEADER))
            for name, value in body_values.items():
                if header_values[name] != value:
                    raise MCPError(
                        HEADER_MISMATCH, f"The header {name.decode()} differs from the value in the request body."
                    )
        connection = opened_by(params)
        name, arguments = params.get("name"), params.get("arguments")
        if request.method != "tools/call" or not isinstance(name, str) or not isinstance(arguments, dict | None):
            return connection
        if (schema := await self.schema_of(name)) is not None:  # clients must repeat some arguments in headers
            from mcp.shared.inbound import InboundLadderRejection, validate_mcp_param_headers  # noqa: PLC0415 - few tools need it

            refusal = validate_mcp_param_headers(schema, as_mapping(arguments), http_request.headers)
            if isinstance(refusal, InboundLadderRejection):
                raise MCPError(refusal.code, refusal.message, refusal.data)
        return connection


@asynccontextmanager
async def _answered(identity: RequestId | None, stream: EventStream, send: Send) -> AsyncGenerator[Send]:
    """Provide a `send` for the response to a request; if the server shuts down first, send an error instead."""
    status, is_stream, has_end = 0, False, False

    async def guarded_send(message: Message) -> None:
        nonlocal status, is_stream, has_end
        if message["type"] == "http.response.start":
            status, is_stream = message["status"], (b"content-type", EVENT_STREAM) in message["headers"]
        else:
            has_end = not message.get("more_body", False)
        await send(message)

    try:
        yield guarded_send
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            body = json.dumps(error_of(identity, SERVER_ENDS, CONNECTION_CLOSED)).encode()
            if not status:
                await send_json(body, HTTPStatus.SERVICE_UNAVAILABLE, send)
            elif is_stream and not has_end:
                await send({"type": "http.response.body", "body": stream.as_event(body, stream.last + 1)})
        raise


def _unsupported(identity: RequestId | None, version: str) -> RequestRefusedError:
    error: Json = {"jsonrpc": "2.0", "id": identity, "error": unsupported(version).to_json()}
    return RequestRefusedError(HTTPStatus.BAD_REQUEST, error)


def _accepts(scope: Scope, kind: str) -> bool:
    """Return whether a client accepts a content type; without an Accept header it accepts all (RFC 9110, 12.5.1)."""
    accept = header_of(scope["headers"], b"accept") or "*/*"
    parts = (part.lower().partition(";") for part in accept.split(","))
    acceptable = {name.strip(): _REFUSED.search(parameters) is None for name, _, parameters in parts}
    names = (kind, f"{kind.partition('/')[0]}/*", "*/*")  # the most specific range wins
    return next((acceptable[name] for name in names if name in acceptable), False)


def _check_accept(scope: Scope, kind: str) -> None:
    """Refuse a request unless its client accepts a content type."""
    if not _accepts(scope, kind):
        types = "application/json, and text/event-stream for messages before a response" if kind == JSON else kind
        raise RequestRefusedError(HTTPStatus.NOT_ACCEPTABLE, f"The Accept header must contain {types}.")
