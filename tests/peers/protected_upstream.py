"""An upstream server for tests that requires a token: `protected_upstream.py ISSUER`.

It has the tools of `upstream.py` over Streamable HTTP, on a free port that it prints on standard error. A token is a
JWT of ISSUER for this server, with the scope `tools`; the tool `picture` also needs the scope `pictures`. Three more
paths are for tests:

- `GET /counts` returns the number of requests by path and by outcome, and the tokens that were sent.
- `POST /refuse` makes the server refuse those tokens, as if they had expired.
- `POST /reset` clears all of this.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.peers.upstream import http_app

EXTRA_SCOPES = {"picture": "pictures"}
"""Tools that need one more scope"""

METADATA = "/.well-known/oauth-protected-resource/mcp"


class Gate:
    """Stands in front of a server, and lets in only requests that have a token for it.

    Args:
        app: The server.
        issuer: The issuer whose tokens are valid.
        address: The address of the server.
    """

    def __init__(self, app: ASGIApp, issuer: str, address: str) -> None:
        self._app = app
        self._issuer = issuer
        self._address = address
        self._keys: jwt.PyJWKSet | None = None
        self._paths: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._tokens: dict[str, None] = {}
        self._refused_tokens: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it to the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        response = await self._answer(request, body)
        if response is not None:
            await response(scope, receive, send)
            return

        # The body has been read already, so the server gets it from here.
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, receive_again, send)

    async def _answer(self, request: Request, body: bytes) -> Response | None:
        """The answer that is given instead of the server's, or None if the request may pass."""
        path = request.url.path
        if path == "/counts":
            return JSONResponse({"paths": self._paths, "outcomes": self._outcomes, "tokens": list(self._tokens)})
        if path == "/refuse":
            self._refused_tokens |= set(self._tokens)
            return Response()
        if path == "/reset":
            for record in (self._paths, self._outcomes, self._tokens, self._refused_tokens):
                record.clear()
            return Response()
        self._paths[path] += 1
        if path == METADATA:
            return JSONResponse(
                {
                    "resource": f"{self._address}/mcp",
                    "authorization_servers": [self._issuer],
                    "scopes_supported": ["tools"],
                    "bearer_methods_supported": ["header"],
                }
            )
        if path != "/mcp":
            return Response(status_code=404)
        scopes = {"tools"}
        if request.method == "POST":
            message: dict[str, Any] = json.loads(body)
            extra_scope = EXTRA_SCOPES.get(message.get("params", {}).get("name"))
            if extra_scope is not None:
                scopes.add(extra_scope)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            return self._challenge(401, "unauthorized")
        self._tokens[token] = None
        if token in self._refused_tokens:
            return self._challenge(401, "unauthorized", error="invalid_token")
        try:
            claims = jwt.decode(
                token,
                await self._key(token),
                algorithms=["ES256"],
                audience=f"{self._address}/mcp",
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError:
            return self._challenge(401, "unauthorized", error="invalid_token")
        if not scopes <= set(claims.get("scope", "").split()):
            return self._challenge(403, "forbidden", error="insufficient_scope", scope=" ".join(sorted(scopes)))
        self._outcomes["served"] += 1
        return None

    def _challenge(self, status: int, outcome: str, **fields: str) -> Response:
        self._outcomes[outcome] += 1
        parameters = {**fields, "resource_metadata": f"{self._address}{METADATA}"}
        header = ", ".join(f'{name}="{value}"' for name, value in parameters.items())
        return JSONResponse({"error": outcome}, status, {"WWW-Authenticate": f"Bearer {header}"})

    async def _key(self, token: str) -> jwt.PyJWK:
        identity = jwt.get_unverified_header(token).get("kid")
        if self._keys is None:
            async with httpx2.AsyncClient() as client:
                self._keys = jwt.PyJWKSet.from_dict((await client.get(f"{self._issuer}/jwks")).json())
        for key in self._keys.keys:
            if key.key_id == identity:
                return key
        raise jwt.InvalidTokenError


def main() -> None:
    """Serve until it is ended."""
    (issuer,) = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    sys.stderr.write(f"serving {address}\n")
    sys.stderr.flush()
    config = uvicorn.Config(Gate(http_app(), issuer, address), log_config=None, timeout_graceful_shutdown=1)
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
