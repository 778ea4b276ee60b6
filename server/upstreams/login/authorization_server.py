"""The authorization server of an upstream: discovery, registration, and token requests.

Discovery follows the 2026-07-28 revision of the MCP specification; comments name the RFCs that apply. Redirects are not
followed, so secrets go only to addresses that the authorization server itself published, or to its default ones.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, ValidationError

from server import VERSION
from server.network.echoed_secrets import SentSecrets, quoted
from server.network.outbound_http import ANSWER_BYTES, LongAnswerError, NoJsonAnswerError, fetch_json, is_local, is_safe
from server.protocol.json_rpc import Json, as_list
from server.settings.server_models import OAuthSettings
from server.upstreams.wire.json_rpc_channel import Challenge, LoginError
from tools.contract.display import visible_line
from tools.text.secrets import is_secret_name

TOKEN_CHARS = 32_768  # a longer token is rejected, because no HTTP header can carry it
ADDRESS_CHARS = 32_768  # a longer address is not shown, because browsers and servers would reject it
LIFE_SECONDS = 10**9  # a longer token lifetime is reduced to this (31 years)

_PKCE = "S256"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # RFC 7523, 2.2
ASSERTION_SECONDS = 60.0  # lifetime of this server's signed assertions
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")  # RFC 6749, 5.2; other text from the server is not passed on
_TOKEN = re.compile(r"[\x21-\x7e]+")
_SHOWN_CHARS = 200  # maximum number of characters of an address quoted in a message
_SUCCESS, _INVALID = (200, 201), (400, 422)  # HTTP status codes for success, and for an invalid request
FORGOTTEN = ("invalid_client", "unauthorized_client")  # the client must register again (RFC 6749, 5.2)
_DETAIL = "error_description"
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")
# `client_secret_basic` comes last: servers of the Python SDK then also need the id in the form, which others refuse.
_REGISTERED_METHODS = ("none", "client_secret_post", "client_secret_basic")


class AuthorizationServerDownError(LoginError):
    """No JSON answer arrived in time. The login is kept, because its state is unknown."""


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    issuer: str  # the authorization server's own identifier
    metadata: OAuthMetadata  # RFC 8414; if it publishes none, the default addresses of the 2025-03-26 revision
    resource: str | None = None  # the resource of the tokens (RFC 8707), from the upstream's metadata, if known
    scopes: str | None = None  # the scopes that the upstream supports, separated by spaces; `None` if unknown

    @property
    def host(self) -> str:
        return visible_line(urlsplit(self.issuer).netloc[:_SHOWN_CHARS])

    @property
    def label(self) -> str:
        return f"its authorization server {self.host}"

    def problem(self, text: str, code: str = "") -> LoginError:
        return LoginError(f"{self.label} {text}", code)


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An authorization request, and what is needed to check its redirect and redeem the code."""

    url: str = field(repr=False)
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class AuthorizationServerClient:
    """Sends requests to authorization servers for one upstream, each on its own connection."""

    url: str  # the upstream's address
    oauth: OAuthSettings
    by_proxy: bool

    async def discover(self, challenge: Challenge | None) -> AuthorizationServer:
        """Find the authorization server. Raises a `LoginError` if there is no usable one."""
        metadata_url = challenge.parameter("resource_metadata") if challenge is not None else None
        for url in build_protected_resource_metadata_discovery_urls(metadata_url, self.url):
            resource_metadata = await self._get(url, "the server")
            issuers = as_list(resource_metadata.get("authorization_servers"))
            if isinstance(resource := resource_metadata.get("resource"), str) and issuers:
                break
        else:
            return await self._discover_by_origin()
        try:
            is_match = check_resource_allowed(resource_url_from_server_url(self.url), resource)
        except ValueError:  # the value is not an address
            is_match = False
        if not is_match:
            raise LoginError(
                f"the server calls itself {visible_line(resource[:_SHOWN_CHARS])}, which is not its address, so a "
                "token for that name could be meant for another server"
            )
        issuer = issuers[0]
        if not isinstance(issuer, str):
            raise LoginError("the server does not give the address of its authorization server")
        self._check(issuer)
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, self.url):
            metadata = await self._get(url, "its authorization server")
            if metadata:
                scopes = " ".join(map(str, as_list(resource_metadata.get("scopes_supported")))) or None
                parsed_metadata = self._parse_metadata(metadata, issuer)
                return AuthorizationServer(str(metadata.get("issuer")), parsed_metadata, resource, scopes)
        raise LoginError(
            f"its authorization server {visible_line(issuer[:_SHOWN_CHARS])} publishes no metadata (RFC 8414)"
        )

    async def _discover_by_origin(self) -> AuthorizationServer:
        """Return the authorization server at the upstream's origin (revision 2025-03-26), which may lack metadata."""
        parts = urlsplit(resource_url_from_server_url(self.url))
        origin = f"{parts.scheme}://{parts.netloc}"
        self._check(origin)
        metadata = await self._get(f"{origin}/.well-known/oauth-authorization-server", "the server")
        if metadata:
            return AuthorizationServer(str(metadata.get("issuer")), self._parse_metadata(metadata, origin))
        paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "registration_endpoint": "register"}
        addresses = {name: f"{origin}/{path}" for name, path in paths.items()}
        challenges = {"code_challenge_methods_supported": [_PKCE]}  # that revision requires PKCE of every server
        return AuthorizationServer(origin, OAuthMetadata.model_validate({"issuer": origin, **addresses, **challenges}))

    def _parse_metadata(self, document: Json, issuer: str) -> OAuthMetadata:
        host = visible_line(urlsplit(issuer).netloc[:_SHOWN_CHARS])
        # Compare the issuer byte for byte (RFC 8414, 3.3), except for the slash of an empty path, before pydantic
        # normalises it.
        if not is_same_issuer(document.get("issuer"), issuer):
            raise LoginError(
                f"its authorization server {host} publishes the metadata of another one, so it is not trusted"
            )
        try:
            metadata = OAuthMetadata.model_validate(document)
        except ValidationError:
            raise LoginError(f"its authorization server {host} publishes invalid metadata (RFC 8414)") from None
        for address in (metadata.authorization_endpoint, metadata.token_endpoint, metadata.registration_endpoint):
            if address is not None:
                self._check(str(address))
        return metadata

    def _check(self, address: str) -> None:
        """Reject an address that is not safe (`is_safe`). Without TLS, both servers must be on this machine."""
        if not is_safe(address, may_be_local=is_local(self.url)):
            raise LoginError(
                f"the address of its authorization server, {visible_line(address[:_SHOWN_CHARS])}, is not a plain "
                "https address"
            )

    def check_pkce(self, server: AuthorizationServer) -> None:
        if _PKCE not in (server.metadata.code_challenge_methods_supported or ()) and not self.oauth.assume_pkce:
            raise server.problem(
                f"does not advertise PKCE with {_PKCE}; without PKCE, anyone who sees an authorization code could use "
                "the code. If you know that the server supports PKCE, set oauth.assumePkce: true"
            )

    async def register(
        self, server: AuthorizationServer, redirect_uri: str, scopes: str | None
    ) -> OAuthClientInformationFull:
        """Register this program with an authorization server (RFC 7591)."""
        endpoint = server.metadata.registration_endpoint
        if endpoint is None:
            raise server.problem(
                "does not let programs register themselves: register a client there with the callback address "
                f"{redirect_uri}, and set oauth.clientId, and oauth.clientSecret if there is one"
            )
        methods = server.metadata.token_endpoint_auth_methods_supported or ["none"]
        method = next((candidate for candidate in _REGISTERED_METHODS if candidate in methods), None)
        client_metadata = OAuthClientMetadata.model_validate(
            {
                "client_name": "coretools-mcp",
                "redirect_uris": [redirect_uri],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": method,
                # OpenID Connect Registration, 2: a native client's http redirect URIs must be loopback addresses.
                "application_type": "web" if redirect_uri.startswith("https:") else "native",
                "software_id": "coretools-mcp",
                "software_version": VERSION,
                "scope": scopes,
            }
        )
        body = client_metadata.model_dump(mode="json", exclude_none=True)
        status, answer = await self._fetch_json(httpx2.Request("POST", str(endpoint), json=body), server.label)
        # Some servers reject a scope here, but accept it later.
        if status in _INVALID and body.pop("scope", None) is not None:
            status, answer = await self._fetch_json(httpx2.Request("POST", str(endpoint), json=body), server.label)
        try:
            client = OAuthClientInformationFull.model_validate({"token_endpoint_auth_method": method, **answer})
        except ValidationError:
            client = None
        if client is None or status not in _SUCCESS:
            raise server.problem(f"did not register this program{_describe_failure(status, answer)}")
        if client.token_endpoint_auth_method in _SECRET_METHODS and not client.client_secret:
            raise server.problem("registered this program for authentication with a secret, but issued no secret")
        if client.token_endpoint_auth_method not in _REGISTERED_METHODS:
            raise server.problem("requires a client authentication method that this program does not support")
        return client

    async def is_registered(self, server: AuthorizationServer, client: OAuthClientInformationFull) -> bool:
        """Return whether the server may still know a client: a made-up token shows it, before a person gets a link."""
        form = {"grant_type": "refresh_token", "refresh_token": secrets.token_urlsafe(32)}
        try:
            await self._request_token(server, client, form)
        except LoginError as error:
            return error.code not in FORGOTTEN
        return True

    def authorization_request(
        self,
        server: AuthorizationServer,
        client: OAuthClientInformationFull,
        redirect_uri: str,
        scopes: str | None,
        state_prefix: str = "",
    ) -> AuthorizationRequest:
        """Build the authorization request (RFC 6749, 4.1.1; RFC 7636)."""
        verifier, state = secrets.token_urlsafe(64), f"{state_prefix}{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(verifier.encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": _PKCE,
        }
        if server.resource is not None:
            parameters["resource"] = server.resource
        if scopes:
            parameters["scope"] = scopes
            if "offline_access" in scopes.split():
                parameters["prompt"] = "consent"  # OpenID Connect Core, 11: otherwise the scope is ignored
        endpoint = str(server.metadata.authorization_endpoint)
        url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"
        if len(url) > ADDRESS_CHARS:
            raise LoginError(
                f"the login address of its authorization server {server.host} would have more than {ADDRESS_CHARS:,} "
                "characters with all these scopes: reduce them with oauth.scopes"
            )
        return AuthorizationRequest(url, state, verifier, redirect_uri)

    async def redeem(
        self, server: AuthorizationServer, client: OAuthClientInformationFull, request: AuthorizationRequest, code: str
    ) -> OAuthToken:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": request.redirect_uri}
        return await self._request_token(server, client, {**form, "code_verifier": request.verifier})

    async def refresh(
        self, server: AuthorizationServer, client: OAuthClientInformationFull, old_token: OAuthToken
    ) -> OAuthToken:
        """Exchange a refresh token for a new token. If the response has no new refresh token, the old one is kept."""
        form = {"grant_type": "refresh_token", "refresh_token": old_token.refresh_token or ""}
        token = await self._request_token(server, client, form)
        refresh_token, scope = token.refresh_token or old_token.refresh_token, token.scope or old_token.scope
        return token.model_copy(update={"refresh_token": refresh_token, "scope": scope})

    async def client_credentials(
        self, server: AuthorizationServer, client: OAuthClientInformationFull, scopes: str | None
    ) -> OAuthToken:
        """Get a token for this program itself, without a user (RFC 6749, 4.4)."""
        form = {"grant_type": "client_credentials"} | ({"scope": scopes} if scopes else {})
        oauth = self.oauth
        if oauth.private_key is not None:
            import jwt  # noqa: PLC0415 - needed only for logins with a private key

            now = time.time()
            claims = {
                "iss": oauth.client_id,
                "sub": oauth.client_id,
                "aud": server.issuer,
                "iat": int(now),
                "exp": int(now + ASSERTION_SECONDS),
                "jti": secrets.token_urlsafe(16),
            }
            try:
                assertion = jwt.encode(claims, oauth.private_key, algorithm=oauth.signing_algorithm)  # RFC 7523, 3
            except (ValueError, TypeError, jwt.PyJWTError):
                raise LoginError(
                    f"oauth.privateKey is not a private key (PEM) for the algorithm {oauth.signing_algorithm}"
                ) from None
            form |= {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
        return await self._request_token(server, client, form)

    async def revoke(self, server: AuthorizationServer, client: OAuthClientInformationFull, token: OAuthToken) -> None:
        """Revoke tokens (RFC 7009). If the authorization server does not support this, the tokens expire eventually."""
        if (endpoint := server.metadata.revocation_endpoint) is None:
            return
        self._check(str(endpoint))
        hint = "refresh_token" if token.refresh_token is not None else "access_token"
        form = {"token": token.refresh_token or token.access_token, "token_type_hint": hint}
        status, answer = await self._post(str(endpoint), form, server, client)
        if status != 200:
            raise server.problem(f"did not revoke the tokens{_describe_failure(status, answer)}")

    async def _request_token(
        self, server: AuthorizationServer, client: OAuthClientInformationFull, form: Mapping[str, str]
    ) -> OAuthToken:
        resource = {"resource": server.resource} if server.resource is not None else {}
        status, answer = await self._post(str(server.metadata.token_endpoint), {**form, **resource}, server, client)
        if not answer:  # the response may come from a captive portal, for example
            raise AuthorizationServerDownError(f"{server.label} sent an answer that is not JSON (HTTP status {status})")
        if status not in _SUCCESS or answer.get("error") is not None:  # some servers send errors with status 200
            raise server.problem(f"issued no token{_describe_failure(status, answer)}", error_code(answer))
        try:
            token = OAuthToken.model_validate(answer)
        except ValidationError:
            token = None
        if token is None or not all(
            value is None or (len(value) <= TOKEN_CHARS and _TOKEN.fullmatch(value))
            for value in (token.access_token, token.refresh_token)
        ):
            raise server.problem("did not issue a bearer token")
        if token.expires_in is not None and token.expires_in > LIFE_SECONDS:
            return token.model_copy(update={"expires_in": LIFE_SECONDS})
        return token

    async def _post(
        self, address: str, form: Mapping[str, str], server: AuthorizationServer, client: OAuthClientInformationFull
    ) -> tuple[int, Json]:
        """Post a form with client authentication (RFC 6749, 2.3)."""
        fields, headers = dict(form), {"accept": "application/json"}
        secret, method = client.client_secret, client.token_endpoint_auth_method
        if method == "client_secret_basic" and secret:
            pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            fields["client_id"] = client.client_id
            if method == "client_secret_post" and secret:
                fields["client_secret"] = secret
        request = httpx2.Request("POST", address, data=fields, headers=headers)
        status, answer = await self._fetch_json(request, server.label)
        secrets = SentSecrets()
        fields |= headers
        secrets.learn([item for item in fields.items() if is_secret_name(item[0]) or item[0].startswith("code")])
        return status, {**answer, _DETAIL: secrets.hide(str(answer[_DETAIL]))} if _DETAIL in answer else answer

    async def _get(self, address: str, sender: str) -> Json:
        """Return the JSON object at an address; empty if there is none, because many servers send a page instead."""
        self._check(address)
        request = httpx2.Request("GET", address, headers={"accept": "application/json"})
        status, answer = await self._fetch_json(request, sender)
        return answer if status == 200 else {}

    async def _fetch_json(self, request: httpx2.Request, sender: str) -> tuple[int, Json]:
        """Return the status of a response and its JSON object; empty if the response is anything else."""
        try:
            status, body = await fetch_json(request, by_proxy=self.by_proxy)
            scopes = as_list(body.get("scope"))  # some servers send an array
            return status, {**body, "scope": " ".join(map(str, scopes))} if scopes else body
        except NoJsonAnswerError as error:
            raise AuthorizationServerDownError(f"{sender} {error}") from None
        except LongAnswerError:
            raise LoginError(f"{sender} sent a response of more than {ANSWER_BYTES:,} bytes") from None


def wanted_scopes(
    server: AuthorizationServer, oauth: OAuthSettings, challenge: Challenge | None, previous_scopes: str | None
) -> str | None:
    """Return the scopes to request: the configured ones, else the challenge's, else all that the upstream supports.

    Unless scopes are configured, the `previous_scopes` are requested again, so that one call does not lose the scopes
    that another call has gained.
    """
    if oauth.scopes is not None:
        scopes = " ".join(oauth.scopes) or None
    else:
        challenge_scopes = challenge.parameter("scope") if challenge is not None else None
        scopes = union_scopes(previous_scopes, challenge_scopes if challenge_scopes is not None else server.scopes)
    supported_scopes = server.metadata.scopes_supported or ()
    if scopes and oauth.grant == "authorization-code" and "offline_access" in supported_scopes:
        scopes = union_scopes(scopes, "offline_access")  # otherwise some servers issue no refresh token
    return scopes


def configured_client(server: AuthorizationServer, oauth: OAuthSettings) -> OAuthClientInformationFull | None:
    """Return the client that the settings name; `None` if this program should register itself."""
    if oauth.client_id is not None:
        methods = server.metadata.token_endpoint_auth_methods_supported or _SECRET_METHODS
        usable_methods = [candidate for candidate in _SECRET_METHODS if candidate in methods] or list(_SECRET_METHODS)
        method = usable_methods[0] if oauth.client_secret is not None else "none"
        credentials = {"client_id": oauth.client_id, "client_secret": oauth.client_secret}
        return OAuthClientInformationFull.model_validate({**credentials, "token_endpoint_auth_method": method})
    if oauth.client_metadata_url is not None and server.metadata.client_id_metadata_document_supported:
        return OAuthClientInformationFull(client_id=oauth.client_metadata_url, token_endpoint_auth_method="none")  # noqa: S106
    return None


def may_be_reused(client: OAuthClientInformationFull, redirect_uri: str, scopes: str | None) -> bool:
    """Return whether a registration matches the callback address and scopes, and has not expired."""
    expires_at = client.client_secret_expires_at
    if client.scope is not None and not set((scopes or "").split()) <= set(client.scope.split()):
        return False
    return AnyUrl(redirect_uri) in (client.redirect_uris or ()) and not (expires_at and expires_at <= time.time())


def error_code(parameters: Mapping[str, Any]) -> str:
    """Return an error's code (RFC 6749, 4.1.2.1 and 5.2) if it is safe to show; otherwise empty."""
    code = parameters.get("error")
    return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def error_text(parameters: Mapping[str, Any]) -> str:
    """Return an error's code, and the server's description of the error; empty if there is no error."""
    code, description = error_code(parameters), parameters.get(_DETAIL)
    quotation = f'("{quoted(description)}")' if isinstance(description, str) and description else ""
    return " ".join(filter(None, (code, quotation)))


def is_same_issuer(first: Any, second: Any) -> bool:
    """Return whether two issuers are equal, apart from the slash of an empty path."""
    if first == second or not (isinstance(first, str) and isinstance(second, str)):
        return first == second
    shorter, longer = sorted((first, second), key=len)
    return longer == f"{shorter}/" and re.fullmatch(r"https?://[^/?#]+", shorter) is not None


def _describe_failure(status: int, answer: Json) -> str:
    """Return the part of a failed response that is safe to show."""
    if description := error_text(answer):
        return f": {description}"
    return f" (HTTP status {status}{'' if answer else ', not JSON'})"
