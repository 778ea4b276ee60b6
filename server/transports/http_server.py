"""MCP over HTTP on one port: Streamable HTTP at `/mcp`, and the older SSE transport at `/sse` and `/messages/`.

The connections of clients that are slow, silent or gone are closed in bounded time and at bounded cost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, ClassVar, Protocol, cast
from urllib.parse import quote
from weakref import WeakKeyDictionary

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from server.clients.client_request import principal_of
from server.protocol.json_rpc import error_of
from server.protocol.request_table import RequestTable
from server.protocol.revisions import header_of, is_of_handshake_era
from server.transports.http_gate import SEND_HEADER, HttpGate, metadata_routes
from server.transports.http_messages import OPEN_REQUEST, ROOT_PATH
from server.transports.http_options import HttpOptions
from server.transports.legacy_sse import SseSessions
from server.transports.streamable_http import MAX_SESSIONS, Sessions, StreamableHttp
from tools.permissions.permission_policy import ALL_RIGHTS

logger = logging.getLogger(__name__)

ROOT_PATHS = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)*/?")
LAST_SECONDS = 2  # how long connections with unread data are kept after the grace period
MAX_CONNECTIONS = 4_000
"""The maximum number of connections. When it is reached, the longest-idle connection is closed; if none is idle,
requests get 503.
"""


class Application(Protocol):
    """The application to serve."""

    table: RequestTable
    metrics: Callable[[], Awaitable[str]] | None  # returns the metrics as text; `None` if metrics are off
    on_http_refusal: Callable[[int], None]  # called with the status of each refusal

    @property
    def pages(self) -> Sequence[Route]: ...  # the pages for browsers, which need no token

    @property
    def is_settled(self) -> bool: ...  # whether the first attempt to connect to each upstream has ended

    async def schema_with_headers(self, tool: str) -> Mapping[str, Any] | None:
        """Return a tool's schema if clients must repeat some of its arguments in HTTP headers, otherwise `None`."""
        ...


class WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers, which would terminate the process before its upstreams are stopped."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(
    app: Application, options: HttpOptions, listener: socket.socket, stopping: anyio.Event, descriptors: int
) -> None:
    """Serve until `stopping` is set, give load balancers time to notice, and shut down gracefully.

    Half of the `descriptors` that the system allows are kept free for handling requests.
    """
    http = options.http
    web_app = WebApp(app, options, lambda: app.is_settled and not stopping.is_set())
    requests = OpenRequests(web_app, stopping, app.on_http_refusal)
    config = uvicorn.Config(
        requests,
        http=ClientConnection,
        ssl_certfile=http.tls_cert,
        ssl_keyfile=http.tls_key,
        limit_concurrency=min(MAX_CONNECTIONS, descriptors // 2),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=math.ceil(http.grace / 1000) + LAST_SECONDS,
        ws="none",
        proxy_headers=False,  # take the client's address from the connection, not from headers
    )
    paths = "/mcp and /sse" if options.with_streamable else "/sse"
    scheme = "https" if http.tls_cert else "http"
    address = f"{scheme}://{options.host_in_urls}:{listener.getsockname()[1]}"
    # Print this at any log level: the person who starts a server must know its address, and whether it needs a token.
    audience = "clients that send a token" if options.needs_token else "every client, without a token"
    sys.stderr.write(f"coretools-mcp: serving MCP at {address}, paths {paths}, to {audience}\n")
    sys.stderr.flush()
    if not http.is_loopback:
        if http.tls_cert is None:
            logger.warning("tokens and all other data travel unencrypted; for HTTPS, set a certificate with --tls-cert")
        if http.host in {"0.0.0.0", "::"} and not http.allowed_hosts:  # noqa: S104 - compared, not bound
            logger.warning(
                "requests whose Host header has this machine's name or network address are refused; add the names and "
                "addresses that clients use to http.allowedHosts"
            )
    web = WebServer(config)

    async def stop() -> None:
        await stopping.wait()
        await anyio.sleep(http.drain / 1000)
        web.should_exit = True
        await anyio.sleep(http.grace / 1000)
        requests.end()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await web.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


class ClientConnection(H11Protocol):
    """One connection: uvicorn's protocol with more time limits. uvicorn limits only the pause between requests.

    If there are too many connections, the longest-idle one is closed. uvicorn would keep idle connections and refuse
    new requests, so anyone could shut out all others by opening enough connections, even without a token.
    """

    _idle: ClassVar[WeakKeyDictionary[ServerState, OrderedDict[ClientConnection, None]]] = WeakKeyDictionary()
    """The idle connections of each server, longest-idle first."""

    # The time limit for a request's head, from the start of the connection or from the first byte after a response
    head_seconds: ClassVar[float] = 15.0
    body_seconds: ClassVar[float] = 60.0  # the time limit for a request's body, from the end of its head
    unread_seconds: ClassVar[float] = 30.0  # how long a client may leave data unread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle_here = self._idle.setdefault(self.server_state, OrderedDict())
        self._latest: RequestResponseCycle | None = None
        self._awaits_body = False
        self._sender_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._mark_idle()
        # Keep the number of connections below the limit at which uvicorn refuses requests.
        limit, idle = self.limit_concurrency, self._idle_here
        while limit is not None and len(self.connections) >= limit and (longest_idle := next(iter(idle))) is not self:
            del idle[longest_idle]
            # Remove the connection here, because its `connection_lost` is called only later.
            self.connections.discard(longest_idle)
            longest_idle.transport.abort()
        # This option lets the system close a connection whose other end receives nothing or has vanished. Otherwise, a
        # small amount of unread data could stay in the system's buffer unnoticed. The option is looked up by name,
        # because type stubs have it only on Linux. Other systems apply their own limit of several minutes.
        option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            milliseconds = int(self.unread_seconds * 1000)
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, milliseconds)
        self._limit_sending(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_here.pop(self, None)
        self._limit_sending(None)
        self._stop_reader_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive data. A request's head starts with the first byte after a response."""
        super().data_received(data)
        # Check after parsing the data, because most requests arrive in one piece and need no limit.
        if self._sender_timer is None and self._is_between_requests():
            self._limit_sending(self.head_seconds)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride] - uvicorn's method always closes
        """Handle the end of a client's input: the client has closed its side of the connection, or is gone.

        The client may still be reading, so complete requests are answered. This does not apply if closing the
        connection means that the response is unwanted, as in the 2026-07-28 revision and for endless streams.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.more_body or cycle.scope["method"] != "POST":
            return False
        # TLS connections cannot be half-open.
        if self.scheme == "https" or not is_of_handshake_era(cycle.scope["headers"]):
            return False
        cycle.keep_alive = False
        return True

    def handle_events(self) -> None:
        super().handle_events()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return
        if cycle is not self._latest:
            self._latest = cycle
            self._idle_here.pop(self, None)
            self._awaits_body = cycle.more_body
            self._limit_sending(self.body_seconds if cycle.more_body else None)
        elif self._awaits_body and not cycle.more_body:
            self._awaits_body = False
            self._limit_sending(None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_between_requests() and not self.transport.is_closing():
            self._mark_idle()

    def pause_writing(self) -> None:
        """Start the time limit for a client that reads more slowly than data is written."""
        self.flow.pause_writing()
        self._stop_reader_timer()
        self._reader_timer = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_reader_timer()
        self.flow.resume_writing()

    def _mark_idle(self) -> None:
        self._idle_here[self] = None
        self._idle_here.move_to_end(self)

    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _limit_sending(self, seconds: float | None) -> None:
        """Close the connection after `seconds`; `None` means never. Each call replaces the previous limit."""
        if self._sender_timer is not None:
            self._sender_timer.cancel()
        self._sender_timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None


class OpenRequests:
    """An application that can end its open requests, which are streams and long calls.

    The web server would cancel them too, but would reset their connections and log each as an error. Once the server is
    `stopping`, no connection is kept alive, because the client's next request on it would be lost. `on_refusal` is
    called with the status of each refusal.
    """

    def __init__(self, web_app: ASGIApp, stopping: anyio.Event, on_refusal: Callable[[int], None]) -> None:
        self._web_app = web_app
        self._stopping = stopping
        self._on_refusal = on_refusal
        self._open: set[anyio.CancelScope] = set()

    def end(self) -> None:
        for request in tuple(self._open):
            request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._web_app(scope, receive, send)
            return
        has_head = has_end = False

        async def watched_send(message: Message) -> None:
            nonlocal has_head, has_end
            # A failed readiness check does not count as a refusal.
            if not has_head and message["status"] >= HTTPStatus.BAD_REQUEST and scope["path"] != "/readyz":
                self._on_refusal(message["status"])
            has_head = True
            has_end = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start" and self._stopping.is_set():
                headers = [header for header in message.get("headers", ()) if header[0].lower() != b"connection"]
                message["headers"] = [*headers, (b"connection", b"close")]
            await send(message)

        with anyio.CancelScope() as request:
            scope[OPEN_REQUEST] = request
            self._open.add(request)
            try:
                await self._web_app(scope, receive, watched_send)
            finally:
                self._open.discard(request)
        if request.cancelled_caught and not has_end:
            if not has_head:
                status = HTTPStatus.SERVICE_UNAVAILABLE
                await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})


class WebApp(Starlette):
    """Both transports and the health checks as one application.

    It is Starlette with a shortcut to `/mcp`, and without redirects: a trailing slash is ignored instead.
    Not all clients follow redirects, and a redirect would lead to the host in the request and bypass a proxy's TLS.
    """

    def __init__(
        self, app: Application, options: HttpOptions, is_ready: Callable[[], bool], max_sessions: int = MAX_SESSIONS
    ) -> None:
        self._application, self._options, self._is_ready = app, options, is_ready
        self._sessions = Sessions(app.table, max_sessions, options.http.session_idle / 1000)
        mcp = StreamableHttp(app.table, app.schema_with_headers, options.max_body_bytes, self._sessions)
        sse = SseSessions(app.table, options.max_body_bytes)
        self._gate = HttpGate(mcp, options) if options.with_streamable else None
        routes: list[Route] = [
            Route("/healthz", endpoint=self._healthz, methods=["GET"]),
            Route("/readyz", endpoint=self._readyz, methods=["GET"]),
            Route("/sse", endpoint=HttpGate(sse.connect, options), methods=["GET", "OPTIONS"]),
            Route("/messages", endpoint=HttpGate(sse.post, options)),
            *(metadata_routes(options.issuer) if options.issuer is not None else ()),
            *app.pages,
        ]
        if app.metrics is not None:
            metrics_endpoint = HttpGate(request_response(self._metrics), options)
            routes.append(Route("/metrics", endpoint=metrics_endpoint, methods=["GET"]))
        answers = {404: self._no_route, 405: self._no_route}
        super().__init__(routes=routes, exception_handlers=answers, lifespan=self._lifespan)
        self.router.redirect_slashes = False

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._sessions.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # The path under which a proxy publishes this server, from a trusted header or else the settings.
            http, (client, *_) = self._options.http, scope.get("client") or ("",)
            prefix = header_of(scope["headers"], b"x-forwarded-prefix") if client in http.trusted_proxies else None
            if prefix is None or not ROOT_PATHS.fullmatch(prefix):
                prefix = http.root_path
            root = scope[ROOT_PATH] = prefix.rstrip("/")
            path = scope["path"].removeprefix(root) if f"{scope['path']}/".startswith(f"{root}/") else scope["path"]
            scope["path"] = path.rstrip("/") or "/"
        if self._gate is not None and scope["type"] == "http" and scope["path"] == "/mcp":
            await self._gate(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _healthz(self, _request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _request: Request) -> JSONResponse:
        ready = self._is_ready()
        return JSONResponse({"status": "ready" if ready else "starting or stopping"}, 200 if ready else 503)

    async def _metrics(self, request: Request) -> Response:
        principal = principal_of(request)
        if self._application.metrics is None or (principal is not None and principal.rights != ALL_RIGHTS):
            # Metrics contain the names of servers and tools, and a token may be restricted to some of these.
            message = "Metrics need a token from http.tokens that has no workspace, profile or rules of its own."
            return JSONResponse(error_of(None, message), HTTPStatus.FORBIDDEN)
        return Response(await self._application.metrics(), media_type="text/plain; version=0.0.4")

    async def _no_route(self, request: Request, error: Exception) -> Response:
        if self._options.with_streamable:
            routes = "MCP clients connect to /mcp (Streamable HTTP) or to /sse (SSE)"
        else:
            routes = "MCP clients connect to /sse (SSE); only --transport http serves /mcp (Streamable HTTP)"
        hint = f". There, {SEND_HEADER}" if self._options.tokens and self._options.issuer is None else ""
        status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
        path = quote(request.url.path[:100])
        missing = request.method if status == HTTPStatus.METHOD_NOT_ALLOWED else "MCP server"
        return JSONResponse(error_of(None, f"There is no {missing} at '{path}': {routes}{hint}."), status, headers)
