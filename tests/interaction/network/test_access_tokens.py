"""Access tokens of an authorization server: which ones are accepted, for which principal, and with which rights."""

from __future__ import annotations

import base64
import hmac
import json
import math
import string
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from server.clients.client_request import TokenRefusedError
from server.settings import SettingsError
from server.settings.server_models import IntrospectionSettings, IssuerSettings
from server.transports.issuer import Issuer, read_issuer
from tests.background_servers import free_port, served_by_thread
from tests.conformance.fetch import is_fetched
from tests.harness import HANDSHAKE, MODERN, PEERS, stdio_upstream, write_config
from tests.interaction.login.scene import AuthorizationServer, authorization_server
from tests.interaction.network.test_who_is_let_in import ACCEPT, INITIALIZE, bearer, client_of, serving, write_settings

pytestmark = pytest.mark.anyio

RESOURCE = "https://tools.example.com/team/mcp"
SCOPES = "read write run upstream:*"
SECRET = "s" * 32
PEOPLE = ("alice", "bob", "server")
OLD, NEW = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
LONG = ec.generate_private_key(ec.SECP384R1())
ES256 = ECAlgorithm(ECAlgorithm.SHA256)
ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"  # of base64url, in order


def options(port: int, key: ec.EllipticCurvePrivateKey, kid: str) -> str:
    """Options of the authorization server. The tests have its key, so that they can sign tokens that it would not."""
    jwk = ECAlgorithm.to_jwk(key, as_dict=True)
    client = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": [], "client_secret": SECRET}
    return json.dumps(
        {
            "port": port,
            "keys": [{**jwk, "alg": "ES256", "use": "sig", "kid": kid}],
            "scopes": SCOPES,
            "clients": [{**client, "client_id": name} for name in PEOPLE],
        }
    )


@pytest.fixture(scope="module")
def company() -> Generator[AuthorizationServer]:
    """The authorization server of a company."""
    if not is_fetched():
        pytest.skip("not run: the authorization server is missing; `python -P tests/conformance/fetch.py` fetches it")
    with authorization_server(options(0, OLD, "old")) as server:
        yield server


def token_of(server: AuthorizationServer, name: str, scope: str = "read", resource: str = RESOURCE) -> str:
    """A token that the authorization server issues."""
    form = {"grant_type": "client_credentials", "scope": scope, "resource": resource}
    answer = httpx2.post(f"{server.base}/token", data=form, auth=(name, SECRET))
    assert answer.status_code == 200, answer.text
    return answer.json()["access_token"]


def sign_token(issuer: str, claims: Mapping[str, Any] | None = None, **options: Any) -> str:
    """A token that the test signs, by default with the key of the authorization server."""
    now = int(time.time())
    default_claims = {"iss": issuer, "sub": "alice", "aud": RESOURCE, "exp": now + 300, "iat": now, "scope": "read"}
    payload = {name: value for name, value in {**default_claims, **(claims or {})}.items() if value is not None}
    headers = {"kid": "old", "typ": "at+jwt", **options.pop("headers", {})}
    return jwt.encode(payload, options.pop("key", OLD), algorithm=options.pop("algorithm", "ES256"), headers=headers)


def as_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def issuer_of(server: AuthorizationServer, **fields: Any) -> Issuer:
    return Issuer(IssuerSettings(issuer=server.base, resource=RESOURCE, **fields), SECRET)


async def refusal(issuer: Issuer, token: str) -> TokenRefusedError:
    with pytest.raises(TokenRefusedError) as error_info:
        await issuer.principal_with(token)
    return error_info.value


class AnyIssuer(Protocol):
    base: str


@asynccontextmanager
async def server_trusting(root: Path, folder: Path, server: AnyIssuer, **settings: Any) -> AsyncGenerator[str]:
    """Run a server that accepts the tokens of an authorization server."""
    oauth = {"issuer": server.base, "resource": RESOURCE, **settings.pop("oauth", {})}
    http = {"oauth": oauth, **settings.pop("http", {})}
    async with serving(root, write_config(folder, {"http": http, "shell": {"sandbox": "off"}, **settings})) as url:
        yield url


@asynccontextmanager
async def client_with(url: str, token: str, mode: str = HANDSHAKE) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, cache=None) as client,
    ):
        yield client


