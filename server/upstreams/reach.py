"""How an upstream is reached: over stdio by the broker, else by the SDK's client transports with our headers."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from server.settings import UpstreamSettings
from server.settings.upstreams import ABOVE_VARIABLE, servers_above

if TYPE_CHECKING:
    from tools.execution.process import ProcessStarter

INHERITED = (
    "PATH", "HOME", "USER", "LANG", "SHELL", "TERM", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
"""What a child gets of our environment, beside XDG_* and what its entry names."""

SILENCE_SECONDS = 7 * 24 * 3600.0
"""An SSE stream may be silent this long; a call has its own deadline."""

Message = SessionMessage | Exception
Streams = tuple[ReadStream[Message], WriteStream[SessionMessage]]
Reach = Callable[[], AbstractAsyncContextManager[Streams]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to an upstream.

    Args:
        name: `stdio`, `http` or `sse`.
        reach: Opens the streams.
    """

    name: str
    reach: Reach


def ways_to(alias: str, entry: UpstreamSettings, starter: ProcessStarter) -> list[Way]:
    """The ways to try, in order: a bare `url` means Streamable HTTP first, then SSE.

    Args:
        alias: The upstream's name in our configuration.
        entry: How to reach it.
        starter: Starts its program, where it has one.
    """
    url, headers = entry.endpoint or "", entry.headers
    http = Way("http", lambda: _streamable(url, headers))
    sse = Way("sse", lambda: _sse(url, headers))
    match entry.transport:
        case "http":
            return [http]
        case "sse":
            return [sse]
        case "detect":
            return [http, sse]
        case _:
            return [Way("stdio", lambda: _child(alias, entry, starter))]


def _child(alias: str, entry: UpstreamSettings, starter: ProcessStarter) -> AbstractAsyncContextManager[Any]:
    environment = _environment(entry)
    if sys.platform == "win32":
        # There is no broker.
        from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415

        parameters = StdioServerParameters(
            command=entry.command or "",
            args=list(entry.args),
            env=environment,
            cwd=entry.cwd,
            encoding_error_handler="replace",
        )
        return stdio_client(parameters, errlog=sys.stderr)
    from server.upstreams.stdio import UpstreamProgram, stdio_streams  # noqa: PLC0415 - with the first upstream

    program = UpstreamProgram(entry.command or "", tuple(entry.args), entry.cwd, environment)
    return stdio_streams(alias, program, starter)


def _environment(entry: UpstreamSettings) -> dict[str, str]:
    """All that a child gets of ours, and what its entry sets."""
    environment = {name: os.environ[name] for name in (*INHERITED, *entry.inherit_env) if name in os.environ}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    environment[ABOVE_VARIABLE] = str(servers_above(os.environ) + 1)
    return environment | dict(entry.env)


@asynccontextmanager
async def _streamable(url: str, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    # No read limit here: a call has its own deadline, and a limit of the client would end all calls at once.
    timeout = httpx2.Timeout(30.0, read=None)
    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=timeout) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=None) as streams,
    ):
        yield streams


def _sse(url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Any]:
    return sse_client(url, headers=dict(headers), sse_read_timeout=SILENCE_SECONDS)


@asynccontextmanager
async def watched(reach: Reach, on_end: Callable[[], None]) -> AsyncGenerator[Streams]:
    """Open the streams, and tell when the upstream's side has ended: the SDK itself says nothing while idle."""
    async with reach() as (read_stream, write_stream):
        yield _WatchedRead(read_stream, on_end), write_stream


class _WatchedRead:
    """A read stream that reports its end."""

    def __init__(self, inner: ReadStream[Message], on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The sender's context, where the transport carries one."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Message:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)
