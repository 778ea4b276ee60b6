"""Access control for HTTP: checks the host, the origin of a web page, and the token."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.clients.client_request import PRINCIPAL, Principal, TokenRefusedError
from server.transports.http_messages import OPEN_REQUEST, RequestRefusedError, refuse
from server.transports.http_options import LOOPBACK_NAMES, HttpOptions

if TYPE_CHECKING:
    from server.transports.issuer import Issuer

logger = logging.getLogger(__name__)

SEND_HEADER = "send the header 'Authorization: Bearer TOKEN' with a token of this server, which has no login (OAuth)"


class HttpGate:
    """Passes permitted requests to an endpoint (at `/mcp`, a `StreamableHttp`), and refuses all others."""

    def __init__(self, endpoint: ASGIApp, options: HttpOptions) -> None:
        self._endpoint = endpoint
        self._tokens, self._issuer, self._needs_token = options.tokens, options.issuer, options.needs_token
        http, names = options.http, dict.fromkeys((*LOOPBACK_NAMES, options.host_in_urls))
        schemes = ("http", "https") if http.tls_cert else ("http",)
        public = (urlsplit(http.public_url).netloc,) if http.public_url is not None else ()
        # Clients omit the default port.
        hosts = [*names, *(f"{name}:*" for name in names), *public, *http.allowed_hosts]
        pages = [f"{scheme}://{name}" for scheme in schemes for name in names]
        origins = [*pages, *(f"{page}:*" for page in pages), *http.allowed_origins]
        readers = http.allowed_origins  # origins of pages that may read responses
        self._hosts, self._origins, self._readers = (
            [pattern.lower() for pattern in patterns] for patterns in (hosts, origins, readers)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A reverse proxy may disagree about where this request ends (RFC 9112, 6.1).
            message = "A request must not have both Content-Length and Transfer-Encoding."
            await refuse(HTTPStatus.BAD_REQUEST, message, send, {"connection": "close"})
            return
        # This protects against DNS rebinding, in which the host name of a foreign page resolves to this server.
        if not _is_allowed(host := headers.get(b"host", [""])[0].lower(), self._hosts):
            _warn_refused(host)
            message = (
                "This server does not serve the host in the Host header; the operator can add hosts to "
                "http.allowedHosts."
            )
            await refuse(HTTPStatus.MISDIRECTED_REQUEST, message, send)
            return
        if (origin := ",".join(headers.get(b"origin", [])).lower()) and not _is_allowed(origin, self._origins):
            _warn_refused(origin)
            message = (
                "Pages of this Origin are not allowed to use this server; the operator can add origins to "
                "http.allowedOrigins."
            )
            await refuse(HTTPStatus.FORBIDDEN, message, send)
            return
        if origin and _is_allowed(origin, self._readers):
            send = _with_cors(headers[b"origin"][0], send)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                # A preflight request has no token, and the response only says what a page may send.
                requested_headers = headers.get(b"access-control-request-headers", [""])[0].encode("latin-1")
                permissions = [
                    (b"allow-methods", b"GET, POST, DELETE"),
                    (b"allow-headers", requested_headers),
                    (b"max-age", b"600"),
                ]
                cors_headers = [(b"access-control-%b" % name, value) for name, value in permissions if value]
                await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": cors_headers})
                await send({"type": "http.response.body"})
                return
        if self._needs_token:
            try:
                principal = scope[PRINCIPAL] = await self._authenticate(headers.get(b"authorization", []))
            except TokenRefusedError as error:
                await self._refuse(error, send)
                return
            if scope["method"] == "GET" and OPEN_REQUEST in scope:
                # A stream is closed when its token expires, and the client reopens it. Requests in progress continue.
                scope[OPEN_REQUEST].deadline = anyio.current_time() + principal.seconds_left
        if scope["method"] == "OPTIONS":
            message = "OPTIONS is only for CORS preflight requests from origins in http.allowedOrigins."
            await refuse(HTTPStatus.METHOD_NOT_ALLOWED, message, send, {"Allow": "GET, POST, DELETE"})
            return
        try:
            await self._endpoint(scope, receive, send)
        except RequestRefusedError as refusal:
            await refuse(refusal.status, refusal.error, send, refusal.headers)
        except ClientDisconnect:
            pass  # nobody would receive a response

    async def _authenticate(self, authorization: list[str]) -> Principal:
        """Return the principal of a token that the settings define or the `Issuer` accepts; refuse all others."""
        # If there are two Authorization headers, a reverse proxy may have checked the other one.
        token = authorization[0][7:] if len(authorization) == 1 and authorization[0][:7].lower() == "bearer " else None
        if token and (principal := self._tokens.principal_with(token)) is not None:
            return principal
        if self._issuer is None:
            sentence = "A token is required" if token is None else "The token is unknown"
            raise TokenRefusedError(f"{sentence}: {SEND_HEADER}.")
        if token:
            return await self._issuer.principal_with(token)
        settings = self._issuer.settings
        message = f"A token from {settings.issuer} is required: log in there."
        raise TokenRefusedError(message, code="", scope=" ".join(settings.required_scopes))

    async def _refuse(self, error: TokenRefusedError, send: Send) -> None:
        # Some clients display the WWW-Authenticate header, but not the body.
        parameters = {"error": error.code, "error_description": error.sentence if error.code else ""}
        place = self._issuer.metadata_url if self._issuer is not None else ""
        parameters |= {"scope": error.scope, "resource_metadata": place}
        challenge = "Bearer " + ", ".join(f'{name}="{text}"' for name, text in parameters.items() if text)
        is_away = error.status == HTTPStatus.SERVICE_UNAVAILABLE
        headers = {"retry-after": "10"} if is_away else {"www-authenticate": challenge}
        await refuse(error.status, error.sentence, send, headers)


def _with_cors(origin: str, send: Send) -> Send:
    """Let pages of an origin read the response (CORS)."""
    exposed_headers = b"mcp-session-id, www-authenticate, retry-after"
    readable = [(b"allow-origin", origin.encode("latin-1")), (b"expose-headers", exposed_headers)]
    extra_headers = [(b"vary", b"origin"), *((b"access-control-%b" % name, value) for name, value in readable)]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *extra_headers]
        await send(message)

    return send_with_headers


def _is_allowed(value: str, patterns: list[str]) -> bool:
    """Return whether a host or an origin is allowed; a pattern that ends in `:*` matches any port."""
    name, _, port = value.rpartition(":")
    return value in patterns or (port.isascii() and port.isdecimal() and f"{name}:*" in patterns)


def _warn_refused(value: str) -> None:
    logger.warning("a request was refused for its Host or Origin: %.100s", ascii(value))


def metadata_routes(issuer: Issuer) -> list[Route]:
    """Return the routes of the metadata (RFC 9728), which needs no token: for the resource's path and for the root."""

    async def metadata(_request: Request) -> JSONResponse:
        return JSONResponse(issuer.metadata, headers={"cache-control": "public, max-age=3600"})

    # Allow all origins, as the SDK does, because clients that are web pages read the metadata too.
    readable = CORSMiddleware(
        request_response(metadata), allow_origins=["*"], allow_methods=["GET"], allow_headers=["*"]
    )
    # The application removes a slash at the end of a request's path.
    places = dict.fromkeys((issuer.metadata_path.rstrip("/"), "/.well-known/oauth-protected-resource"))
    return [Route(place, endpoint=readable, methods=["GET", "OPTIONS"]) for place in places]
