"""Upstreams over HTTP: a client of HTTP that survives what a bad server does, and Streamable HTTP on it.

In the SDK's transport an exception of the HTTP library ends the whole connection, with all calls on it. So a request
that cannot be sent is answered here, with an error that fails that request alone; and what the server said by its
status, or by an answer that is none, is told in words of ours.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskStatus
from mcp.client.streamable_http import streamable_http_client

from server.json_rpc import Failure, as_mapping, fields_of, read_message
from server.transports.lines import STDIO_BACKPRESSURE
from server.upstreams.wire.peer import unusable
from server.upstreams.wire.sdk_streams import MESSAGE_BYTES, sdk_streams
from tools.contract.threads import lend_threads

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
"""How long one connection over TCP and TLS, and sending a request over it, may take."""

NOTE_SECONDS = 10.0
"""How long a server may take to accept what has no answer (ours). What comes after it waits for that."""

ERROR_BYTES = 1 << 20
"""So much is read at most of what a server says beside a status that means an error (ours)."""

LEAVING_SECONDS = 1.0
"""How long a server may take to hear that a session ends."""

_LOCKED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_SESSION = "mcp-session-id"

_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":\d+,"method":')
"""How the SDK begins a request; what begins otherwise is looked at as a whole."""


class NeedsAuthenticationError(Exception):
    """The server answered 401 or 403."""


class UnreachableError(Exception):
    """There is nobody at the address, or no way to it."""


@dataclass(slots=True)
class Impression:
    """What a server has shown of itself.

    Args:
        on_doubt: Called when the session seems to be gone.
        is_locked: It lets nobody in.
        is_unreachable: The latest request could not be sent.
    """

    on_doubt: Callable[[], None]
    is_locked: bool = False
    is_unreachable: bool = False

    def note(self, request: httpx2.Request, status: int) -> None:
        """Note how a request was answered."""
        self.is_unreachable = False
        self.is_locked = status in _LOCKED
        if request.method != "POST":
            return  # a server may have no stream of its own
        if self.is_locked or (status == HTTPStatus.NOT_FOUND and _SESSION in request.headers):
            self.on_doubt()

    def explained(self, error: Exception) -> Exception:
        """What an error means, as far as it is known."""
        if self.is_locked:
            return NeedsAuthenticationError()
        return UnreachableError() if self.is_unreachable else error


class CarefulTransport(httpx2.AsyncBaseTransport):
    """A transport that fails a request by an answer instead of an exception.

    Args:
        impression: Is told how requests are answered.
    """

    def __init__(self, impression: Impression) -> None:
        self._impression = impression
        lend_threads()
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # What is packed could be unpacked to any size.
        request.headers["accept-encoding"] = "identity"
        await request.aread()
        try:
            with anyio.fail_after(NOTE_SECONDS if _has_no_answer(request) else None):
                response = await self._inner.handle_async_request(request)
        except TimeoutError:
            logger.info("an upstream did not accept in time what has no answer")
            return _refused(request, "it did not accept this in time")
        except (httpx2.LocalProtocolError, ValueError) as error:
            # The fault of this request: nothing is known of the server by it.
            logger.info("a request to an upstream was not fit to be sent (%s)", type(error).__name__)
            return _refused(request, "what was to be sent is not allowed in HTTP")
        except httpx2.TransportError as error:
            logger.info("a request to an upstream could not be sent (%s)", type(error).__name__)
            self._impression.is_unreachable = True
            self._impression.on_doubt()
            return _refused(request, "it could not be reached")
        self._impression.note(request, response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _refused(request, "what it sent is packed, which was not asked for")
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            return await _failed(request, response)
        stream = response.stream
        if isinstance(stream, httpx2.AsyncByteStream):
            is_one = not response.headers.get("content-type", "").startswith("text/event-stream")
            response.stream = _CarefulStream(stream, MESSAGE_BYTES if is_one else None)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _has_no_answer(request: httpx2.Request) -> bool:
    """Whether an HTTP request carries a notification, or an answer to a question."""
    if request.method != "POST" or _REQUEST.match(request.content):
        return False
    return not {"id", "method"} <= as_mapping(json.loads(request.content)).keys()


async def _failed(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """A status that means an error: with what the server says in JSON-RPC, else with what the status says."""
    status, stream = response.status_code, response.stream
    said = b""
    if isinstance(stream, httpx2.AsyncByteStream):
        said = b"".join([chunk async for chunk in _CarefulStream(stream, ERROR_BYTES)])
        await stream.aclose()
    try:
        is_told = isinstance(read_message(said), Failure)
    except ValueError:
        is_told = False
    if is_told:
        return httpx2.Response(status, headers={"content-type": "application/json"}, content=said, request=request)
    why = f"it answered with HTTP status {status}"
    if status in _LOCKED:
        why = f"it lets nobody in without a token or a log-in (HTTP status {status})"
    return _refused(request, why, status)


def _refused(request: httpx2.Request, why: str, status: int = HTTPStatus.BAD_GATEWAY) -> httpx2.Response:
    """An answer that fails its request alone."""
    sent = as_mapping(json.loads(request.content)) if request.method == "POST" else {}
    error = unusable(sent.get("id", 0), why)
    return httpx2.Response(status, json=fields_of(error), request=request)


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
async def streamable_streams(url: str, headers: Mapping[str, str], on_doubt: Callable[[], None]) -> AsyncGenerator[Any]:
    """Speak Streamable HTTP.

    Raises:
        NeedsAuthenticationError: It lets nobody in.
        UnreachableError: There is nobody.
    """
    impression = Impression(on_doubt)
    # No read limit here: a call has its own deadline, and a limit of the client would end all calls at once.
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    transport = CarefulTransport(impression)
    try:
        async with (
            httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=transport) as client,
            sdk_streams(
                _ended_in_order(streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_BYTES))
            ) as streams,
        ):
            yield streams
    except Exception as error:  # noqa: BLE001 - whatever it is, it means that there is no connection
        raise impression.explained(error) from None


@asynccontextmanager
async def _ended_in_order(transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
    """A transport that is left in order also by a task that is cancelled: so the server hears that the session ends."""
    leaving, left = anyio.Event(), anyio.Event()
    shield = anyio.CancelScope(shield=True)

    async def hold(*, task_status: TaskStatus[Any]) -> None:
        try:
            with shield:
                async with transport as streams:
                    task_status.started(streams)
                    await leaving.wait()
        finally:
            left.set()

    async with anyio.create_task_group() as tasks:
        streams = await tasks.start(hold)
        try:
            yield streams
        finally:
            leaving.set()
            with anyio.move_on_after(LEAVING_SECONDS, shield=True):
                await left.wait()
            shield.cancel()