async def names_of(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.requirement("oauth.tokens")
async def test_a_token_of_the_issuer_tells_the_principal_and_the_rights(company: AuthorizationServer) -> None:
    issuer = issuer_of(company)
    alice = await issuer.principal_with(token_of(company, "alice", "read run"))
    assert alice.unique_name == f"{company.base} alice"
    assert alice.rights.scopes == {"read", "run"}
    assert (await issuer.principal_with(token_of(company, "bob"))).unique_name == f"{company.base} bob"
    for kind in ("JWT", "application/at+jwt", None):
        assert await issuer.principal_with(sign_token(company.base, headers={"typ": kind}))
    assert await issuer.principal_with(sign_token(company.base, {"aud": ["https://x.example.com", RESOURCE]}))


RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
SOON, PAST = 86_400, -120  # seconds from the import of this module, which may be long before a test runs
BAD: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "expired": ({"exp": time.time() + PAST}, {}, "expired"),
    "without an end": ({"exp": None}, {}, "not valid"),
    "with an end as a string": ({"exp": str(time.time() + SOON)}, {}, "not valid"),
    "with an infinite end": ({"exp": math.inf}, {}, "not valid"),
    "not valid yet": ({"nbf": time.time() + SOON}, {}, "not valid"),
    "issued tomorrow": ({"iat": time.time() + SOON}, {}, "not valid"),
    "issued at a time in words": ({"iat": "today"}, {}, "not valid"),
    "for another audience": ({"aud": "https://other.example.com/mcp"}, {}, "another audience"),
    "for a part of our URL": ({"aud": "https://tools.example.com"}, {}, "another audience"),
    "for our URL with a slash at the end": ({"aud": f"{RESOURCE}/"}, {}, "another audience"),
    "without an audience": ({"aud": None}, {}, "not valid"),
    "for us and for a number": ({"aud": [RESOURCE, 1]}, {}, "another audience"),
    "for an object": ({"aud": {RESOURCE: True}}, {}, "another audience"),
    "of another issuer": ({"iss": "https://other.example.com"}, {}, "another issuer"),
    "of the issuer with a slash": ({"iss": "SLASH"}, {}, "another issuer"),
    "not signed": ({}, {"algorithm": "none", "key": None}, "signature algorithm is not accepted"),
    "signed by a secret": ({}, {"algorithm": "HS256", "key": SECRET}, "signature algorithm is not accepted"),
    "signed by another key": ({}, {"key": NEW}, "not valid"),
    "signed by a key of another family": ({}, {"key": RSA, "algorithm": "RS256"}, "key that the issuer does not have"),
    "signed on another curve": ({}, {"key": LONG, "algorithm": "ES384"}, "signature algorithm is not accepted"),
    "with a critical extension": ({}, {"headers": {"crit": ["exp"], "exp": 1}}, "not valid"),
    "with an empty list of extensions": ({}, {"headers": {"crit": []}}, "not valid"),
    "another kind of token": ({}, {"headers": {"typ": "logout+jwt"}}, "not an access token"),
    "an ID token": ({"at_hash": "x"}, {}, "not an access token"),
    "bound to a key": ({"cnf": {"jkt": "x"}}, {}, "bound to a key"),
    "without a subject": ({"sub": None}, {}, "has no subject"),
    "with a number as its subject": ({"sub": 1}, {}, "not valid"),
    "with a number for its id": ({"jti": 1}, {}, "not valid"),
    "with half a character as its subject": ({"sub": "\ud800"}, {}, "not a usable string"),
}


@pytest.mark.requirement("oauth.refused")
@pytest.mark.parametrize("name", BAD)
async def test_a_token_that_is_not_for_us_is_refused_with_the_reason(company: AuthorizationServer, name: str) -> None:
    claims, options, reason = BAD[name]
    claims = {key: f"{company.base}/" if value == "SLASH" else value for key, value in claims.items()}
    error = await refusal(issuer_of(company), sign_token(company.base, claims, **dict(options)))
    assert reason in str(error)
    assert (error.status, error.code) == (401, "invalid_token")


