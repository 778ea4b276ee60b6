"""Upstreams over Streamable HTTP and the older SSE transport, with a client that tolerates misbehaving servers.

If a request cannot be sent, or its response is unusable, this module creates an error response, and only this request
fails. If a server says that it does not know a session, and a ping confirms this, the request was not executed, so it
can be repeated in another session.
"""

from __future__ import annotations

import codecs
import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.lowlevel
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from mcp.shared._httpx_utils import request_within_origin, stream_within_origin
from pydantic_core import to_json

from server.network.echoed_secrets import SentSecrets, quoted
from server.network.outbound_http import NOT_HTTP, SECRETS, cause_of, describe_status, open_transport, proxy_of
from server.protocol.json_rpc import (
    ErrorResponse,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    fields_of,
    read_message,
)
from server.protocol.revisions import MODERN_PROTOCOL_VERSIONS
from server.transports.json_lines import STDIO_BACKPRESSURE
from server.upstreams.wire.json_rpc_channel import (
    MAX_TOGETHER,
    MESSAGE_BYTES,
    Challenge,
    Credentials,
    Inbox,
    LoginError,
    NeedsAuthenticationError,
    UnreachableError,
    UnusableAnswerError,
    messages_in,
    own_number,
    unusable,
)

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0  # time limit for connecting with TCP and TLS, and for sending a request
ACCEPT_SECONDS = 10.0  # time limit for a server to accept a notification, a response or a ping
ERROR_BYTES = 1 << 20  # maximum number of bytes to read from the body of an error response
MAX_CHALLENGES = 8  # maximum number of schemes in a stored challenge
CHALLENGE_CHARS = 8_192  # maximum number of characters per scheme
LEAVING_SECONDS = 1.0  # time limit for ending a session at the server

# Fields of errors and results that keep their names, even if a header has such a name as its value
_FIELDS = frozenset({"message", "content", "structuredContent", "isError"})
_CHALLENGE_STATUSES = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"
_EVENTS = "text/event-stream"
# The name under which `SentSecrets` learns the login's header: it hides the whole value and the token, but not `Bearer`
_LOGIN = "login"
_GET_HEADERS = {"accept": _EVENTS, "cache-control": "no-store"}
_POST_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
# Statuses that servers send for an unknown session
_UNKNOWN_SESSION_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
_INVALID_MESSAGE = "its message is incomplete, too long or not valid JSON-RPC"
_SESSION_UNKNOWN = "it no longer knows the session"
MAX_TOKENS = 4  # how many of the login's latest tokens are removed from messages
MAX_HOPS = 3  # maximum number of consecutive redirects
MAX_RETRY_MS = 3_600_000  # maximum pause that a server can request
MAX_ID_CHARS = 4_096  # maximum length of an event's id, which is sent back in a header
PIECE_BYTES = 4_096  # bytes parsed before other tasks run
LINE_COST = 64  # bytes counted for each line in addition to its length, because parsing a line takes time

FIRST_PAUSE_SECONDS = 1.0
LAST_PAUSE_SECONDS = 60.0
"""Initial and maximum pause before an ended stream is reopened; pauses double while streams end quickly."""
MAX_REFUSED = 2  # maximum number of consecutive failed attempts to resume an interrupted response stream


class RefusedError(UnusableAnswerError):
    """A request failed, or got an error status; `answers` has the JSON-RPC responses in the body, if there are any."""

    def __init__(
        self,
        reason: str,
        status: int = 0,
        challenge: Challenge | None = None,
        answers: Sequence[Response | ErrorResponse] = (),
    ) -> None:
        super().__init__(reason, challenge)
        self.status = status
        self.answers = answers
        self.hides_answers = False  # whether `reason` and `challenge` must be reported instead of `answers`

    def answers_to(self, identity: RequestId) -> bool:
        """Return whether the body answers this request; if so, the server may have executed the request."""
        return any(identity in (answer.id, own_number(answer.id)) for answer in self.answers)


