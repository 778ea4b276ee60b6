"""MCP over HTTP: Streamable HTTP at `/mcp`, the older SSE transport at `/sse` and `/messages/`, on one port.

From the start of the web server to its end in order, and what is where.
"""

from __future__ import annotations

import logging
import math
import socket
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.principals import principal_of
from server.transports.http_options import LOOPBACK_NAMES, HttpOptions
from server.transports.http_requests import (
    OPEN_REQUEST,
    PostedRequests,
    claim_ids,
)
from server.transports.http_sessions import MOST_SESSIONS, BoundedSessions, session_of
from server.transports.slow_clients import ClientConnection
from server.transports.sse import SseSessions, named_session
from server.transports.token_check import SEND_HEADER, for_known, metadata_routes, refusal_response
from tools.permissions.rights import ALL_RIGHTS

logger = logging.getLogger(__name__)

LAST_SECONDS = 2  # how long after the time of grace connections are kept whose clients take in nothing
MOST_CONNECTIONS = 4_000
"""When there are more, the one that has been idle for longest is ended; if none is idle, the new one gets 503."""


class WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers: those end the process before our upstreams are ended."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(
    server: Server[Any],
    options: HttpOptions,
    listener: socket.socket,
    stopping: anyio.Event,
    *,
    is_ready: Callable[[], bool],
    descriptors: int,
    pages: Sequence[Route] = (),
    metrics: Callable[[], Awaitable[str]] | None = None,
    on_refusal: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until `stopping` is set; then go on for as long as a balancer may take to see it, and end in order.

    Half of the `descriptors` that the system allows us are left for what requests need. `pages` are for people, who
    show no token. `on_refusal` is told the status of each refusal.
    """
    http = options.http
    app = OpenRequests(
        http_app(server, options, lambda: is_ready() and not stopping.is_set(), pages=pages, metrics=metrics),
        stopping,
        on_refusal,
    )
    config = uvicorn.Config(
        app,
        http=ClientConnection,
        ssl_certfile=http.tls_cert,
        ssl_keyfile=http.tls_key,
        limit_concurrency=min(MOST_CONNECTIONS, descriptors // 2),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=math.ceil(http.grace / 1000) + LAST_SECONDS,
        ws="none",
    )
    paths = "/mcp and /sse" if options.with_streamable else "/sse"
    scheme = "https" if http.tls_cert else "http"
    address = f"{scheme}://{options.host_in_urls}:{listener.getsockname()[1]}"
    # Said whatever the log level is: a person who starts a server has to know where it is, and whether it is open.
    whom = "clients that show a token" if options.is_closed else "every client, without a token"
    sys.stderr.write(f"coretools-mcp: serving MCP at {address}, paths {paths}, to {whom}\n")
    sys.stderr.flush()
    if not http.is_loopback:
        if http.tls_cert is None:
            logger.warning("tokens and all that clients say travel unencrypted; name a certificate with --tls-cert")
        if http.host in {"0.0.0.0", "::"} and not http.allowed_hosts:  # noqa: S104 - compared, not bound
            logger.warning(
                "requests for the names of this machine are refused; name those that clients use in http.allowedHosts"
            )
    web = WebServer(config)

    async def stop() -> None:
        await stopping.wait()
        await anyio.sleep(http.drain / 1000)
        web.should_exit = True
        await anyio.sleep(http.grace / 1000)
        app.end()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await web.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


class OpenRequests:
    """An application whose open requests can be ended: streams, and calls that take long.

    The web server would cancel them too, but breaks their connections off and logs each as an error. Once the server
    is `stopping`, no connection is kept for another request: whoever has it would send one into its end. `on_refusal`
    is told the status of each answer that is a refusal.
    """

    def __init__(self, app: ASGIApp, stopping: anyio.Event, on_refusal: Callable[[int], None]) -> None:
        self._app = app
        self._stopping = stopping
        self._on_refusal = on_refusal
        self._open: set[anyio.CancelScope] = set()

    def end(self) -> None:
        for request in tuple(self._open):
            request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_head = has_end = False

        async def watched(message: Message) -> None:
            nonlocal has_head, has_end
            # Who asks whether the server is ready is refused nothing.
            if not has_head and message["status"] >= HTTPStatus.BAD_REQUEST and scope["path"] != "/readyz":
                self._on_refusal(message["status"])
            has_head = True
            has_end = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start" and self._stopping.is_set():
                kept = [each for each in message.get("headers", ()) if each[0].lower() != b"connection"]
                message["headers"] = [*kept, (b"connection", b"close")]
            await send(message)

        with anyio.CancelScope() as request:
            scope[OPEN_REQUEST] = request
            self._open.add(request)
            try:
                await self._app(scope, receive, watched)
            finally:
                self._open.discard(request)
        if request.cancelled_caught and not has_end:
            if not has_head:
                status = HTTPStatus.SERVICE_UNAVAILABLE
                await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})


def http_app(
    server: Server[Any],
    options: HttpOptions,
    is_ready: Callable[[], bool],
    most_sessions: int = MOST_SESSIONS,
    pages: Sequence[Route] = (),
    metrics: Callable[[], Awaitable[str]] | None = None,
) -> Starlette:
    """Both transports as one ASGI application, and whether it works, for whoever watches over it."""

    async def healthz(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def readyz(_request: Request) -> JSONResponse:
        ready = is_ready()
        return JSONResponse({"status": "ready" if ready else "starting or stopping"}, 200 if ready else 503)

    async def leads_nowhere(request: Request, error: Exception) -> Response:
        """What is answered where no route is, or none for this method."""
        if options.with_streamable:
            routes = "MCP clients connect to /mcp (Streamable HTTP) or to /sse (SSE)"
        else:
            routes = "MCP clients connect to /sse (SSE); only --transport http serves /mcp (Streamable HTTP)"
        more = f". There, {SEND_HEADER}" if options.tokens and options.issuer is None else ""
        status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
        path = quote(request.url.path[:100])
        what = request.method if status == HTTPStatus.METHOD_NOT_ALLOWED else "MCP server"
        return refusal_response(status, f"There is no {what} at '{path}': {routes}{more}.", headers)

    # Host and Origin lists, stated for both transports: neither has safe defaults for every host.
    http, names = options.http, dict.fromkeys((*LOOPBACK_NAMES, options.host_in_urls))
    schemes = ("http", "https") if http.tls_cert else ("http",)
    public = (urlsplit(http.public_url).netloc,) if http.public_url is not None else ()
    security = TransportSecuritySettings(
        # Without a port where it is the usual one.
        allowed_hosts=[*names, *(f"{name}:*" for name in names), *public, *http.allowed_hosts],
        allowed_origins=[*(f"{scheme}://{name}:*" for scheme in schemes for name in names), *http.allowed_origins],
    )
    server.middleware.insert(0, claim_ids)
    sse = SseSessions(server, SseServerTransport("/messages/", security, options.max_body_bytes))
    posted = PostedRequests(sse.post, named_session, security, options.max_body_bytes)
    connected = for_known(sse, options)
    routes: list[Route] = [
        Route("/healthz", endpoint=healthz, methods=["GET"]),
        Route("/readyz", endpoint=readyz, methods=["GET"]),
        Route("/sse", endpoint=connected, methods=["GET"]),
        Route("/messages", endpoint=for_known(posted, options)),
        *(metadata_routes(options.issuer) if options.issuer is not None else ()),
        *pages,
    ]
    if metrics is not None:

        async def show_metrics(request: Request) -> Response:
            # Pages of others, whose names lead here, read nothing.
            refusal = await TransportSecurityMiddleware(security).validate_request(request, is_post=False)
            if (principal := principal_of(request)) is not None and principal.rights != ALL_RIGHTS:
                # They name servers and tools, of which it may be given some alone.
                said = "Metrics are for a token of http.tokens without a workspace, a profile or rules of its own."
                refusal = refusal or refusal_response(HTTPStatus.FORBIDDEN, said, None)
            return refusal or Response(await metrics(), media_type="text/plain; version=0.0.4")

        route = Route("/metrics", endpoint=show_metrics, methods=["GET"])
        route.app = for_known(route.app, options)
        routes.append(route)
    answers = {404: leads_nowhere, 405: leads_nowhere}
    if not options.with_streamable:
        return _Application(routes=routes, exception_handlers=answers)
    sessions = StreamableHTTPSessionManager(
        server,
        security_settings=security,
        max_request_body_size=options.max_body_bytes,
        session_idle_timeout=http.session_idle / 1000,
        # Ours is the limit; each connection may be opening one more.
        max_sessions=most_sessions + MOST_CONNECTIONS,
    )
    bounded = BoundedSessions(StreamableHTTPASGIApp(sessions), most_sessions, http.session_idle / 1000)
    mcp = for_known(PostedRequests(bounded, session_of, security, options.max_body_bytes), options)
    routes.append(Route("/mcp", endpoint=mcp))
    return _Application(mcp, sessions, routes=routes, exception_handlers=answers)


class _Application(Starlette):
    """Starlette without its redirects, and with a short way to `/mcp`.

    A slash at the end of a path is passed over instead: a redirect is not followed by all, leads to whatever host the
    request names, and past a proxy's TLS. Finding the way to `/mcp` costs a thirtieth of a small call.
    """

    def __init__(
        self, mcp: ASGIApp | None = None, sessions: StreamableHTTPSessionManager | None = None, **options: Any
    ) -> None:
        super().__init__(lifespan=None if sessions is None else lambda _: sessions.run(), **options)
        self.router.redirect_slashes = False
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope["path"] = scope["path"].rstrip("/") or "/"
        if self._mcp is not None and scope["type"] == "http" and scope["path"] == "/mcp":
            await self._mcp(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