@pytest.mark.requirement("oauth.refused")
async def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(company: AuthorizationServer) -> None:
    """The classic algorithm-confusion attack. The token is made by hand, because libraries refuse to make it."""
    pem = OLD.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    token = sign_token(company.base)
    header = as_base64(json.dumps({"alg": "HS256", "kid": "old", "typ": "at+jwt"}).encode())
    signing_input = f"{header}.{token.split('.')[1]}"
    forgery = f"{signing_input}.{as_base64(hmac.new(pem, signing_input.encode(), sha256).digest())}"
    assert "signature algorithm is not accepted" in str(await refusal(issuer_of(company), forgery))


@pytest.mark.requirement("oauth.refused")
@pytest.mark.parametrize("token", ["x", "a.b.c", "....", "é\x00", "e30.e30.", "x" * 20_000, "\udcff"])
async def test_garbage_is_refused_and_nobody_is_asked(company: AuthorizationServer, token: str) -> None:
    company.post("/reset")
    assert (await refusal(issuer_of(company), token)).status == 401
    assert company.get("/counts")["requests"].keys() <= {"/reset", "/counts"}


@pytest.mark.requirement("oauth.refused")
async def test_a_token_is_accepted_only_in_one_spelling_and_only_with_claims(company: AuthorizationServer) -> None:
    issuer = issuer_of(company)
    header, payload, signature = sign_token(company.base).split(".")
    last = ALPHABET[ALPHABET.index(signature[-1]) + 1]  # its lowest bits are unused, so the bytes are the same
    spellings = [f"{signature[:-1]}{last}", f"{signature}==", f"{signature[:9]}!{signature[9:]}", f"{signature} ", ""]
    for spelling in spellings:
        assert "not valid" in str(await refusal(issuer, f"{header}.{payload}.{spelling}"))
    crit_header = as_base64(json.dumps({"alg": "ES256", "kid": "old", "b64": False, "crit": ["b64"]}).encode())
    for head, text in (
        (header, b"[]"),
        (header, b"{"),
        (header, b"[" * 9_000),
        (header, b"\xff"),
        (crit_header, b"{}"),
    ):
        begin = f"{head}.{as_base64(text)}"
        proof = ES256.sign(begin.encode(), OLD)
        assert "not valid" in str(await refusal(issuer, f"{begin}.{as_base64(proof)}"))
    assert await issuer.principal_with(f"{header}.{payload}.{signature}")


@pytest.mark.requirement("oauth.refused")
async def test_a_key_is_accepted_only_with_its_own_curve(tmp_path: Path) -> None:
    """The issuer publishes a key without an algorithm, and signs with another curve than the header says."""
    jwk = {**ECAlgorithm.to_jwk(LONG.public_key(), as_dict=True), "kid": "old"}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk]}))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    with served_by_thread(server):
        name = f"http://127.0.0.1:{server.server_port}"
        issuer = Issuer(IssuerSettings(issuer=name, resource=RESOURCE, jwks_uri=f"{name}/keys.json"))
        header = as_base64(json.dumps({"alg": "ES256", "kid": "old"}).encode())
        begin = f"{header}.{sign_token(name).split('.')[1]}"
        proof = as_base64(ES256.sign(begin.encode(), LONG))
        assert "not valid" in str(await refusal(issuer, f"{begin}.{proof}"))


@pytest.mark.requirement("oauth.scopes")
async def test_a_token_without_a_known_or_required_scope_is_insufficient(company: AuthorizationServer) -> None:
    error = await refusal(issuer_of(company), sign_token(company.base, {"scope": "openid profile"}))
    assert (error.status, error.code) == (403, "insufficient_scope")
    assert error.scope == SCOPES
    strict_issuer = issuer_of(company, required_scopes=("openid",), default_scopes=("read",))
    error = await refusal(strict_issuer, sign_token(company.base))
    assert (error.status, error.scope) == (403, "openid")
    principal = await strict_issuer.principal_with(sign_token(company.base, {"scope": "openid"}))
    assert principal.rights.scopes == {"read"}
    prefix_issuer = issuer_of(company, scope_prefix="tools.")
    principal = await prefix_issuer.principal_with(
        sign_token(company.base, {"scope": None, "scp": ["tools.read", "write"]})
    )
    assert principal.rights.scopes == {"read"}