class CarefulTransport(httpx2.AsyncBaseTransport):
    """Turns failures and error statuses into a `RefusedError`. Calls `on_doubt` when the session seems to be lost."""

    def __init__(
        self, on_doubt: Callable[[], None], login: Credentials | None = None, *, by_proxy: bool = True
    ) -> None:
        self.secrets = SentSecrets()
        # The login's latest tokens, which the client does not know. Each message is searched for all of them.
        self._tokens = SentSecrets(MAX_TOKENS)
        self.on_doubt = on_doubt
        self._login = login
        self._by_proxy = by_proxy
        self._proxy: str | None = None  # the proxy of the connection, known after the first request
        self.challenge: Challenge | None = None  # the challenge of the latest response, if its status was 401 or 403
        self.unreachable = ""  # why the latest request could not be sent; empty if it was sent
        self._inner: httpx2.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # Compressed data could expand to any size.
        request.headers["accept-encoding"] = "identity"
        await request.aread()
        try:
            response = await self._exchange(request)
        except LoginError as error:
            raise RefusedError(f"its login cannot be used now: {error.reason}") from None
        except (httpx2.LocalProtocolError, ValueError) as error:
            # The request is invalid, so the failure says nothing about the server.
            logger.info("a request to an upstream was not valid HTTP (%s)", type(error).__name__)
            raise RefusedError("the request is not valid HTTP") from None
        except httpx2.TransportError as error:
            logger.info("a request to an upstream could not be sent (%s)", type(error).__name__)
            reason = cause_of(error, is_proxied=self._proxy is not None)
            if reason.endswith(NOT_HTTP):
                raise RefusedError(reason) from None  # the server exists, and may respond to other requests
            self.unreachable = reason
            self.on_doubt()
            raise RefusedError(f"it could not be reached: {reason}", HTTPStatus.BAD_GATEWAY) from None
        status, stream = response.status_code, response.stream
        response.extensions[SECRETS] = self.secrets
        self.unreachable, self.challenge = "", None
        if status in _CHALLENGE_STATUSES:
            self.challenge = _challenge_of(response)
            if self._login is not None:
                self._login.challenge = self.challenge
        if response.headers.get("content-encoding", "").lower() not in ("", "identity"):
            await response.aclose()
            raise RefusedError("it sent a compressed answer, which was not requested", status)
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            await response.aclose()  # otherwise the client would read the whole unneeded body
            location = response.headers.get("location")
            if location is not None and request.url.join(location).copy_with(fragment=None) == request.url:
                raise RefusedError("it redirects the request to the same address", status)
            return httpx2.Response(status, headers=response.headers, content=b"")
        if status < HTTPStatus.BAD_REQUEST:
            if isinstance(stream, httpx2.AsyncByteStream):
                is_single = _media_type(response) != _EVENTS
                response.stream = _CarefulStream(stream, MESSAGE_BYTES if is_single else None)
            return response
        # Report the JSON-RPC messages in the body, or else the status.
        body = b""
        if isinstance(stream, httpx2.AsyncByteStream):
            body = b"".join([chunk async for chunk in _CarefulStream(stream, ERROR_BYTES)])
            await stream.aclose()
        is_challenged = self.challenge is not None and bool(self.challenge.schemes)
        response.request = request
        beginning = "it answered with" if self.challenge is None else "it requires a token or a login:"
        reason = describe_status(response, b"" if is_challenged else body, beginning)
        if self.challenge is not None:
            self.challenge = replace(self.challenge, description=reason)
        is_stream = _media_type(response) == _EVENTS
        texts = re.findall(rb"(?m)^data: ?(.*)$", body)[:MAX_TOGETHER] if is_stream else [body]
        answers = [
            message for text in texts for message in _messages_of(text) if isinstance(message, Response | ErrorResponse)
        ]
        refusal = RefusedError(reason, status, self.challenge, answers)
        # In these cases, the reason is reported instead of the body, which may be meant only for the logged-in user.
        refusal.hides_answers = "retry-after" in response.headers or is_challenged or status == HTTPStatus.UNAUTHORIZED
        raise refusal

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with the login's token, if any, and retry once with a renewed token."""
        login, inner = self._login, self._inner
        if inner is None:
            self._proxy = proxy_of(str(request.url)) if self._by_proxy else None
            inner = self._inner = await open_transport(self._proxy)
        self.secrets.learn(request.headers.items(), str(request.url), self._proxy or "")
        if login is None:
            return await inner.handle_async_request(request)
        header = await login.header()
        for is_last in (False, True):
            if header is not None:
                request.headers["authorization"] = header
                self.secrets.learn([("authorization", header)])
                self._tokens.learn([(_LOGIN, header)])
            response = await inner.handle_async_request(request)
            if is_last or response.status_code not in _CHALLENGE_STATUSES:
                break
            challenge = _challenge_of(response)
            # If the login needs a person, only an existing token can be renewed here, and only if the server does not
            # require more scopes.
            is_renewable = not login.needs_person or (header is not None and not challenge.wants_scopes)
            if not is_renewable or (challenge.status == HTTPStatus.FORBIDDEN and not challenge.wants_scopes):
                break
            login.challenge = challenge
            try:
                new_header = await login.renew(header)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await response.aclose()  # otherwise its connection would never be released
                raise
            if new_header is None:
                break
            await response.aclose()
            header = new_header
        return response

    def without_secrets(self, message: Message) -> Message:
        """Return a message without the login's token.

        If it is an error, remove all of this connection's secrets from it: many people see errors.
        """
        secrets = self._tokens
        match message:
            case ErrorResponse():
                name, content, secrets = "error", message.error, self.secrets
            case Response():
                name, content = "result", message.result
                if content.get("isError"):
                    secrets = self.secrets
            case Request() | Notification():
                name, content = "params", message.params
        if content is None or (secrets is self._tokens and self._login is None):
            return message
        encoded = to_json(content, inf_nan_mode="null")
        if not secrets.found_in(encoded.decode()):
            return message
        if isinstance(message, Response | ErrorResponse) and secrets is self.secrets and len(encoded) > ERROR_BYTES:
            return unusable(message.id or 0, "its error is too long and contains a secret")
        fields = content.items()
        new_content = {
            key if key in _FIELDS else secrets.hide(key): secrets.hide_within(value) for key, value in fields
        }
        return message._replace(**{name: new_content})

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()


