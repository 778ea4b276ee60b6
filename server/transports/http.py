"""MCP over HTTP: Streamable HTTP at `/mcp`, the older SSE transport at `/sse` and `/messages/`, on one port."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.transports.http_requests import Posts, note_at_work
from server.transports.http_sessions import MOST_SESSIONS, BoundedSessions, session_of
from server.transports.listen_address import LOOPBACK_NAMES, HttpOptions
from server.transports.slow_clients import REVISION_HEADER, ClientConnection
from server.transports.sse import SseSessions, named_session


class OpenRequests:
    """An application whose open requests can be ended: streams, and calls that take long.

    The web server would cancel them too, but breaks their connections off and logs each as an error.

    Args:
        app: Answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """End those that are open now."""
        for request in tuple(self._open):
            request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_head = has_end = False

        async def noted(message: Message) -> None:
            nonlocal has_head, has_end
            has_head = True
            has_end = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as request:
            self._open.add(request)
            try:
                await self._app(scope, receive, noted)
            finally:
                self._open.discard(request)
        if request.cancelled_caught and not has_end:
            if not has_head:
                status = HTTPStatus.SERVICE_UNAVAILABLE
                await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})


_SEND_ONE = "send the header 'Authorization: Bearer TOKEN' with a token of this server; there is no login (OAuth) here"

_NO_TOKEN = f"A token is needed: {_SEND_ONE}."

_WRONG_TOKEN = f"The token is not known here: {_SEND_ONE}."

_MOST_OF_A_PATH = 100


class ForKnown:
    """An application for those alone who showed a token; who did is found out by the SDK's middleware before it.

    Args:
        app: What they get to.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through or refuse."""
        if isinstance(scope.get("user"), AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        shown = any(name == b"authorization" and value[:7].lower() == b"bearer " for name, value in scope["headers"])
        sentence = _WRONG_TOKEN if shown else _NO_TOKEN
        # Some clients show this header and not the body.
        challenge = f'Bearer error="invalid_token", error_description="{sentence}"'
        await _refusal(401, sentence, {"www-authenticate": challenge})(scope, receive, send)


def leads_nowhere(options: HttpOptions) -> Callable[[Request, Exception], Response]:
    """What is answered where no route is, or none for this method.

    Args:
        options: How we listen.
    """
    if options.with_streamable:
        ways = "MCP clients connect to /mcp (Streamable HTTP) or to /sse (SSE)"
    else:
        ways = "MCP clients connect to /sse (SSE); only --transport http serves /mcp (Streamable HTTP)"
    more = f". There, {_SEND_ONE}" if options.tokens else ""

    def answer(request: Request, error: Exception) -> Response:
        status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
        path = quote(request.url.path[:_MOST_OF_A_PATH])
        what = request.method if status == HTTPStatus.METHOD_NOT_ALLOWED else "MCP server"
        return _refusal(status, f"There is no {what} at '{path}': {ways}{more}.", headers)

    return answer


def _refusal(status: int, sentence: str, headers: Mapping[str, str] | None) -> Response:
    error = {"code": INVALID_REQUEST, "message": sentence}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)


logger = logging.getLogger(__name__)

GRACE_SECONDS = 3
"""How long open responses may go on after SIGTERM; a stream that never ends is ended then."""

LAST_SECONDS = 2
"""How long after that connections are kept whose clients take in nothing."""

MOST_CONNECTIONS = 4_000
"""When there are as many, the one that has brought no request for longest ends; if each has one, with 503."""


class _WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers: those end the process before our upstreams are ended."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to the one who runs us."""
        yield