@pytest.mark.requirement("oauth.keys")
async def test_a_thousand_unknown_keys_cause_one_fetch(company: AuthorizationServer) -> None:
    company.post("/reset")
    issuer = issuer_of(company)
    await issuer.principal_with(sign_token(company.base))
    tokens = [sign_token(company.base, key=NEW, headers={"kid": f"key-{number}"}) for number in range(1_000)]
    async with anyio.create_task_group() as tasks:
        for token in tokens:
            tasks.start_soon(refusal, issuer, token)
    assert company.requests("/jwks") == 1
    await issuer.principal_with(sign_token(company.base, {"sub": "bob"}))


@pytest.mark.requirement("oauth.keys")
async def test_a_new_key_is_accepted_after_a_while_and_a_removed_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()

    def new_token() -> str:
        return sign_token(f"http://127.0.0.1:{port}", key=NEW, headers={"kid": "new"})

    if not is_fetched():
        pytest.skip("not run: the authorization server is missing; `python -P tests/conformance/fetch.py` fetches it")
    with authorization_server(options(port, OLD, "old")) as company:
        issuer = issuer_of(company)
        await issuer.principal_with(sign_token(company.base))
        assert "does not have" in str(await refusal(issuer, new_token()))
    # The issuer is down: known keys still work, and nothing can be said about unknown ones.
    monkeypatch.setattr("server.transports.issuer.FETCH_SECONDS", 0.0)
    await issuer.principal_with(sign_token(company.base, {"sub": "bob"}))
    error = await refusal(issuer, new_token())
    assert (error.status, error.code) == (503, "")
    with authorization_server(options(port, NEW, "new")):
        await issuer.principal_with(new_token())
        assert "does not have" in str(await refusal(issuer, sign_token(company.base, {"sub": "carol"})))


@pytest.mark.requirement("oauth.introspection")
async def test_an_opaque_token_is_introspected_once_a_minute(company: AuthorizationServer) -> None:
    company.post("/reset")
    company.switch(format="opaque")
    introspection = IntrospectionSettings(url=f"{company.base}/token/introspection", client_id="server")
    issuer = issuer_of(company, introspection=introspection)
    alice, bob = token_of(company, "alice", "read write"), token_of(company, "bob")
    foreign_token = token_of(company, "alice", "read", "https://other.example.com/mcp")
    assert "." not in alice
    for _ in range(3):
        principal = await issuer.principal_with(alice)
        assert principal.unique_name == f"program alice of {company.base}"
        assert principal.rights.scopes == {"read", "write"}
    assert (await issuer.principal_with(bob)).unique_name == f"program bob of {company.base}"
    for _ in range(3):
        assert "expired, or is not from the issuer" in str(await refusal(issuer, "never-given"))
    assert "another audience" in str(await refusal(issuer, foreign_token))
    assert company.requests("/token/introspection") == 4
    new_token = token_of(company, "alice", "read")
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(issuer.principal_with, new_token)
    assert company.requests("/token/introspection") == 5
    assert "not from the issuer" in str(await refusal(issuer_of(company), alice))
    company.post("/reset")


@pytest.mark.requirement("oauth.challenge")
async def test_the_metadata_of_a_resource_whose_address_ends_in_a_slash_is_where_clients_are_told(
    root: Path, tmp_path: Path, company: AuthorizationServer
) -> None:
    settings = {"resource": f"{RESOURCE}/"}
    async with (
        server_trusting(root, tmp_path, company, oauth=settings) as url,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        challenge = (await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)).headers["www-authenticate"]
        address = challenge.partition('resource_metadata="https://tools.example.com')[2].rstrip('"')
        assert address.endswith("/team/mcp/")
        assert (await http.get(address)).json()["resource"] == f"{RESOURCE}/"


