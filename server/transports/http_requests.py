"""What clients post over HTTP: each request is answered, also one that is none or has an id that is taken.

The SDK accepts what it cannot answer (an id that is no id makes a notification of a request), and knows the open
requests of a session by their ids: of two with the same one, or with a number and its text, only one would be answered.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
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

CLAIM = "coretools-mcp.claim"
"""Where a request carries its claim on its way through the SDK."""

MOST_BEFORE_DATA = 1_024
"""Bytes of an event before what it says."""

SESSION_ENDED = "The session was ended before this was answered; what was at work for it was cancelled."

SERVER_ENDS = "The server is ending, so this is not answered; what was at work for it was cancelled."

_RESERVED: RequestId = "_GET_stream"
"""By this name the SDK knows the stream of a session that belongs to no request."""

Place = tuple[str, str, RequestId]
"""Whose session a request is in, which, and its id."""


class Claim:
    """The right of one request to its id, until it is answered.

    Args:
        claims: All that are open.
        place: Whose session it is in, and the id as ids are compared.
        request: The request.
    """

    def __init__(self, claims: dict[Place, Claim], place: Place, request: Request) -> None:
        self.request = request
        self._claims = claims
        self._place = place
        self._is_posted = True
        self._is_at_work = False
        self._is_free: anyio.Event | None = None
        self.is_done = False
        """Whether there is its answer, which may be on its way."""
        self.is_accepted = False
        """Whether its POST is answered already, with nothing but that."""
        claims[place] = self

    def begin(self) -> None:
        """The request is at work, and goes on where its connection is lost."""
        self._is_at_work = True
        self._claims.setdefault(self._place, self)

    def done(self) -> None:
        """The request is not at work any more."""
        self._is_at_work = False
        self.is_done = True
        if self.is_accepted or not self._is_posted:
            self._free()

    def answered(self) -> None:
        """The POST has its answer."""
        self._is_posted = False
        if not (self.is_accepted or self._is_at_work):
            self._free()

    async def wait_free(self) -> None:
        """Wait until another one may have the id."""
        if self._is_free is None:
            self._is_free = anyio.Event()
        await self._is_free.wait()

    def _free(self) -> None:
        if self._claims.get(self._place) is self:
            del self._claims[self._place]
        if self._is_free is not None:
            self._is_free.set()


async def note_at_work(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """A middleware of the server: requests that are at work keep their ids."""
    request = cast("object", ctx.request)
    claim: Claim | None = request.scope.get(CLAIM) if isinstance(request, HttpRequest) else None
    if claim is None or ctx.request_id is None:
        return await call_next(ctx)
    claim.begin()
    try:
        return await call_next(ctx)
    finally:
        claim.done()


class Posts:
    """An application of the SDK that is given nothing but what it answers.

    Args:
        app: The SDK's.
        session_of: The session that a request names.
        security: Who is let in; others are refused by the SDK.
        max_bytes: Of one body.
    """

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
        self._claims: dict[Place, Claim] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        taken = await self._take(scope, receive)
        judged = await self._judge(taken, scope)
        receive = _once_more(taken, receive)
        if isinstance(judged, Claim):
            await _answered(partial(_claimed, self._app, judged), judged.request, scope, receive, send)
        elif isinstance(judged, Request):
            await _answered(self._app, judged, scope, receive, send)
        elif judged is None or await self._security.validate_request(HttpRequest(scope), is_post=True) is not None:
            await self._app(scope, receive, send)
        else:
            # Not by Starlette's response for JSON, which has no way to write half a character.
            answer = Response(json.dumps(judged), HTTPStatus.BAD_REQUEST, media_type="application/json")
            await answer(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive) -> deque[Message]:
        """The body of a request, as far as it comes and is not too long."""
        taken: deque[Message] = deque()
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        size = int(declared) if declared.isdigit() else 0
        if size > self._max_bytes:
            return taken  # refused without being read
        size = 0
        while size <= self._max_bytes:
            taken.append(message := await receive())
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
        return taken

    async def _judge(self, taken: Sequence[Message], scope: Scope) -> Claim | Request | Json | None:
        """The claim of a request of a session, or the request, or why it is refused; `None` for what the SDK judges."""
        if not taken or taken[-1]["type"] != "http.request" or taken[-1].get("more_body", False):
            return None
        body = b"".join(message.get("body", b"") for message in taken)
        try:
            message = read_message(body, is_of_client=True)
        except ValueError:
            return refusal_of_unreadable(body, is_post=True)
        if not isinstance(message, Request):
            return None
        if (session := self._session_of(scope)) is None:
            return message
        user = scope.get("user")
        place = "" if user is None else user.display_name, session, coerce_request_id(message.id)
        while (other := self._claims.get(place)) is not None and other.is_done:
            # Who has read an answer may use its id again, though we may not have come to the end of its stream.
            await other.wait_free()
        if other is not None or message.id == _RESERVED:
            return error_of(message.id, ID_IS_TAKEN)
        return Claim(self._claims, place, message)


def as_event(message: Json) -> bytes:
    """A message in a stream of events."""
    return b"event: message\r\ndata: %b\r\n\r\n" % json.dumps(message).encode()


class _OwnAnswer:
    """What is sent for one request, with an error at its end where the SDK has no answer: it breaks such streams off.

    Args:
        identity: Of the request.
        send: Sends.
    """

    def __init__(self, identity: RequestId, send: Send) -> None:
        self._identity = identity
        self._send = send
        self._begins = tuple(
            b'data: {"jsonrpc":"2.0","id":%b,"%b"' % (to_json(identity), kind) for kind in (b"result", b"error")
        )
        """Of the event that is its answer, as the SDK writes it."""
        self._has_head = self._is_stream = self._has_answer = False

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self._has_head = True
            # Accepted is what a request is over the older transport, which is answered elsewhere.
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
        """The request is not answered any more."""
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


async def _answered(app: ASGIApp, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
    """Have a request answered, by us where it is cut off."""
    answer = _OwnAnswer(request.id, send)
    try:
        await app(scope, receive, answer.send)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await answer.cut()
        raise


async def _claimed(app: ASGIApp, claim: Claim, scope: Scope, receive: Receive, send: Send) -> None:
    """Have a request answered. Where its client leaves, the answer goes nowhere, and not to the next with its id."""

    async def without_end() -> Message:
        if (message := await receive())["type"] == "http.disconnect":
            await anyio.sleep_forever()
        return message

    async def watched(message: Message) -> None:
        if message["type"] == "http.response.start":
            claim.is_accepted = message["status"] == HTTPStatus.ACCEPTED
        await send(message)

    scope[CLAIM] = claim
    try:
        await app(scope, without_end, watched)
    finally:
        claim.answered()


def _once_more(taken: deque[Message], receive: Receive) -> Receive:
    """Receive what was taken, and then what comes."""

    async def again() -> Message:
        return taken.popleft() if taken else await receive()

    return again
