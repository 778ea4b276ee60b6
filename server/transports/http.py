"""MCP over HTTP: Streamable HTTP at `/mcp`, the older SSE transport at `/sse` and `/messages/`, on one port."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from server.transports.listening import LOOPBACK_NAMES, HttpOptions

logger = logging.getLogger(__name__)

GRACE_SECONDS = 3
"""How long open responses may go on after SIGTERM; a stream that never ends is cut then."""


class _WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers: those end the process before our upstreams are ended."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to the one who runs us."""
        yield


async def serve_http(server: Server[Any], options: HttpOptions, listener: socket.socket, stopping: anyio.Event) -> None:
    """Serve until `stopping` is set; then uvicorn ends in order and closes what is open."""
    app = http_app(server, options)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=GRACE_SECONDS, ws="none"
    )
    port = listener.getsockname()[1]
    paths = "/mcp and /sse" if options.with_streamable else "/sse"
    host = f"[{options.host}]" if ":" in options.host else options.host
    # Said whatever the log level is: a person who starts a server has to know where it is.
    sys.stderr.write(f"coretools-mcp: serving MCP at http://{host}:{port}, paths {paths}\n")
    sys.stderr.flush()
    web = _WebServer(config)

    async def stop() -> None:
        await stopping.wait()
        web.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await web.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


def _security(options: HttpOptions) -> TransportSecuritySettings:
    """Host and Origin lists, stated for both transports: neither has safe defaults for every host."""
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in LOOPBACK_NAMES] + list(options.allowed_hosts),
        allowed_origins=[f"http://{name}:*" for name in LOOPBACK_NAMES] + list(options.allowed_origins),
    )


def http_app(server: Server[Any], options: HttpOptions) -> Starlette:
    """Both transports as one ASGI application."""
    sse = SseServerTransport("/messages/", _security(options), options.max_body_bytes)
    routes = [
        Route("/sse", endpoint=_SseEndpoint(server, sse), methods=["GET"]),
        Mount("/messages", app=sse.handle_post_message),
    ]
    if not options.with_streamable:
        return Starlette(routes=routes)
    return server.streamable_http_app(
        transport_security=_security(options),
        max_request_body_size=options.max_body_bytes,
        session_idle_timeout=options.session_idle_seconds,
        custom_starlette_routes=routes,  # pyright: ignore[reportArgumentType] - a Mount is as good as a Route there
    )


class _SseEndpoint:
    """One SSE connection is one run of the server."""

    def __init__(self, server: Server[Any], transport: SseServerTransport) -> None:
        self._server = server
        self._transport = transport

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            async with self._transport.connect_sse(scope, receive, send) as (read_stream, write_stream):
                options = self._server.create_initialization_options()
                await self._server.run(read_stream, write_stream, options)
        except ValueError:
            # The request was refused and answered (Host or Origin); the SDK reports that by this exception too.
            logger.info("an SSE connection was refused")