@pytest.mark.requirement("oauth.challenge")
async def test_clients_are_told_where_to_log_in(root: Path, tmp_path: Path, company: AuthorizationServer) -> None:
    company.post("/reset")
    async with server_trusting(root, tmp_path, company) as url, httpx2.AsyncClient(base_url=url) as http:
        metadata_url = "https://tools.example.com/.well-known/oauth-protected-resource/team/mcp"
        no_token = await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        assert no_token.status_code == 401
        assert no_token.headers["www-authenticate"] == f'Bearer resource_metadata="{metadata_url}"'
        for path in ("/.well-known/oauth-protected-resource/team/mcp", "/.well-known/oauth-protected-resource"):
            metadata = await http.get(path, headers={"origin": "https://claude.ai"})
            assert metadata.json()["resource"] == RESOURCE
            assert metadata.json()["authorization_servers"] == [company.base]
            assert metadata.json()["scopes_supported"] == SCOPES.split()
            assert metadata.headers["access-control-allow-origin"] == "*"
        for path in ("/mcp", "/sse", "/messages/"):
            wrong_token = await http.request(
                "GET" if path == "/sse" else "POST", path, headers={"authorization": "Bearer wrong", **ACCEPT}
            )
            assert wrong_token.status_code == 401
            assert 'error="invalid_token"' in wrong_token.headers["www-authenticate"]
            assert f'resource_metadata="{metadata_url}"' in wrong_token.headers["www-authenticate"]
        weak_token = sign_token(company.base, {"scope": "email"})
        no_scope = await http.post("/mcp", json=INITIALIZE, headers={"authorization": f"Bearer {weak_token}", **ACCEPT})
        assert no_scope.status_code == 403
        assert 'error="insufficient_scope"' in no_scope.headers["www-authenticate"]
        assert f'scope="{SCOPES}"' in no_scope.headers["www-authenticate"]
        assert weak_token not in no_scope.text


@pytest.mark.requirement("oauth.scopes")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_tools_outside_the_rights_of_a_token_are_not_listed_and_the_refusal_names_the_missing_scope(
    root: Path, tmp_path: Path, company: AuthorizationServer, mode: str
) -> None:
    (root / "here.txt").write_text("to read\n")
    async with server_trusting(root, tmp_path, company, permissions={"allow": ["*"]}) as url:
        async with client_with(url, token_of(company, "alice", "read"), mode) as client:
            names = await names_of(client)
            assert {"read_file", "grep_search", "todo_write"} <= names
            assert names.isdisjoint({"edit", "write_file", "run_shell_command", "save_memory", "undo_change"})
            result = await client.call_tool("read_file", {"absolute_path": str(root / "here.txt")})
            assert not result.is_error
            refusal = await client.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            assert refusal.is_error
            assert "needs the scope write, which this client's token does not have" in str(refusal.content)
            refusal = await client.call_tool("run_shell_command", {"command": "true"})
            assert "needs the scope run" in str(refusal.content)
        assert not (root / "new.txt").exists()
        async with client_with(url, token_of(company, "bob", "write"), mode) as client:
            assert {"read_file", "write_file"} <= await names_of(client)
            result = await client.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            assert not result.is_error, result.content
        async with client_with(url, token_of(company, "alice", "run"), mode) as client:
            assert await names_of(client) & {"read_file", "write_file", "run_shell_command"} == {"run_shell_command"}
            with pytest.raises(MCPError, match="needs the scope read"):
                await client.read_resource(f"file://{root}/here.txt")


