"""What clients post over HTTP: each request is answered, also one that is malformed or has an id that is taken.

The SDK accepts what it cannot answer (an id that is not one makes a notification of a request), and knows the open
requests of a session by their ids: of two with the same one, or with a number and its text, only one would be answered.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import anyio
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import CONNECTION_CLOSED
from pydantic_core import to_json
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.json_rpc import ID_IS_TAKEN, Json, Request, RequestId, error_of, read_message
from server.transports.lines import refusal_of_unreadable

CLAIM = "coretools-mcp.claim"  # where a request carries its claim on its way through the SDK
OPEN_REQUEST = "coretools-mcp.open-request"  # where a request carries the scope that ends it
MOST_BEFORE_DATA = 1_024  # bytes of an event before what it says
SESSION_ENDED = "The session was ended before this was answered; what was at work for it was cancelled."
SERVER_ENDS = "The server is ending, so this is not answered; what was at work for it was cancelled."
SESSION_EXPIRED = (
    "The token of this connection has expired, so it ends, and this is not answered; what was at work for it was "
    "cancelled. Connect again with a new one."
)
_RESERVED: RequestId = "_GET_stream"  # by this name the SDK knows the stream of a session that belongs to no request
ClaimedId = tuple[str, str, RequestId]  # whose session a request is in, which, and its id as ids are compared


class RequestClaim:
    """The right of one request to its id, until it is answered."""

    def __init__(self, claims: dict[ClaimedId, RequestClaim], claimed: ClaimedId, request: Request) -> None:
        self.request = request
        self._claims = claims
        self._claimed = claimed
        self._is_posted = True
        self._is_at_work = False
        self._is_free = anyio.Event()
        self.is_done = False  # whether there is its answer, which may be on its way
        self.is_accepted = False  # whether its POST is answered already, with nothing but that
        claims[claimed] = self

    def begin(self) -> None:
        """The request is at work, and goes on where its connection is lost."""
        self._is_at_work = True
        self._claims.setdefault(self._claimed, self)

    def done(self) -> None:
        self._is_at_work = False
        self.is_done = True
        if self.is_accepted or not self._is_posted:
            self._free()

    def answered(self) -> None:
        self._is_posted = False
        if not (self.is_accepted or self._is_at_work):
            self._free()

    async def wait_free(self) -> None:
        """Wait until another one may have the id."""
        await self._is_free.wait()

    def _free(self) -> None:
        if self._claims.get(self._claimed) is self:
            del self._claims[self._claimed]
        self._is_free.set()


async def claim_ids(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """A middleware of the server: requests that are at work keep their ids."""
    request = cast("object", ctx.request)
    claim: RequestClaim | None = request.scope.get(CLAIM) if isinstance(request, HttpRequest) else None
    if claim is None or ctx.request_id is None:
        return await call_next(ctx)
    claim.begin()
    try:
        return await call_next(ctx)
    finally:
        claim.done()


class PostedRequests:
    """An application of the SDK that is given nothing but what it answers, of at most `max_bytes` each."""

    def __init__(
        self,
        app: ASGIApp,
        session_of: Callable[[Scope], str | None],
        security: TransportSecuritySettings,
        max_bytes: int,
    ) -> None:
        self._app = app
        self._session_of = session_of
        self._security = TransportSecurityMiddleware(security)
        self._max_bytes = max_bytes
        self._claims: dict[ClaimedId, RequestClaim] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        taken: deque[Message] = deque()
        body = await self._take(scope, receive, taken)
        request = claim = None

        async def once_more() -> Message:
            message = taken.popleft() if taken else await receive()
            if claim is not None and message["type"] == "http.disconnect":
                # Where its client leaves, the answer goes nowhere, and not to the next with its id.
                await anyio.sleep_forever()
            return message

        refusal: Json | None = None
        if body is not None:
            try:
                message = read_message(body, is_of_client=True)
            except ValueError:
                refusal = refusal_of_unreadable(body, is_post=True)
            else:
                if isinstance(message, Request):
                    request = message
                    claim, refusal = await self._claim(request, scope)
        if refusal is not None and await self._security.validate_request(HttpRequest(scope), is_post=True) is None:
            # Not by Starlette's response for JSON, which has no way to write half a character.
            answer = Response(json.dumps(refusal), HTTPStatus.BAD_REQUEST, media_type="application/json")
            await answer(scope, receive, send)
        elif refusal is not None or request is None:
            await self._app(scope, once_more, send)
        else:
            scope[CLAIM] = claim
            guarded = _GuardedAnswer(request.id, claim, send)
            try:
                await self._app(scope, once_more, guarded.send)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await guarded.cut()
                raise
            finally:
                if claim is not None:
                    claim.answered()

    async def _take(self, scope: Scope, receive: Receive, taken: deque[Message]) -> bytes | None:
        """The body of a request; `None` where it does not come as a whole, or is too long."""
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            return None  # refused without being read
        size = 0
        while size <= self._max_bytes:
            taken.append(message := await receive())
            size += len(message.get("body", b""))
            if message["type"] != "http.request":
                return None
            if not message.get("more_body", False):
                return b"".join(message.get("body", b"") for message in taken)
        return None

    async def _claim(self, request: Request, scope: Scope) -> tuple[RequestClaim | None, Json | None]:
        """The claim of a request that is in a session, or why it is refused."""
        session = self._session_of(scope)
        if session is None:
            return None, None
        user = scope.get("user")
        claimed = "" if user is None else user.display_name, session, coerce_request_id(request.id)
        while (other := self._claims.get(claimed)) is not None and other.is_done:
            # Who has read an answer may use its id again, though we may not have come to the end of its stream.
            await other.wait_free()
        if other is not None or request.id == _RESERVED:
            return None, error_of(request.id, ID_IS_TAKEN)
        return RequestClaim(self._claims, claimed, request), None


def as_event(message: Json) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % json.dumps(message).encode()


class _GuardedAnswer:
    """What is sent for one request, with an error at its end where the SDK breaks it off without an answer."""

    def __init__(self, identity: RequestId, claim: RequestClaim | None, send: Send) -> None:
        self._identity = identity
        self._claim = claim
        self._send = send
        self._begins = tuple(
            b'data: {"jsonrpc":"2.0","id":%b,"%b"' % (to_json(identity), kind) for kind in (b"result", b"error")
        )
        """Of the event that is its answer, as the SDK writes it."""
        self._has_head = self._is_stream = self._has_answer = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_head = True
            if self._claim is not None:
                # Accepted is what a request is over the older transport, which is answered elsewhere.
                self._claim.is_accepted = message["status"] == HTTPStatus.ACCEPTED
            self._is_stream = (b"content-type", b"text/event-stream") in [
                (name.lower(), value.partition(b";")[0]) for name, value in message.get("headers", ())
            ]
            self._has_answer = not self._is_stream
        elif not self._has_answer:
            body: bytes = message.get("body", b"")
            self._has_answer = any(begin in body[: MOST_BEFORE_DATA + len(begin)] for begin in self._begins)
            if not self._has_answer and not message.get("more_body", False):
                await self._end(SESSION_ENDED)
                return
        await self._send(message)

    async def cut(self) -> None:
        if self._has_answer:
            return
        if not self._has_head:
            headers = [(b"content-type", b"application/json")]
            await self._send(
                {"type": "http.response.start", "status": HTTPStatus.SERVICE_UNAVAILABLE, "headers": headers}
            )
        await self._end(SERVER_ENDS)

    async def _end(self, why: str) -> None:
        self._has_answer = True
        error = error_of(self._identity, why, CONNECTION_CLOSED)
        body = as_event(error) if self._is_stream else json.dumps(error).encode()
        await self._send({"type": "http.response.body", "body": body})
