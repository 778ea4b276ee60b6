"""A transport that counts what comes over its connection, framing included, and ends it at a limit.

What a library hands on is less than what has come: interim answers, chunks of one byte and their extensions cost work
and carry no content.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import httpcore
import httpx

from tools.web.address_guard import WebRules

READ_BYTES = 1 << 14
"""Read at a time; as many interim answers as fit in there hold the event loop for some 20 milliseconds."""

FRAMING_BYTES = 512 << 10
"""Bytes of an answer's body that are no content of it: the sizes and the ends of its chunks. A page of 10 MB in chunks
of 128 bytes has as many. Chunks of one byte use them up within a second or two of work, and a page of these is none."""


class TooManyBytesError(Exception):
    """More has come than an answer may have."""


class Meter:
    """What may come over one connection.

    Args:
        rules: Limits.
    """

    def __init__(self, rules: WebRules) -> None:
        self._left = rules.header_bytes

    def note(self, size: int) -> None:
        """Count what has come.

        Raises:
            TooManyBytesError: It is too much.
        """
        if self._left <= 0:
            raise TooManyBytesError
        self._left -= size

    def allow_content(self) -> None:
        """From here on it is content that comes, in its framing."""
        self._left += FRAMING_BYTES + READ_BYTES

    def give_back(self, size: int) -> None:
        """What has come turned out to be content; how much of that may come is for others to say."""
        self._left += size


class MeteredTransport(httpx.AsyncHTTPTransport):
    """Makes connections of its own, keeps none of them, and takes nothing from the environment.

    Args:
        trust: TLS settings.
        meter: Counts what comes.
    """

    def __init__(self, trust: ssl.SSLContext, meter: Meter) -> None:
        super().__init__(verify=trust, trust_env=False)
        self._meter = meter
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust, max_keepalive_connections=0, network_backend=_Network(meter)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the body of its answer is counted as content."""
        answer = await super().handle_async_request(request)
        answer.stream = _Content(cast("httpx.AsyncByteStream", answer.stream), self._meter)
        return answer


class _Content(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._meter.give_back(len(piece))
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Network(httpcore.AsyncNetworkBackend):
    def __init__(self, meter: Meter) -> None:
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
        self._meter = meter

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is the library's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self._meter)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as above
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._meter.note(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._meter)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