@pytest.mark.requirement("oauth.principals")
async def test_two_users_of_one_issuer_see_nothing_of_each_other(
    root: Path, tmp_path: Path, company: AuthorizationServer
) -> None:
    for name in ("alice", "bob"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.txt").write_text(f"of {name}\n")
    principals = {
        "alice": {"workspace": [str(tmp_path / "alice")]},
        "bob": {"workspace": [str(tmp_path / "bob")], "rules": {"deny": ["Read(secret.txt)"]}},
    }
    audit = tmp_path / "audit.jsonl"
    token_settings = write_settings(tmp_path)  # tokens of the settings are accepted too
    named_tokens = json.loads(token_settings.read_text())["http"]["tokens"]
    settings = {"permissions": {"allow": ["Bash"]}, "log": {"audit": str(audit)}, "http": {"tokens": named_tokens}}
    async with server_trusting(root, tmp_path, company, oauth={"principals": principals}, **settings) as url:
        async with (
            client_with(url, token_of(company, "alice", "read run")) as alice,
            client_with(url, token_of(company, "bob", "read run"), MODERN) as bob,
        ):
            for client, name, other_name in ((alice, "alice", "bob"), (bob, "bob", "alice")):
                result = await client.call_tool("read_file", {"absolute_path": str(tmp_path / name / "own.txt")})
                assert f"of {name}" in str(result.content)
                refusal = await client.call_tool("read_file", {"absolute_path": str(tmp_path / other_name / "own.txt")})
                assert refusal.is_error
                files = await client.call_tool("glob", {"pattern": "*.txt"})
                assert str(tmp_path / other_name) not in str(files.content)
                assert other_name not in (client.instructions or "")
            job = await alice.call_tool("run_shell_command", {"command": "sleep 300", "is_background": True})
            assert not job.is_error, job.content
            assert "sleep 300" in str((await alice.call_tool("list_background_jobs", {})).content)
            assert "sleep 300" not in str((await bob.call_tool("list_background_jobs", {})).content)
        # Another token of the same user and the same program: her job is there.
        async with client_with(url, token_of(company, "alice"), MODERN) as second_client:
            assert "sleep 300" in str((await second_client.call_tool("list_background_jobs", {})).content)
            assert "run_shell_command" not in await names_of(second_client)
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {record["principal"] for record in records} == {f"{company.base} alice", f"{company.base} bob"}


@pytest.mark.requirement("oauth.scopes")
async def test_upstreams_are_only_for_tokens_that_name_them(
    root: Path, tmp_path: Path, company: AuthorizationServer
) -> None:
    def entry(name: str) -> dict[str, Any]:
        lists = {
            "tools": [{"name": "look", "inputSchema": {"type": "object"}}],
            "prompts": [{"name": "greet"}],
            "resources": [{"uri": f"x://{name}", "name": name}],
        }
        orders = json.dumps({"name": name, **lists})
        command = {"command": sys.executable, "args": ["-S", str(PEERS / "listing_upstream.py"), orders], "trust": True}
        return {**command, "description": f"what {name} is for"}

    servers = {"mcpServers": {"docs": entry("docs"), "bank": entry("bank")}}
    async with server_trusting(root, tmp_path, company, **servers) as url:
        for mode in (HANDSHAKE, MODERN):
            async with client_with(url, sign_token(company.base, {"scope": "upstream:docs"}), mode) as client:
                assert await names_of(client) == {"docs__look"}
                assert not (await client.call_tool("docs__look", {})).is_error
                refusal = await client.call_tool("bank__look", {})
                assert "needs the scope upstream:bank" in str(refusal.content)
                assert {str(resource.uri) for resource in (await client.list_resources()).resources} >= {"x://docs"}
                assert "x://bank" not in str(await client.list_resources())
                assert "bank" not in str(await client.list_prompts())
                assert "from docs" in str(await client.read_resource("x://docs"))
                with pytest.raises(MCPError, match="needs the scope upstream:bank"):
                    await client.read_resource("x://bank")
                with pytest.raises(MCPError, match="needs the scope upstream:bank"):
                    await client.get_prompt("bank__greet")
                if mode == HANDSHAKE:
                    assert "docs is for" in (client.instructions or "")
                    assert "bank" not in (client.instructions or "")
            async with client_with(url, sign_token(company.base, {"scope": "upstream:*"}), mode) as client:
                assert await names_of(client) == {"docs__look", "bank__look"}


@pytest.mark.requirement("oauth.scopes")
async def test_a_search_finds_only_tools_within_the_rights_of_the_token(
    root: Path, tmp_path: Path, company: AuthorizationServer
) -> None:
    servers = {"docs": stdio_upstream(description="texts"), "bank": stdio_upstream(description="money")}
    async with (
        server_trusting(
            root, tmp_path, company, mcpServers=servers, proxy={"search": "on", "firstListWait": 30_000}
        ) as url,
        client_with(url, sign_token(company.base, {"scope": "upstream:docs"})) as client,
    ):
        tool_list = str(await client.list_tools())
        assert "docs" in tool_list
        assert "bank" not in tool_list
        matches = await client.call_tool("search_tools", {"query": "echo", "limit": 20})
        assert "docs__echo" in str(matches.content)
        assert "bank" not in str(matches.content)
        assert (await client.call_tool("describe_tool", {"name": "bank__echo"})).is_error
        assert (await client.call_tool("call_tool", {"name": "bank__echo", "arguments": {"text": "x"}})).is_error


@pytest.mark.requirement("network.profiles")
async def test_a_token_of_the_settings_has_folders_tools_and_rules_of_its_own(root: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "for-bot").mkdir()
    (folder / "seen.txt").write_text("a word\n")
    (folder / "secret.txt").write_text("a word\n")
    config = write_settings(tmp_path, {"permissions": {"deny": ["Bash"]}})
    settings = json.loads(config.read_text())
    rules = {"allow": ["Edit", "Bash"], "ask": [], "deny": ["Read(secret.txt)", "glob"]}
    settings["http"]["tokens"]["bot"] |= {"workspace": ["for-bot"], "profile": "core", "rules": rules}
    config.write_text(json.dumps(settings))
    async with serving(root, config) as url:
        async with client_of(url, "bot") as bot:
            names = await names_of(bot)
            assert {"read_file", "edit"} <= names
            assert names.isdisjoint({"web_fetch", "todo_write", "glob", "run_shell_command"})
            assert str(folder) in (bot.instructions or "")
            matches = str((await bot.call_tool("grep_search", {"pattern": "a word"})).content)
            assert "seen.txt" in matches
            assert "secret.txt" not in matches
            result = await bot.call_tool("write_file", {"file_path": str(folder / "new.txt"), "content": "x"})
            assert not result.is_error, result.content
            refusal = await bot.call_tool("list_directory", {"path": str(root)})
            assert refusal.is_error
        async with client_of(url, "laptop") as laptop:
            assert {"glob", "todo_write"} <= await names_of(laptop)
            refusal = await laptop.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            assert "The user could not be asked" in str(refusal.content)


@pytest.mark.requirement("network.profiles")
async def test_a_client_with_rights_of_its_own_gets_no_instructions_if_there_is_nothing_to_say(
    root: Path, tmp_path: Path
) -> None:
    config = write_settings(tmp_path, {"tools": {"builtIn": False}})
    settings = json.loads(config.read_text())
    settings["http"]["tokens"]["bot"]["profile"] = "core"
    config.write_text(json.dumps(settings))
    client_info = INITIALIZE["params"]["clientInfo"]
    fields: dict[str, Any] = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": client_info}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in fields.items()}
    discover: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
    modern_headers: dict[str, str] = {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}
    async with serving(root, config) as url, httpx2.AsyncClient() as http:
        for request, headers in ((INITIALIZE, dict[str, str]()), (discover, modern_headers)):
            answer = await http.post(f"{url}/mcp", json=request, headers=ACCEPT | bearer("bot") | headers)
            assert "serverInfo" in answer.text
            assert '"instructions"' not in answer.text


@pytest.mark.requirement("oauth.settings")
async def test_an_unusable_issuer_stops_the_start_with_all_its_problems() -> None:
    introspection = IntrospectionSettings(url="http://login.example.com/introspect", client_id="server", env="MISSING")
    settings = IssuerSettings(
        issuer="http://login.example.com",
        resource="tools.example.com",
        default_scopes=("everything",),
        introspection=introspection,
    )
    with pytest.raises(SettingsError) as error_info:
        read_issuer(settings, {})
    keys = ("issuer", "introspection.url", "resource", "defaultScopes", "introspection.env")
    assert len(error_info.value.problems) == len(keys)
    for problem, key in zip(error_info.value.problems, keys, strict=True):
        assert problem.startswith(f"http.oauth.{key} ")


@pytest.mark.requirement("oauth.settings")
def test_known_scopes_and_scopes_of_an_upstream_may_be_the_default() -> None:
    settings = IssuerSettings(
        issuer="https://login.example.com",
        resource="https://tools.example.com/mcp",
        default_scopes=("read", "upstream:docs"),
    )
    assert read_issuer(settings, {}) is not None


@pytest.mark.requirement("oauth.settings")
def test_without_an_issuer_none_of_its_modules_are_loaded() -> None:
    program = (
        "import sys, server.run_server, server.transports.http_server\n"
        "unwanted = 'jwt', 'server.transports.issuer', 'server.network.outbound_http'\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