def _media_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _challenge_of(response: httpx2.Response) -> Challenge:
    schemes = response.headers.get_list("www-authenticate")
    return Challenge(response.status_code, tuple(scheme[:CHALLENGE_CHARS] for scheme in schemes[:MAX_CHALLENGES]))


class _CarefulStream(httpx2.AsyncByteStream):
    """A response body that ends early, without an error, if the connection is lost or the body is too long."""

    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int | None) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        try:
            async for chunk in self._inner:
                await STDIO_BACKPRESSURE.wait()
                await anyio.lowlevel.checkpoint()  # lets other tasks run, because many chunks may arrive at once
                count += len(chunk)
                if self._max_bytes is not None and count > self._max_bytes:
                    note = "a response from an upstream was longer than %d bytes and was cut off"
                    logger.info(note, self._max_bytes)
                    return
                yield chunk
        except httpx2.TransportError as error:
            logger.info("a response from an upstream was interrupted (%s)", type(error).__name__)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def _careful_client(
    headers: Mapping[str, str], transport: CarefulTransport
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Provide an HTTP client. An error in its context becomes a `NeedsAuthenticationError` or `UnreachableError`.

    It does so if the latest request failed because the server requires a login, or could not be reached.
    """
    # No read timeout: streams may be silent, calls have their own deadlines, and a timeout would end all calls at once.
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None, pool=None)
    try:
        async with httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=transport) as client:
            client.max_redirects = MAX_HOPS
            yield client
    except Exception as error:  # noqa: BLE001 - any error means that there is no connection
        if transport.challenge is not None:
            raise NeedsAuthenticationError(transport.challenge) from None
        raise (UnreachableError(transport.unreachable) if transport.unreachable else error) from None


def _describe_refusal(response: httpx2.Response) -> str:
    """Describe a redirect that is not followed, or another response without a success status."""
    if not response.has_redirect_location:
        return describe_status(response)
    # Drop the query, which may contain a secret.
    target = quoted(re.split(r"[?#]", response.headers["location"])[0], response.extensions.get(SECRETS))
    return f"it redirects the request to another address, and the redirect is not followed: {target}"


class _Writer:
    """Posts each message, and puts responses into the inbox."""

    has_room = True

    def __init__(self, client: httpx2.AsyncClient, url: str, tasks: TaskGroup, inbox: Inbox) -> None:
        self.inbox = inbox
        self._client = client
        self._url = url
        self._tasks = tasks
        # Maps the id of each open request to the scope that cancels it, and to whether its revision is 2026-07-28.
        self._open: dict[RequestId, tuple[anyio.CancelScope, bool]] = {}
        self._newest_id = 0  # the id of the latest request

    def _begin(self, request: Request, headers: Mapping[str, str], *, is_modern: bool) -> None:
        scope = anyio.CancelScope()
        self._open[request.id] = scope, is_modern
        self._newest_id = own_number(request.id)
        self._tasks.start_soon(self._run_request, request, headers, scope)

    async def _run_request(self, request: Request, headers: Mapping[str, str], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                try:
                    await self._exchange(request, headers)
                except RefusedError as refusal:
                    identity, answers = request.id, () if refusal.hides_answers else refusal.answers
                    response = next(
                        (answer._replace(id=identity) for answer in answers if self._is_for(answer, identity)), None
                    )
                    self.inbox.put(response or unusable(identity, refusal.reason, refusal.challenge))
                except Exception as error:  # noqa: BLE001 - an error must not end other requests
                    logger.info("a request to an upstream failed (%s)", type(error).__name__)
                    self.inbox.put(unusable(request.id, cause_of(error)))
        finally:
            del self._open[request.id]

    def _is_for(self, answer: Response | ErrorResponse, identity: RequestId, *, is_stream: bool = False) -> bool:
        """Return whether a message answers this request: its id is the request's, or not that of any other request.

        Usually, only open requests count as other requests. On a stream, all earlier requests count too, because the
        stream may bring a late response to an abandoned request.
        """
        number = own_number(answer.id)
        is_of_another = number in self._open or (is_stream and 0 < number <= self._newest_id)
        return number == identity or not is_of_another

    async def _deliver(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a message that has no response, and wait until it is accepted, at most `ACCEPT_SECONDS`."""
        try:
            with anyio.fail_after(ACCEPT_SECONDS):
                async with self._post(message, headers):
                    pass
        except Exception as error:  # noqa: BLE001 - a lost message must not end the session
            logger.info("an upstream did not accept a message (%s)", type(error).__name__)

    def _post(self, message: Message, headers: Mapping[str, str]) -> AbstractAsyncContextManager[httpx2.Response]:
        content = to_json(fields_of(message), inf_nan_mode="null")
        return stream_within_origin(self._client, "POST", self._url, content=content, headers=headers)

    async def _exchange(self, request: Request, headers: Mapping[str, str]) -> None:
        """Send a request and receive its response. Raises a `RefusedError` if the server refuses it."""
        raise NotImplementedError


@asynccontextmanager
async def streamable_streams(
    url: str, headers: Mapping[str, str], transport: CarefulTransport
) -> AsyncGenerator[tuple[Inbox, StreamableWriter]]:
    async with _careful_client(headers, transport) as client, anyio.create_task_group() as tasks:
        writer = StreamableWriter(client, url, tasks, Inbox(transport.without_secrets), transport.on_doubt)
        try:
            yield writer.inbox, writer
        finally:
            # Shielded, because the server must learn that the session is over even if the task is cancelled.
            with anyio.move_on_after(LEAVING_SECONDS, shield=True):
                await writer.leave()
            writer.inbox.close()
            tasks.cancel_scope.cancel()


@dataclass(slots=True)
class _StreamReading:
    """The state of reading a response or, without `identity`, the session's stream of messages outside of requests."""

    identity: RequestId | None = None  # the id of the request
    count: int = 0  # number of messages read so far
    last_event: str = ""  # the id of the latest event, which is sent to resume the stream after its end
    pause: float = 0.0  # the pause that the server requests before resuming, in seconds
    is_resumed: bool = False
    is_answered: bool = False
    problem: str = "it ended its answer too early"  # why there is no response


class StreamableWriter(_Writer):
    """Speaks Streamable HTTP; messages from the session's stream also go to the inbox."""

    takes_headers = True

    def __init__(
        self, client: httpx2.AsyncClient, url: str, tasks: TaskGroup, inbox: Inbox, on_doubt: Callable[[], None]
    ) -> None:
        super().__init__(client, url, tasks, inbox)
        self._on_doubt = on_doubt
        self._session: str | None = None
        self._version: str | None = None  # the protocol version of the latest message that has one
        self._is_forgotten = False  # whether the server no longer knows the session
        self._refused: dict[RequestId, str] = {}  # why requests were refused, by request id
        self._undecided: set[RequestId] = set()  # the ids of requests that are neither accepted nor refused yet

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message. If it is a request, do not wait until it is accepted."""
        method = "" if isinstance(message, Response | ErrorResponse) else message.method
        self._version = None if method == "initialize" else (headers or {}).get(_VERSION, self._version)
        all_headers, is_modern = {**self._headers(), **(headers or {})}, self._version in MODERN_PROTOCOL_VERSIONS
        if isinstance(message, Request):
            if self._is_forgotten:
                self._refused[message.id] = _SESSION_UNKNOWN
                self._decide(message.id)
                return
            self._undecided.add(message.id)
            self._begin(message, all_headers, is_modern=is_modern)
            return
        if isinstance(message, Notification) and method == "notifications/cancelled":
            scope, is_modern = self._open.get((message.params or {}).get("requestId", ""), (None, is_modern))
            if is_modern:  # closing the stream cancels the request
                if scope is not None:
                    scope.cancel()
                return
            try:
                await self._deliver(message, all_headers)
            finally:
                if scope is not None:
                    scope.cancel()  # frees the request's connection
            return
        if method == "notifications/initialized" and self._session is not None:
            self._tasks.start_soon(self._follow, _StreamReading())
        await self._deliver(message, all_headers)

    async def leave(self) -> None:
        if self._session is not None and not self._is_forgotten:
            with suppress(Exception):
                await request_within_origin(self._client, "DELETE", self._url, headers=self._headers())

    def _headers(self, own: Mapping[str, str] = _POST_HEADERS) -> dict[str, str]:
        session_headers = {_SESSION: self._session, _VERSION: self._version}
        return {**own, **{name: value for name, value in session_headers.items() if value is not None}}

    async def _exchange(self, request: Request, headers: Mapping[str, str]) -> None:
        reading, is_unknown_session = _StreamReading(request.id), False
        try:
            async with self._post(request, headers) as response:
                if request.method == "initialize":
                    self._session = response.headers.get(_SESSION)
                self._decide(request.id)
                if not response.is_success:
                    reading.problem = _describe_refusal(response)
                elif response.status_code == HTTPStatus.ACCEPTED:
                    reading.problem = "it accepted the request without answering it"
                elif _media_type(response) == "application/json":
                    self._receive(await response.aread(), reading)
                elif _media_type(response) == _EVENTS:
                    await self._read(response, reading)
                else:
                    reading.problem = "its answer is neither JSON nor an event stream"
        except RefusedError as refusal:
            is_answered = _SESSION not in headers or refusal.answers_to(request.id)
            if is_answered or not await self._is_session_unknown(refusal.status, headers):
                raise
            self._is_forgotten = is_unknown_session = True
            self._refused[request.id] = f"{_SESSION_UNKNOWN} (HTTP status {refusal.status})"
        finally:
            self._decide(request.id)
        if is_unknown_session:
            # Give the server time to accept or refuse the session's other requests, because the first reported error
            # ends the session.
            await anyio.sleep(ACCEPT_SECONDS)
            self._undecided.clear()
            self._decide(request.id)
            return
        if not reading.is_answered and reading.last_event:
            reading.is_resumed = True
            await anyio.sleep(reading.pause or FIRST_PAUSE_SECONDS)
            await self._follow(reading)
        if not reading.is_answered:
            raise RefusedError(reading.problem)

    def _decide(self, identity: RequestId) -> None:
        """Record that a request was accepted or refused. Once this is known for all requests, report the refusals."""
        self._undecided.discard(identity)
        if not self._undecided:
            refusals, self._refused = self._refused, {}
            for request_id, reason in refusals.items():
                self.inbox.put(unusable(request_id, reason, is_unknown_session=True))

    async def _is_session_unknown(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether a ping confirms that the server has forgotten the session, so the request was not executed."""
        if status in _UNKNOWN_SESSION_STATUSES:
            ping = Request("session", "ping")
            try:
                with anyio.move_on_after(ACCEPT_SECONDS):
                    async with self._post(ping, headers):
                        pass
            except RefusedError as refusal:
                return refusal.status in _UNKNOWN_SESSION_STATUSES and not refusal.answers_to(ping.id)
        return False

    async def _follow(self, reading: _StreamReading) -> None:
        """Reopen the stream of a response, or of messages outside of requests, whenever it ends."""
        pause, refusals, is_known = FIRST_PAUSE_SECONDS, 0, reading.identity is not None
        max_refusals = math.inf if reading.identity is None else MAX_REFUSED
        while refusals < max_refusals:
            began, count = anyio.current_time(), reading.count
            status = await self._open_stream(reading)
            if reading.is_answered:
                return
            refusals = 0 if status == HTTPStatus.OK else refusals + 1
            if HTTPStatus.OK < status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS:
                if reading.identity is None and reading.last_event:
                    reading.last_event = ""  # the server no longer keeps this event
                    continue
                if is_known and await self._is_session_unknown(status, self._headers()):
                    self._is_forgotten = True
                    # Do not end the session while the server may still accept some of its requests.
                    if not self._undecided:
                        self._on_doubt()
                return
            is_known = is_known or status == HTTPStatus.OK
            has_progressed = reading.identity is not None and reading.count > count
            if has_progressed or anyio.current_time() > began + pause:
                pause = FIRST_PAUSE_SECONDS
            # For a pending response, wait as long as the upstream requests, but at least a tenth of `pause`.
            min_pause = pause / 10 if reading.identity is not None and reading.pause else pause
            await anyio.sleep(max(reading.pause, min_pause))
            pause = min(pause * 2, LAST_PAUSE_SECONDS)

    async def _open_stream(self, reading: _StreamReading) -> int:
        headers = self._headers(_GET_HEADERS)
        if reading.last_event:
            headers["last-event-id"] = reading.last_event
        try:
            async with stream_within_origin(self._client, "GET", self._url, headers=headers) as response:
                if response.status_code == HTTPStatus.OK and _media_type(response) == _EVENTS:
                    await self._read(response, reading)
                return response.status_code
        except RefusedError as refusal:
            return refusal.status or HTTPStatus.BAD_GATEWAY
        except Exception as error:  # noqa: BLE001 - a failed stream must not end the session
            logger.info("a stream from an upstream could not be opened (%s)", type(error).__name__)
            return HTTPStatus.BAD_GATEWAY

    async def _read(self, response: httpx2.Response, reading: _StreamReading) -> None:
        try:
            async for event in events_in(response.aiter_raw(), MESSAGE_BYTES):
                if event.id is not None:
                    reading.last_event = event.id
                if event.retry is not None:
                    reading.pause = min(event.retry, MAX_RETRY_MS) / 1000
                if event.data:
                    self._receive(event.data, reading, is_stream=True)
                if reading.is_answered:
                    return
        except OverflowError:
            reading.last_event, reading.problem = "", "its answer is too long, or not an event stream"

    def _receive(self, data: bytes, reading: _StreamReading, *, is_stream: bool = False) -> None:
        messages = _messages_of(data)
        if not messages and reading.problem != _INVALID_MESSAGE:
            reading.problem = _INVALID_MESSAGE
            logger.info("an upstream sent something other than a JSON-RPC message")
        for message in messages:
            reading.count += 1
            identity = reading.identity
            if identity is not None and isinstance(message, Response | ErrorResponse):
                is_own = own_number(message.id) == identity
                if is_own or (not reading.is_resumed and self._is_for(message, identity, is_stream=is_stream)):
                    reading.is_answered = True
                    self.inbox.put(message._replace(id=identity))
                    continue
            self.inbox.put(message)


def _messages_of(data: bytes) -> list[Message]:
    """Return the messages in an event or a response body; none for other content, such as `ping`."""
    try:
        return [read_message(data)]
    except ValueError:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
        return messages_in(text, text.encode())[0]


@asynccontextmanager
async def sse_streams(
    url: str, headers: Mapping[str, str], transport: CarefulTransport
) -> AsyncGenerator[tuple[Inbox, SseWriter]]:
    """Speak the older HTTP+SSE transport: the server sends messages on one stream, and receives messages by POST."""
    inbox = Inbox(transport.without_secrets)

    async def read(response: httpx2.Response, *, task_status: TaskStatus[str]) -> None:
        # The first event says where to post messages.
        has_address = False
        try:
            async for event in events_in(response.aiter_raw(), MESSAGE_BYTES):
                if event.name == "endpoint" and not has_address:
                    address = urljoin(url, event.data.decode("utf-8", "replace"))
                    if urlsplit(address)[:2] != urlsplit(url)[:2]:
                        break
                    has_address = True
                    task_status.started(address)
                elif event.data:
                    for message in _messages_of(event.data):
                        inbox.put(message)
        except Exception as error:  # noqa: BLE001 - any error ends the stream
            logger.info("an upstream did not send an event stream (%s)", type(error).__name__)
        finally:
            inbox.close()
        if not has_address:
            reason = "its stream does not begin with an address on the same server for posting messages"
            raise UnusableAnswerError(reason)

    async with (
        _careful_client(headers, transport) as client,
        stream_within_origin(client, "GET", url, headers=_GET_HEADERS) as response,
        anyio.create_task_group() as tasks,
    ):
        if not response.is_success:
            raise UnusableAnswerError(_describe_refusal(response))
        if _media_type(response) != _EVENTS:
            raise UnusableAnswerError("its answer is not an event stream")
        address = await tasks.start(read, response)
        yield inbox, SseWriter(client, address, tasks, inbox)
        tasks.cancel_scope.cancel()


class SseWriter(_Writer):
    """Speaks the older HTTP+SSE transport. Responses arrive on the stream; a failed request gets an error response."""

    takes_headers = False

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message. If it is a request, do not wait until it is accepted, because some servers delay that."""
        del headers
        if isinstance(message, Request):
            self._begin(message, _POST_HEADERS, is_modern=False)
            return
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            scope, _ = self._open.get((message.params or {}).get("requestId", ""), (None, False))
            if scope is not None:
                scope.cancel()
        await self._deliver(message, _POST_HEADERS)

    async def _exchange(self, request: Request, headers: Mapping[str, str]) -> None:
        async with self._post(request, headers) as response:
            if not response.is_success:
                raise RefusedError(_describe_refusal(response))


@dataclass(slots=True)
class Event:
    name: str = ""
    data: bytes = b""
    id: str | None = None  # empty to forget the previous id
    retry: int | None = None  # milliseconds


async def events_in(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncGenerator[Event]:
    """Yield a stream's events (WHATWG HTML, 9.2), which are always UTF-8. Raises `OverflowError` if one is too long."""
    event: Event | None = None
    line, data, size, is_first, ends_in_cr = bytearray(), list[bytes](), 0, True, False
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE_BYTES):
            await anyio.lowlevel.checkpoint()
            piece = chunk[start : start + PIECE_BYTES].removeprefix(b"\n" if ends_in_cr else b"")
            ends_in_cr = piece.endswith(b"\r")
            first, *other_parts = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            line += first
            for part in other_parts:
                full_line, line[:] = bytes(line), part
                if is_first:
                    is_first, full_line = False, full_line.removeprefix(codecs.BOM_UTF8)
                if not full_line and event is not None:
                    event.data = b"\n".join(data)
                    yield event
                    event, data, size = None, [], 0
                if not full_line or full_line[:1] == b":":
                    continue
                event = event or Event()
                size += len(full_line) + LINE_COST
                name, _, value = full_line.partition(b":")
                value = value.removeprefix(b" ")
                text = value[:MAX_ID_CHARS].decode("utf-8", "replace")
                if name == b"data":
                    data.append(value)
                elif name == b"event":
                    event.name = text
                elif name == b"id" and text.isascii() and text.isprintable() and text.strip().encode() == value:
                    event.id = text  # any other value could not be sent back in a header
                elif name == b"retry" and value.isdigit():
                    event.retry = int(value[:9])
            if size + len(line) > max_bytes:
                raise OverflowError
