"""What a request is told that shows no token or leads nowhere: a sentence that names the way.

The shape is a JSON-RPC error, because clients that get one in place of an answer show its message; the others show the
status, or the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import quote

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp_types import INVALID_REQUEST
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.transports.listening import HttpOptions

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
