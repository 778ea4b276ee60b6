"""MCP over HTTP: Streamable HTTP at `/mcp`, the older SSE transport at `/sse` and `/messages/`, on one port.

A session over SSE is one run of the server, with a bounded number of unread answers: requests come on other connections
than the answers go, so that a client that reads nothing could go on asking, and each answer would be held.
"""

from __future__ import annotations

import logging
import math
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import anyio
import mcp_types as types
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.json_rpc import error_of
from server.principals import Principal, TokenRefusedError
from server.sdk_seams import WriteStream, sse_session
from server.transports.http_options import LOOPBACK_NAMES, HttpOptions, TokenIssuer
from server.transports.http_requests import (
    CLAIM,
    SERVER_ENDS,
    SESSION_EXPIRED,
    PostedRequests,
    RequestClaim,
    as_event,
    claim_ids,
)
from server.transports.http_sessions import MOST_SESSIONS, BoundedSessions, session_of
from server.transports.slow_clients import ClientConnection

logger = logging.getLogger(__name__)


MOST_UNREAD = 64  # messages of a session that wait to be taken by its connection, before no more is taken in from it
_ENDPOINT = re.compile(rb"session_id=([0-9a-f]{32})")


OPEN_REQUEST = "coretools-mcp.open-request"  # where a request carries the scope that ends it


