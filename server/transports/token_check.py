"""Who is let in over HTTP: those who show a token, by the `Authorization` header (RFC 6750), and where to get one."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp_types import INVALID_REQUEST
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.principals import Principal, TokenRefusedError
from server.transports.http_options import HttpOptions
from server.transports.http_requests import OPEN_REQUEST

if TYPE_CHECKING:
    from server.transports.issuer import Issuer

SEND_HEADER = (
    "send the header 'Authorization: Bearer TOKEN' with a token of this server; there is no login (OAuth) here"
)


def for_known(app: ASGIApp, options: HttpOptions) -> ASGIApp:
    """An application for those alone who show a token, where there are tokens."""
    return RequireToken(app, options) if options.is_closed else app


class RequireToken:
    """An application for those who show a token that lets in; all others get the answer 401, 403 or 503."""

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
            await refusal_response(refused.status, str(refused), headers)(scope, receive, send)
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
            raise TokenRefusedError(f"{sentence}: {SEND_HEADER}.")
        if token:
            return await self._issuer.principal_of(token)
        settings = self._issuer.settings
        asked = f"A token of {settings.issuer} is needed: log in there."
        raise TokenRefusedError(asked, code="", scope=" ".join(settings.required_scopes))


def refusal_response(status: int, sentence: str, headers: Mapping[str, str] | None) -> Response:
    error = {"code": INVALID_REQUEST, "message": sentence}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)


def metadata_routes(issuer: Issuer) -> list[Route]:
    """What clients read before they have a token (RFC 9728): at the place for our address, and at the usual one."""

    async def metadata(_request: Request) -> JSONResponse:
        return JSONResponse(issuer.metadata, headers={"cache-control": "public, max-age=3600"})

    # As the SDK does: clients that are web pages read it too.
    readable = CORSMiddleware(
        request_response(metadata), allow_origins=["*"], allow_methods=["GET"], allow_headers=["*"]
    )
    places = dict.fromkeys((issuer.metadata_path, "/.well-known/oauth-protected-resource"))
    return [Route(place, endpoint=readable, methods=["GET", "OPTIONS"]) for place in places]
