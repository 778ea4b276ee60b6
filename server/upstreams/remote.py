"""Upstreams over HTTP: the SDK's client transports, on a client of HTTP that survives what a bad server does.

In those transports an exception of the HTTP library ends the whole connection, with all calls on it. So a request that
cannot be sent is answered here, with an error that fails that request alone, and what the server said by its status is
kept for people.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskStatus
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

logger = logging.getLogger(__name__)

SILENCE_SECONDS = 7 * 24 * 3600.0
"""An SSE stream may be silent this long; a call has its own deadline."""

CONNECT_SECONDS = 30.0
"""How long one connection over TCP and TLS, and sending a request over it, may take."""

LEAVING_SECONDS = 1.0
"""How long a server may take to hear that a session ends."""

_LOCKED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_SESSION = "mcp-session-id"


class NeedsAuthenticationError(Exception):
    """The server answered 401 or 403."""


class UnreachableError(Exception):
    """There is nobody at the address, or no way to it."""


@dataclass(slots=True)
class _Impression:
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
        if self.is_locked or (status == HTTPStatus.NOT_FOUND and _SESSION in request.headers):
            self.on_doubt()

    def explained(self, error: Exception) -> Exception:
        """What an error means, as far as it is known."""
        if self.is_locked:
            return NeedsAuthenticationError()
        return UnreachableError() if self.is_unreachable else error


class _CarefulTransport(httpx2.AsyncBaseTransport):
    """A transport that fails a request by an answer instead of an exception."""

    def __init__(self, impression: _Impression) -> None:
        self._impression = impression
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            logger.info("a request to an upstream could not be sent (%s)", type(error).__name__)
            self._impression.is_unreachable = True
            self._impression.on_doubt()
            return httpx2.Response(HTTPStatus.BAD_GATEWAY, request=request)
        self._impression.note(request, response.status_code)
        stream = response.stream
        if isinstance(stream, httpx2.AsyncByteStream):
            response.stream = _CarefulStream(stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CarefulStream(httpx2.AsyncByteStream):
    """A body that ends where its connection breaks."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
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
    impression = _Impression(on_doubt)
    # No read limit here: a call has its own deadline, and a limit of the client would end all calls at once.
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    transport = _CarefulTransport(impression)
    try:
        async with (
            httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=transport) as client,
            _ended_in_order(streamable_http_client(url, http_client=client, max_sse_event_size=None)) as streams,
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


@asynccontextmanager
async def sse_streams(url: str, headers: Mapping[str, str], on_doubt: Callable[[], None]) -> AsyncGenerator[Any]:
    """Speak the older transport with a stream of its own.

    Raises:
        NeedsAuthenticationError: It lets nobody in.
        UnreachableError: There is nobody.
    """
    impression = _Impression(on_doubt)

    def client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        transport = _CarefulTransport(impression)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, transport=transport)

    try:
        async with sse_client(
            url, headers=dict(headers), sse_read_timeout=SILENCE_SECONDS, httpx_client_factory=client
        ) as streams:
            yield streams
    except Exception as error:  # noqa: BLE001 - whatever it is, it means that there is no connection
        raise impression.explained(error) from None
