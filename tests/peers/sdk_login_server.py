"""A server built with the MCP SDK that is also the authorization server: `sdk_login_server.py`.

Clients register themselves, and a person agrees at once. The server prints its address on standard error. `POST
/forget/clients` and `POST /forget/tokens` delete these records.
"""

from __future__ import annotations

import secrets
import socket
import sys
import time

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import Response

SCOPES = ["tools"]


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Keeps clients, codes and tokens in memory. No refresh tokens are issued."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(20)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or SCOPES,
            expires_at=time.time() + 300,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        del client
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        token, resource = secrets.token_urlsafe(20), authorization_code.resource
        self.tokens[token] = AccessToken(
            token=token, client_id=str(client.client_id), scopes=authorization_code.scopes, resource=resource
        )
        return OAuthToken(access_token=token, scope=" ".join(authorization_code.scopes))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        del client, refresh_token
        return None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        raise NotImplementedError

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


def main() -> None:
    """Serve until it is ended."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    provider = Provider()
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES)
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(address),
        resource_server_url=AnyHttpUrl(f"{address}/mcp"),
        validate_token_resource=True,
        required_scopes=SCOPES,
        client_registration_options=registration,
        revocation_options=RevocationOptions(enabled=True),
    )
    server = MCPServer("login", auth_server_provider=provider, auth=auth)

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.custom_route("/forget/{kind}", methods=["POST"])
    async def forget(request: Request) -> Response:
        records = {"clients": provider.clients, "tokens": provider.tokens}
        records[request.path_params["kind"]].clear()
        return Response()

    del echo, forget
    sys.stderr.write(f"serving {address}\n")
    sys.stderr.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_config=None, timeout_graceful_shutdown=1)
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