async def serve_http(
    server: Server[Any],
    options: HttpOptions,
    listener: socket.socket,
    stopping: anyio.Event,
    *,
    is_ready: Callable[[], bool],
    descriptors: int,
) -> None:
    """Serve until `stopping` is set; then uvicorn ends in order and closes what is open.

    Args:
        server: Answers.
        options: How to listen.
        listener: The open socket.
        stopping: Set to stop.
        is_ready: Whether all is there that clients may ask for.
        descriptors: How many the system allows us; half of them are left for what requests need.
    """
    app = OpenRequests(http_app(server, options, lambda: is_ready() and not stopping.is_set()))
    config = uvicorn.Config(
        app,
        http=ClientConnection,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
        limit_concurrency=min(MOST_CONNECTIONS, descriptors // 2),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=GRACE_SECONDS + LAST_SECONDS,
        ws="none",
    )
    paths = "/mcp and /sse" if options.with_streamable else "/sse"
    address = f"{options.origin}:{listener.getsockname()[1]}"
    # Said whatever the log level is: a person who starts a server has to know where it is, and whether it is open.
    whom = "clients that show a token" if options.tokens else "every client, without a token"
    sys.stderr.write(f"coretools-mcp: serving MCP at {address}, paths {paths}, to {whom}\n")
    sys.stderr.flush()
    _warn(options)
    web = _WebServer(config)

    async def stop() -> None:
        await stopping.wait()
        web.should_exit = True
        await anyio.sleep(GRACE_SECONDS)
        app.end()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await web.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


def http_app(
    server: Server[Any], options: HttpOptions, is_ready: Callable[[], bool], most_sessions: int = MOST_SESSIONS
) -> Starlette:
    """Both transports as one ASGI application, and whether it works, for whoever watches over it.

    Args:
        server: Answers.
        options: How to listen.
        is_ready: What `/readyz` tells.
        most_sessions: Of Streamable HTTP.
    """
    sse = SseSessions(server, SseServerTransport("/messages/", _security(options), options.max_body_bytes))
    posted = Posts(sse.post, named_session, _security(options), options.max_body_bytes)
    server.middleware.insert(0, note_at_work)
    routes: list[Route | Mount] = [
        Route("/healthz", endpoint=_healthz, methods=["GET"]),
        Route("/readyz", endpoint=_readyz(is_ready), methods=["GET"]),
        *_routes("/sse", _for_known(_Endpoint(sse.connect), options), ["GET"]),
        Mount("/messages", app=_for_known(posted, options)),
    ]
    answers = {404: leads_nowhere(options), 405: leads_nowhere(options)}
    if not options.with_streamable:
        return Starlette(routes=routes, exception_handlers=answers)
    sessions = StreamableHTTPSessionManager(
        server,
        security_settings=_security(options),
        max_request_body_size=options.max_body_bytes,
        session_idle_timeout=options.session_idle_seconds,
        # Ours is the limit; each connection may be opening one more.
        max_sessions=most_sessions + MOST_CONNECTIONS,
    )
    bounded = BoundedSessions(StreamableHTTPASGIApp(sessions), most_sessions, options.session_idle_seconds)
    mcp = _for_known(Posts(bounded, _session_of, _security(options), options.max_body_bytes), options)
    routes += _routes("/mcp", mcp)
    return _McpFirst(mcp, sessions, routes=routes, exception_handlers=answers)


def _session_of(scope: Scope) -> str | None:
    """The session that a request is in; those of 2026-07-28 are in none, whatever they say."""
    revision = next((value.decode("latin-1") for name, value in scope["headers"] if name == REVISION_HEADER), None)
    return session_of(scope["headers"]) if revision is None or revision in HANDSHAKE_PROTOCOL_VERSIONS else None


def _routes(path: str, app: ASGIApp, methods: list[str] | None = None) -> list[Route]:
    """A path with and without a slash at its end: a redirect is not followed by all, or leads past a proxy's TLS."""
    return [Route(way, endpoint=app, methods=methods) for way in (path, f"{path}/")]


class _McpFirst(Starlette):
    """Starlette with a short way to `/mcp`: finding the way there costs a thirtieth of a small call."""

    def __init__(self, mcp: ASGIApp, sessions: StreamableHTTPSessionManager, **options: Any) -> None:
        super().__init__(lifespan=lambda _: sessions.run(), **options)
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            await self._mcp(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _for_known(app: ASGIApp, options: HttpOptions) -> ASGIApp:
    """An application for those alone who show a token, where there are tokens."""
    if not options.tokens:
        return app
    return AuthenticationMiddleware(AuthContextMiddleware(ForKnown(app)), BearerAuthBackend(options.tokens))


def _security(options: HttpOptions) -> TransportSecuritySettings:
    """Host and Origin lists, stated for both transports: neither has safe defaults for every host."""
    names = dict.fromkeys((*LOOPBACK_NAMES, options.origin.partition("://")[2]))
    schemes = ("http", "https") if options.certificate else ("http",)
    return TransportSecuritySettings(
        # Without a port where it is the usual one.
        allowed_hosts=[*names, *(f"{name}:*" for name in names), *options.allowed_hosts],
        allowed_origins=[f"{scheme}://{name}:*" for scheme in schemes for name in names]
        + list(options.allowed_origins),
    )


def _warn(options: HttpOptions) -> None:
    if options.is_loopback:
        return
    if options.certificate is None:
        logger.warning("tokens and all that clients say travel unencrypted; name a certificate with --tls-cert")
    if options.host in {"0.0.0.0", "::"} and not options.allowed_hosts:  # noqa: S104 - compared, not bound
        logger.warning(
            "requests for the names of this machine are refused; name those that clients use in http.allowedHosts"
        )


async def _healthz(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


def _readyz(is_ready: Callable[[], bool]) -> Callable[[Request], Any]:
    async def answer(_request: Request) -> JSONResponse:
        ready = is_ready()
        return JSONResponse({"status": "ready" if ready else "starting or stopping"}, 200 if ready else 503)

    return answer


class _Endpoint:
    """An application as a route takes it: a function would be given a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
