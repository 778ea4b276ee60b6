"""Upstreams over HTTP: Streamable HTTP, and the older transport of HTTP with SSE, on a client that bad servers survive.

In the SDK's transport an exception of the HTTP library ends the connection with all its calls. So a request that cannot
be sent is answered here, with an error that fails it alone; and what the server said by its status, or by an answer
that cannot be used, is told in words of ours. The older transport is not the SDK's, which ends silently with the first
message that the server does not accept, and takes none of more than a megabyte.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from server.protocol.errors import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR
from server.protocol.json_rpc import (
    Failure,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    as_mapping,
    fields_of,
    of_sdk,
    read_message,
)
from server.transports.lines import STDIO_BACKPRESSURE
from server.upstreams.wire.peer import (
    MESSAGE_BYTES,
    Challenge,
    Credentials,
    Inbox,
    LoginError,
    NeedsAuthenticationError,
    UnreachableError,
    messages_in,
    unusable,
)
from tools.contract.threads import lend_threads

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0  # how long one connection over TCP and TLS, and sending a request over it, may take

ACCEPT_SECONDS = 10.0
"""How long a server may take to accept what has no answer (ours). What comes after it waits for that."""

ERROR_BYTES = 1 << 20  # so much is read at most of what a server says beside a status that means an error (ours)
MOST_CHALLENGES = 8
CHALLENGE_CHARS = 8_192
"""So much is kept of how a server says that it wants a login: schemes, and characters of each (ours)."""

LEAVING_SECONDS = 1.0  # how long a server may take to hear that a session ends

_LOCKED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_SESSION = "mcp-session-id"

_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":\d+,"method":')
"""How the SDK begins a request; what begins otherwise is looked at as a whole."""

_SDK_ERRORS: tuple[tuple[int, str, str], ...] = (
    (PARSE_ERROR, "Failed to parse ", "what it sent is not a JSON-RPC message, or broke off, or is too long"),
    (INVALID_REQUEST, "Unexpected content type: ", "what it sent is neither JSON nor a stream of events"),
    (INVALID_REQUEST, "Redirect to ", "it wants the request to be sent to another address"),
    (INVALID_REQUEST, "server answered a request with 202", "it took the request without answering it"),
    (CONNECTION_CLOSED, "SSE stream ended", "it ended its answer before it was whole"),
    (CONNECTION_CLOSED, "SSE stream failed", "what it sent is too long, or not a stream of events"),
)
"""Errors that the SDK makes up in place of answers, with texts of exceptions in some, and what they mean."""


_SDK_MODELS: Mapping[type[Message], type[types.JSONRPCMessage]] = {
    Request: types.JSONRPCRequest,
    Notification: types.JSONRPCNotification,
    Response: types.JSONRPCResponse,
    Failure: types.JSONRPCError,
}


class NoEndpointError(Exception):
    """The stream does not begin with an address of the same server for what is sent to it."""


class CarefulTransport(httpx2.AsyncBaseTransport):
    """Fails a request by an answer instead of an exception, and knows how the server has behaved."""

    def __init__(self, on_doubt: Callable[[], None], login: Credentials | None = None) -> None:
        self._on_doubt = on_doubt
        self._login = login
        self.challenge: Challenge | None = None  # of the latest answer, where it was 401 or 403
        self.is_unreachable = False
        lend_threads()
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # What is packed could be unpacked to any size.
        request.headers["accept-encoding"] = "identity"
        await request.aread()
        is_post = request.method == "POST"
        has_answer = not is_post or _REQUEST.match(request.content) is not None
        if not has_answer:
            has_answer = {"id", "method"} <= as_mapping(json.loads(request.content)).keys()
        try:
            with anyio.fail_after(None if has_answer else ACCEPT_SECONDS):
                response = await self._exchange(request)
        except LoginError as error:
            return _refused(request, f"its login cannot be used now: {error.why}")
        except TimeoutError:
            logger.info("an upstream did not accept in time what has no answer")
            return _refused(request, "it did not accept this in time")
        except (httpx2.LocalProtocolError, ValueError) as error:
            # The fault of this request: nothing is known of the server by it.
            logger.info("a request to an upstream was not fit to be sent (%s)", type(error).__name__)
            return _refused(request, "what was to be sent is not allowed in HTTP")
        except httpx2.TransportError as error:
            logger.info("a request to an upstream could not be sent (%s)", type(error).__name__)
            self.is_unreachable = True
            self._on_doubt()
            return _refused(request, "it could not be reached")
        status, stream = response.status_code, response.stream
        self.is_unreachable, self.challenge = False, None
        if status in _LOCKED:
            self.challenge = _challenge_of(response)
            if self._login is not None:
                self._login.challenge = self.challenge
        # By GET nothing is known of the session: a server may have no stream of its own.
        if is_post and status == HTTPStatus.NOT_FOUND and _SESSION in request.headers:
            self._on_doubt()
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _refused(request, "what it sent is packed, which was not asked for")
        if status < HTTPStatus.BAD_REQUEST:
            if isinstance(stream, httpx2.AsyncByteStream):
                is_one = not response.headers.get("content-type", "").startswith("text/event-stream")
                response.stream = _CarefulStream(stream, MESSAGE_BYTES if is_one else None)
            return response
        # With what the server says in JSON-RPC, else with what the status says.
        said = b""
        if isinstance(stream, httpx2.AsyncByteStream):
            said = b"".join([chunk async for chunk in _CarefulStream(stream, ERROR_BYTES)])
            await stream.aclose()
        is_challenged = self.challenge is not None and bool(self.challenge.schemes)
        if isinstance(_message_or_none(said), Failure) and not is_challenged:
            headers = {"content-type": "application/json"}
            return httpx2.Response(status, headers=headers, content=said, request=request)
        why = f"it answered with HTTP status {status}"
        if self.challenge is not None:
            why = f"it requires a token or a login (HTTP status {status})"
        return _refused(request, why, status, self.challenge)

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, with the token of the login where there is one, and once more with a renewed one."""
        login = self._login
        if login is None:
            return await self._inner.handle_async_request(request)
        header = await login.header()
        for is_last in (False, True):
            if header is not None:
                request.headers["authorization"] = header
            response = await self._inner.handle_async_request(request)
            if is_last or response.status_code not in _LOCKED:
                break
            challenge = _challenge_of(response)
            # A person is not asked here: only a token that has expired, or is a program's, is renewed.
            is_renewable = not login.needs_person or (header is not None and not challenge.wants_scopes)
            if not is_renewable or (challenge.status == HTTPStatus.FORBIDDEN and not challenge.wants_scopes):
                break
            login.challenge = challenge
            try:
                renewed = await login.renew(header)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await response.aclose()  # else its connection would be lent for ever
                raise
            if renewed is None:
                break
            await response.aclose()
            header = renewed
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _challenge_of(response: httpx2.Response) -> Challenge:
    schemes = response.headers.get_list("www-authenticate")
    return Challenge(response.status_code, tuple(each[:CHALLENGE_CHARS] for each in schemes[:MOST_CHALLENGES]))