class SseSessions:
    """Opens sessions, and takes in what their clients post."""

    def __init__(self, server: Server[Any], transport: SseServerTransport) -> None:
        self._server = server
        self._transport = transport
        self._unread: dict[str, _Unread] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session, unread = "", _Unread(scope.get("user"), scope.get(OPEN_REQUEST))

        async def watched(message: Message) -> None:
            # The SDK tells the session's id to the client alone.
            nonlocal session
            if not session and (found := _ENDPOINT.search(message.get("body", b""))):
                session = found[1].decode()
                self._unread[session] = unread
            await send(message)

        try:
            async with self._transport.connect_sse(scope, receive, watched) as (read_stream, write_stream):
                options = self._server.create_initialization_options()
                unread.stream = write_stream
                await self._server.run(read_stream, unread, options)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                why = SESSION_EXPIRED if unread.is_expired else SERVER_ENDS
                for claim in unread.owed:
                    event = as_event(error_of(claim.request.id, why, types.CONNECTION_CLOSED))
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            raise
        except ValueError:
            # The request was refused and answered (Host or Origin); the SDK reports that by this exception too.
            logger.info("an SSE connection was refused")
        finally:
            self._unread.pop(session, None)

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take in a message, as soon as its client has read enough of what is there for it."""
        unread, claim = self._unread.get(named_session(scope) or ""), scope.get(CLAIM)
        if unread is not None:
            unread.last_with(scope.get("user"))
            await unread.owe(claim)
        # The session may end when its message was accepted already; the SDK reports that in this way.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._transport.handle_post_message(scope, receive, send)
        if unread is not None and claim is not None and not claim.is_accepted and claim in unread.owed:
            unread.owed.remove(claim)  # it was refused, by the answer to its own request


def named_session(scope: Scope) -> str | None:
    try:
        return sse_session(Request(scope).query_params.get("session_id"))
    except ValueError:
        return None


class _Unread:
    """The way out of a session: messages that wait there to be taken by its connection, and answers that it is owed."""

    stream: WriteStream[SessionMessage]

    def __init__(self, user: Principal | None, request: anyio.CancelScope | None) -> None:
        self._user, self._request = user, request
        self.owed: list[RequestClaim] = []  # requests without an answer
        self._count = 0
        self._fewer = anyio.Event()

    @property
    def is_expired(self) -> bool:
        """Whether all tokens have expired that were shown for it."""
        return self._request is not None and self._request.deadline <= anyio.current_time()

    def last_with(self, user: Principal | None) -> None:
        """Let the session last as long as the token that its client shows now."""
        name = None if self._user is None else self._user.display_name
        if user is not None and user.display_name == name and self._request is not None:
            self._request.deadline = max(self._request.deadline, anyio.current_time() + user.seconds_left)

    async def owe(self, claim: RequestClaim | None) -> None:
        """Take a request in, as soon as its client has read enough of what is there for it."""
        while self._count >= MOST_UNREAD:
            await self._fewer.wait()
        # One that was cancelled by its client has no answer.
        self.owed = [other for other in self.owed if not other.is_done]
        if claim is not None:
            self.owed.append(claim)

    async def send(self, item: SessionMessage) -> None:
        self._count += 1
        try:
            await self.stream.send(item)
        finally:
            # Ended sessions too: who waits to be taken in is told then that there is no session.
            self._count -= 1
            if self._count < MOST_UNREAD:
                self._fewer.set()
                self._fewer = anyio.Event()
        message = item.message
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self.owed = [claim for claim in self.owed if claim.request.id != message.id]

    async def aclose(self) -> None:
        await self.stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self.stream.__aexit__(exc_type, exc_val, exc_tb)


LAST_SECONDS = 2  # how long after the time of grace connections are kept whose clients take in nothing
MOST_CONNECTIONS = 4_000
"""When there are more, the one that has been idle for longest is ended; if none is idle, the new one gets 503."""
_SEND_ONE = "send the header 'Authorization: Bearer TOKEN' with a token of this server; there is no login (OAuth) here"


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
    refused: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until `stopping` is set; then go on for as long as a balancer may take to see it, and end in order.

    Half of the `descriptors` that the system allows us are left for what requests need. `pages` are for people, who
    show no token. `refused` is told the status of each refusal.
    """
    http = options.http
    app = OpenRequests(
        http_app(server, options, lambda: is_ready() and not stopping.is_set(), pages=pages, metrics=metrics),
        stopping,
        refused,
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
    is `stopping`, no connection is kept for another request: whoever has it would send one into its end. `refused` is
    told the status of each answer that is a refusal.
    """

    def __init__(self, app: ASGIApp, stopping: anyio.Event, refused: Callable[[int], None]) -> None:
        self._app = app
        self._stopping = stopping
        self._refused = refused
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
                self._refused(message["status"])
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
        more = f". There, {_SEND_ONE}" if options.tokens and options.issuer is None else ""
        status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
        path = quote(request.url.path[:100])
        what = request.method if status == HTTPStatus.METHOD_NOT_ALLOWED else "MCP server"
        return _refusal(status, f"There is no {what} at '{path}': {routes}{more}.", headers)

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
    connected = _for_known(sse, options)
    routes: list[Route | Mount] = [
        Route("/healthz", endpoint=healthz, methods=["GET"]),
        Route("/readyz", endpoint=readyz, methods=["GET"]),
        # With and without a slash at the end: a redirect is not followed by all, or leads past a proxy's TLS.
        Route("/sse", endpoint=connected, methods=["GET"]),
        Route("/sse/", endpoint=connected, methods=["GET"]),
        Mount("/messages", app=_for_known(posted, options)),
        *(_metadata_routes(options.issuer) if options.issuer is not None else ()),
        *pages,
    ]
    if metrics is not None:

        async def show_metrics(request: Request) -> Response:
            # Pages of others, whose names lead here, read nothing.
            refusal = await TransportSecurityMiddleware(security).validate_request(request, is_post=False)
            return refusal or Response(await metrics(), media_type="text/plain; version=0.0.4")

        route = Route("/metrics", endpoint=show_metrics, methods=["GET"])
        route.app = _for_known(route.app, options)
        routes.append(route)
    answers = {404: leads_nowhere, 405: leads_nowhere}
    if not options.with_streamable:
        return Starlette(routes=routes, exception_handlers=answers)
    sessions = StreamableHTTPSessionManager(
        server,
        security_settings=security,
        max_request_body_size=options.max_body_bytes,
        session_idle_timeout=http.session_idle / 1000,
        # Ours is the limit; each connection may be opening one more.
        max_sessions=most_sessions + MOST_CONNECTIONS,
    )
    bounded = BoundedSessions(StreamableHTTPASGIApp(sessions), most_sessions, http.session_idle / 1000)
    mcp = _for_known(PostedRequests(bounded, session_of, security, options.max_body_bytes), options)
    routes += [Route("/mcp", endpoint=mcp), Route("/mcp/", endpoint=mcp)]
    return _McpFirst(mcp, sessions, routes=routes, exception_handlers=answers)


def _metadata_routes(issuer: TokenIssuer) -> list[Route]:
    """What clients read before they have a token (RFC 9728): at the place for our address, and at the usual one."""

    async def metadata(_request: Request) -> JSONResponse:
        return JSONResponse(issuer.metadata, headers={"cache-control": "public, max-age=3600"})

    # As the SDK does: clients that are web pages read it too.
    readable = CORSMiddleware(
        request_response(metadata), allow_origins=["*"], allow_methods=["GET"], allow_headers=["*"]
    )
    places = dict.fromkeys((issuer.metadata_path, "/.well-known/oauth-protected-resource"))
    return [Route(place, endpoint=readable, methods=["GET", "OPTIONS"]) for place in places]


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
    return _KnownOnly(app, options) if options.is_closed else app


class _KnownOnly:
    def __init__(self, app: ASGIApp, options: HttpOptions) -> None:
        self._app = AuthContextMiddleware(app)
        self._tokens, self._issuer = options.tokens, options.issuer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
        # Of two a proxy before us may have looked at the other one.
        token = shown[0][7:].decode("latin-1") if len(shown) == 1 and shown[0][:7].lower() == b"bearer " else None
        try:
            user = scope["user"] = await self._whose(token)
        except TokenRefusedError as refused:
            # Some clients show this header and not the body.
            told = {"error": refused.code, "error_description": str(refused) if refused.code else ""}
            place = self._issuer.metadata_url if self._issuer is not None else ""
            told |= {"scope": refused.scope, "resource_metadata": place}
            challenge = "Bearer " + ", ".join(f'{name}="{text}"' for name, text in told.items() if text)
            is_away = refused.status == HTTPStatus.SERVICE_UNAVAILABLE
            headers = {"retry-after": "10"} if is_away else {"www-authenticate": challenge}
            await _refusal(refused.status, str(refused), headers)(scope, receive, send)
        else:
            if scope["method"] == "GET" and OPEN_REQUEST in scope:
                # A stream, which ends with its token: the client opens another one. What was asked for goes on.
                scope[OPEN_REQUEST].deadline = anyio.current_time() + user.seconds_left
            await self._app(scope, receive, send)

    async def _whose(self, token: str | None) -> Principal:
        if token and (principal := self._tokens.principal_of(token)) is not None:
            return principal
        if self._issuer is None:
            sentence = "A token is needed" if token is None else "The token is not known here"
            raise TokenRefusedError(f"{sentence}: {_SEND_ONE}.")
        if token:
            return await self._issuer.principal_of(token)
        settings = self._issuer.settings
        asked = f"A token of {settings.issuer} is needed: log in there."
        raise TokenRefusedError(asked, code="", scope=" ".join(settings.required_scopes))


def _refusal(status: int, sentence: str, headers: Mapping[str, str] | None) -> Response:
    error = {"code": INVALID_REQUEST, "message": sentence}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)
