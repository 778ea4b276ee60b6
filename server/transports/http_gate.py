"""Access control for HTTP: checks the host, the origin of a web page, and the token."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.clients.client_request import PRINCIPAL, Principal, TokenRefusedError
from server.transports.http_messages import OPEN_REQUEST, refuse
from server.transports.http_options import LOOPBACK_NAMES, HttpOptions

if TYPE_CHECKING:
    from server.transports.issuer import Issuer

logger = logging.getLogger(__name__)

SEND_HEADER = "send the header 'Authorization: Bearer TOKEN' with a token of this server, which has no login (OAuth)"


class HttpGate:
    """Passes permitted requests to an endpoint, and refuses all others."""

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
            [each.lower() for each in names_] for names_ in (hosts, origins, readers)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            shown.setdefault(name, []).append(value.decode("latin-1"))
        if b"content-length" in shown and b"transfer-encoding" in shown:
            # A reverse proxy may disagree about where this request ends (RFC 9112, 6.1).
            told = "A request must have either Content-Length or Transfer-Encoding, not both."
            await refuse(HTTPStatus.BAD_REQUEST, told, send, {"connection": "close"})
            return
        # This protects against DNS rebinding, in which the host name of a foreign page resolves to this server.
        if not _is_among(host := shown.get(b"host", [""])[0].lower(), self._hosts):
            _warn_refused(host)
            told = (
                "This server does not serve the host in the Host header; the operator can add hosts to "
                "http.allowedHosts."
            )
            await refuse(HTTPStatus.MISDIRECTED_REQUEST, told, send)
            return
        if (origin := ",".join(shown.get(b"origin", [])).lower()) and not _is_among(origin, self._origins):
            _warn_refused(origin)
            told = "Pages of this Origin may not use this server; the operator can add origins to http.allowedOrigins."
            await refuse(HTTPStatus.FORBIDDEN, told, send)
            return
        if origin and _is_among(origin, self._readers):
            send = _readable_by(shown[b"origin"][0], send)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in shown:
                # A preflight request has no token, and the response only says what a page may send.
                asked = shown.get(b"access-control-request-headers", [""])[0].encode("latin-1")
                allowed = [(b"allow-methods", b"GET, POST, DELETE"), (b"allow-headers", asked), (b"max-age", b"600")]
                headers = [(b"access-control-%b" % name, value) for name, value in allowed if value]
                await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": headers})
                await send({"type": "http.response.body"})
                return
        if self._needs_token:
            try:
                principal = scope[PRINCIPAL] = await self._whose(shown.get(b"authorization", []))
            except TokenRefusedError as refused:
                await self._refuse(refused, send)
                return
            if scope["method"] == "GET" and OPEN_REQUEST in scope:
                # A stream is closed when its token expires, and the client reopens it. Requests in progress continue.
                scope[OPEN_REQUEST].deadline = anyio.current_time() + principal.seconds_left
        if scope["method"] == "OPTIONS":
            told = "OPTIONS is only for pages in http.allowedOrigins that ask what they may send."
            await refuse(HTTPStatus.METHOD_NOT_ALLOWED, told, send, {"Allow": "GET, POST, DELETE"})
            return
        await self._endpoint(scope, receive, send)

    async def _whose(self, shown: list[str]) -> Principal:
        # If there are two Authorization headers, a reverse proxy may have checked the other one.
        token = shown[0][7:] if len(shown) == 1 and shown[0][:7].lower() == "bearer " else None
        if token and (principal := self._tokens.principal_with(token)) is not None:
            return principal
        if self._issuer is None:
            sentence = "A token is required" if token is None else "The token is unknown"
            raise TokenRefusedError(f"{sentence}: {SEND_HEADER}.")
        if token:
            return await self._issuer.principal_with(token)
        settings = self._issuer.settings
        asked = f"A token of {settings.issuer} is required: log in there."
        raise TokenRefusedError(asked, code="", scope=" ".join(settings.required_scopes))

    async def _refuse(self, refused: TokenRefusedError, send: Send) -> None:
        # Some clients display the WWW-Authenticate header, but not the body.
        told = {"error": refused.code, "error_description": str(refused) if refused.code else ""}
        place = self._issuer.metadata_url if self._issuer is not None else ""
        told |= {"scope": refused.scope, "resource_metadata": place}
        challenge = "Bearer " + ", ".join(f'{name}="{text}"' for name, text in told.items() if text)
        is_away = refused.status == HTTPStatus.SERVICE_UNAVAILABLE
        headers = {"retry-after": "10"} if is_away else {"www-authenticate": challenge}
        await refuse(refused.status, str(refused), send, headers)


def _readable_by(origin: str, send: Send) -> Send:
    """Add the headers that let pages of an origin read the response (CORS)."""
    exposed = b"mcp-session-id, www-authenticate, retry-after"
    readable = [(b"allow-origin", origin.encode("latin-1")), (b"expose-headers", exposed)]
    added = [(b"vary", b"origin"), *((b"access-control-%b" % name, value) for name, value in readable)]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *added]
        await send(message)

    return sent


def _is_among(value: str, allowed: list[str]) -> bool:
    """Return whether a host or an origin is allowed; a pattern that ends in `:*` matches any port."""
    name, _, port = value.rpartition(":")
    return value in allowed or (port.isascii() and port.isdecimal() and f"{name}:*" in allowed)


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
    places = dict.fromkeys((issuer.metadata_path, "/.well-known/oauth-protected-resource"))
    return [Route(place, endpoint=readable, methods=["GET", "OPTIONS"]) for place in places]