def _refused(
    request: httpx2.Request, why: str, status: int = HTTPStatus.BAD_GATEWAY, challenge: Challenge | None = None
) -> httpx2.Response:
    sent = as_mapping(json.loads(request.content)) if request.method == "POST" else {}
    error = unusable(sent.get("id", 0), why, challenge)
    return httpx2.Response(status, json=fields_of(error), request=request)


def _message_or_none(said: bytes) -> Message | None:
    try:
        return read_message(said)
    except ValueError:
        return None


class _CarefulStream(httpx2.AsyncByteStream):
    """A body that ends where its connection breaks, or where it is too long."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int | None) -> None:
        self._inner = inner
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        try:
            async for chunk in self._inner:
                await STDIO_BACKPRESSURE.wait()
                count += len(chunk)
                if self._most is not None and count > self._most:
                    logger.info("an answer of an upstream is longer than %d bytes, and was not taken", self._most)
                    return
                yield chunk
        except httpx2.TransportError as error:
            logger.info("an answer of an upstream broke off (%s)", type(error).__name__)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def _careful_client(
    headers: Mapping[str, str], on_doubt: Callable[[], None], login: Credentials | None
) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client whose end tells what is known of the server: `NeedsAuthenticationError`, or `UnreachableError`."""
    transport = CarefulTransport(on_doubt, login)
    # No read limit: a stream may be silent, a call has its own deadline, and a limit here would end all calls at once.
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    try:
        async with httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=transport) as client:
            yield client
    except Exception as error:  # noqa: BLE001 - whatever it is, it means that there is no connection
        if transport.challenge is not None:
            raise NeedsAuthenticationError(transport.challenge) from None
        raise (UnreachableError() if transport.is_unreachable else error) from None


@asynccontextmanager
async def streamable_streams(
    url: str, headers: Mapping[str, str], on_doubt: Callable[[], None], login: Credentials | None = None
) -> AsyncGenerator[tuple[SdkReader, SdkWriter]]:
    """Speak Streamable HTTP. `on_doubt` is called when the session seems to be gone."""
    leaving, left = anyio.Event(), anyio.Event()
    shield = anyio.CancelScope(shield=True)

    async def hold(client: httpx2.AsyncClient, *, task_status: TaskStatus[Any]) -> None:
        # Left in order also by a task that is cancelled: so the server hears that the session ends.
        try:
            with shield:
                async with streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams:
                    task_status.started(streams)
                    await leaving.wait()
        finally:
            left.set()

    async with _careful_client(headers, on_doubt, login) as client, anyio.create_task_group() as tasks:
        reading, writing = await tasks.start(hold, client)
        try:
            yield SdkReader(reading), SdkWriter(writing)
        finally:
            leaving.set()
            with anyio.move_on_after(LEAVING_SECONDS, shield=True):
                await left.wait()
            shield.cancel()


@asynccontextmanager
async def sdk_streams(transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[tuple[SdkReader, SdkWriter]]:
    async with transport as (reading, writing):
        yield SdkReader(reading), SdkWriter(writing)


class SdkReader:
    """What comes from a transport of the SDK, with its own errors in words of ours."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception]) -> None:
        self._stream = stream

    async def listen(self, listener: Callable[[Message], None]) -> None:
        async for item in self._stream:
            if not isinstance(item, SessionMessage):
                continue
            message = of_sdk(item.message)
            if isinstance(message, Failure) and message.id is not None:
                for code, beginning, why in _SDK_ERRORS:
                    if message.error["code"] == code and message.error["message"].startswith(beginning):
                        message = unusable(message.id, why)
                        break
            listener(message)


class SdkWriter:
    has_room = False  # it takes one at a time, so who sends may have to wait

    takes_headers = True

    def __init__(self, stream: WriteStream[SessionMessage]) -> None:
        self._stream = stream

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
        await self._stream.send(SessionMessage(_SDK_MODELS[type(message)].model_validate(fields_of(message)), metadata))


@asynccontextmanager
async def sse_streams(
    url: str, headers: Mapping[str, str], on_doubt: Callable[[], None], login: Credentials | None = None
) -> AsyncGenerator[tuple[Inbox, SseWriter]]:
    """Speak the older transport: a stream for all that the server says, and a request for each message to it."""
    inbox = Inbox()

    async def read(events: httpx2.EventSource, *, task_status: TaskStatus[str]) -> None:
        # The server's first word is where it wants to be answered.
        is_told = False
        try:
            async for event in events:
                if event.event == "endpoint" and not is_told:
                    address = urljoin(url, event.data)
                    if urlsplit(address)[:2] != urlsplit(url)[:2]:
                        raise NoEndpointError
                    is_told = True
                    task_status.started(address)
                elif event.event == "message" and event.data:
                    messages, is_valid = messages_in(event.data, event.data.encode("utf-8", "replace"))
                    if not is_valid:
                        logger.info("an upstream sent what is not a JSON-RPC message")
                    for message in messages:
                        inbox.put(message)
        except httpx2.SSEError as error:
            logger.info("an upstream does not send a stream of events (%s)", type(error).__name__)
        finally:
            inbox.close()
        if not is_told:
            raise NoEndpointError

    async with (
        _careful_client(headers, on_doubt, login) as client,
        sse_within_origin(client, url, max_event_size=MESSAGE_BYTES) as events,
        anyio.create_task_group() as tasks,
    ):
        events.response.raise_for_status()
        address = await tasks.start(read, events)
        yield inbox, SseWriter(client, address, inbox, tasks)
        tasks.cancel_scope.cancel()


@dataclass(slots=True)
class SseWriter:
    """Sends each message as a request of its own; errors in place of answers go to the inbox."""

    client: httpx2.AsyncClient
    address: str
    inbox: Inbox
    tasks: TaskGroup
    has_room: bool = True
    takes_headers: bool = False
    _open: dict[RequestId, anyio.CancelScope] = field(default_factory=dict[RequestId, anyio.CancelScope])

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message. Some servers accept a request only with its answer, so that is not waited for."""
        del headers
        if isinstance(message, Request):
            self.tasks.start_soon(self._request, message)
            return
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            scope = self._open.get((message.params or {}).get("requestId", ""))
            if scope is not None:
                scope.cancel()
        await request_within_origin(self.client, "POST", self.address, json=fields_of(message))

    async def _request(self, message: Request) -> None:
        with anyio.CancelScope() as scope:
            self._open[message.id] = scope
            try:
                response = await request_within_origin(self.client, "POST", self.address, json=fields_of(message))
                if response.status_code >= HTTPStatus.MULTIPLE_CHOICES:
                    # What the server says in JSON-RPC, else its status.
                    said, status = _message_or_none(response.content), response.status_code
                    why = unusable(message.id, f"it answered with HTTP status {status}")
                    self.inbox.put(Failure(message.id, said.error) if isinstance(said, Failure) else why)
            finally:
                del self._open[message.id]
