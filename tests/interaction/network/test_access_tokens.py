"""Access tokens of an authorization server: who is let in, as whom, and what each token gives."""

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
from server.settings.models import IntrospectionSettings, IssuerSettings
from server.transports.issuer import Issuer, read_issuer
from tests.background_servers import free_port, served_by_thread
from tests.conformance.fetch import is_fetched
from tests.harness import HANDSHAKE, MODERN, PEERS, stdio_upstream, write_config
from tests.interaction.login.scene import AuthorizationServer, authorization_server
from tests.interaction.network.test_who_is_let_in import ACCEPT, INITIALIZE, bearer, client_of, serving
from tests.interaction.network.test_who_is_let_in import settings as with_tokens

pytestmark = pytest.mark.anyio

RESOURCE = "https://tools.example.com/team/mcp"
SCOPES = "read write run upstream:*"
SECRET = "s" * 32
PEOPLE = ("alice", "bob", "server")
OLD, NEW = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
LONG = ec.generate_private_key(ec.SECP384R1())
ES256 = ECAlgorithm(ECAlgorithm.SHA256)
ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"  # of base64url, in its order


def options(port: int, key: ec.EllipticCurvePrivateKey, kid: str) -> str:
    """How the authorization server is to be; the tests know its key, so that they can sign what it would not."""
    jwk = ECAlgorithm.to_jwk(key, as_dict=True)
    known = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": [], "client_secret": SECRET}
    return json.dumps(
        {
            "port": port,
            "keys": [{**jwk, "alg": "ES256", "use": "sig", "kid": kid}],
            "scopes": SCOPES,
            "clients": [{**known, "client_id": name} for name in PEOPLE],
        }
    )


@pytest.fixture(scope="module")
def company() -> Generator[AuthorizationServer]:
    """The authorization server of a company."""
    if not is_fetched():
        pytest.skip("not run: the authorization server is not here; `python -P tests/conformance/fetch.py` brings it")
    with authorization_server(options(0, OLD, "old")) as server:
        yield server


def token_of(server: AuthorizationServer, name: str, scope: str = "read", resource: str = RESOURCE) -> str:
    """A token that the authorization server gives out."""
    form = {"grant_type": "client_credentials", "scope": scope, "resource": resource}
    answer = httpx2.post(f"{server.base}/token", data=form, auth=(name, SECRET))
    assert answer.status_code == 200, answer.text
    return answer.json()["access_token"]


def signed(issuer: str, claims: Mapping[str, Any] | None = None, **how: Any) -> str:
    """A token that only its key makes one of the authorization server."""
    now = int(time.time())
    usual = {"iss": issuer, "sub": "alice", "aud": RESOURCE, "exp": now + 300, "iat": now, "scope": "read"}
    said = {name: value for name, value in {**usual, **(claims or {})}.items() if value is not None}
    headers = {"kid": "old", "typ": "at+jwt", **how.pop("headers", {})}
    return jwt.encode(said, how.pop("key", OLD), algorithm=how.pop("algorithm", "ES256"), headers=headers)


def as_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def issuer_of(server: AuthorizationServer, **more: Any) -> Issuer:
    return Issuer(IssuerSettings(issuer=server.base, resource=RESOURCE, **more), SECRET)


async def refusal(issuer: Issuer, token: str) -> TokenRefusedError:
    with pytest.raises(TokenRefusedError) as refused:
        await issuer.principal_with(token)
    return refused.value


class AnyIssuer(Protocol):
    base: str


@asynccontextmanager
async def served(root: Path, folder: Path, server: AnyIssuer, **more: Any) -> AsyncGenerator[str]:
    """A server that takes the tokens of the company."""
    oauth = {"issuer": server.base, "resource": RESOURCE, **more.pop("oauth", {})}
    http = {"oauth": oauth, **more.pop("http", {})}
    async with serving(root, write_config(folder, {"http": http, "shell": {"sandbox": "off"}, **more})) as url:
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
async def test_a_token_of_the_issuer_tells_who_it_is_and_what_it_gives(company: AuthorizationServer) -> None:
    issuer = issuer_of(company)
    alice = await issuer.principal_with(token_of(company, "alice", "read run"))
    assert alice.unique_name == f"{company.base} alice"
    assert alice.rights.scopes == {"read", "run"}
    assert (await issuer.principal_with(token_of(company, "bob"))).unique_name == f"{company.base} bob"
    for kind in ("JWT", "application/at+jwt", None):
        assert await issuer.principal_with(signed(company.base, headers={"typ": kind}))
    assert await issuer.principal_with(signed(company.base, {"aud": ["https://x.example.com", RESOURCE]}))


RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
SOON, PAST = 86_400, -120  # seconds from when the tests were read, which may be long before one of them runs
BAD: Mapping[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "expired": ({"exp": time.time() + PAST}, {}, "expired"),
    "without an end": ({"exp": None}, {}, "not valid"),
    "with an end in words": ({"exp": str(time.time() + SOON)}, {}, "not valid"),
    "without an end in sight": ({"exp": math.inf}, {}, "not valid"),
    "not valid yet": ({"nbf": time.time() + SOON}, {}, "not valid"),
    "of tomorrow": ({"iat": time.time() + SOON}, {}, "not valid"),
    "of nobody knows when": ({"iat": "today"}, {}, "not valid"),
    "for another audience": ({"aud": "https://other.example.com/mcp"}, {}, "another audience"),
    "for a part of our address": ({"aud": "https://tools.example.com"}, {}, "another audience"),
    "for nobody": ({"aud": None}, {}, "not valid"),
    "for us and a number": ({"aud": [RESOURCE, 1]}, {}, "another audience"),
    "for a table": ({"aud": {RESOURCE: True}}, {}, "another audience"),
    "of another issuer": ({"iss": "https://other.example.com"}, {}, "another issuer"),
    "of the issuer with a slash": ({"iss": "SLASH"}, {}, "another issuer"),
    "not signed": ({}, {"algorithm": "none", "key": None}, "signature algorithm is not accepted"),
    "signed by a secret": ({}, {"algorithm": "HS256", "key": SECRET}, "signature algorithm is not accepted"),
    "signed by another key": ({}, {"key": NEW}, "not valid"),
    "signed by a key of another family": ({}, {"key": RSA, "algorithm": "RS256"}, "key that the issuer does not have"),
    "signed on another curve": ({}, {"key": LONG, "algorithm": "ES384"}, "signature algorithm is not accepted"),
    "with an extension that counts": ({}, {"headers": {"crit": ["exp"], "exp": 1}}, "not valid"),
    "with an extension of no kind": ({}, {"headers": {"crit": []}}, "not valid"),
    "another kind of token": ({}, {"headers": {"typ": "logout+jwt"}}, "not an access token"),
    "about a login": ({"at_hash": "x"}, {}, "not an access token"),
    "bound to a key": ({"cnf": {"jkt": "x"}}, {}, "bound to a key"),
    "of nobody": ({"sub": None}, {}, "has no subject"),
    "of a number": ({"sub": 1}, {}, "not valid"),
    "with a number for its id": ({"jti": 1}, {}, "not valid"),
    "of half a character": ({"sub": "\ud800"}, {}, "not a usable string"),
}


@pytest.mark.requirement("oauth.refused")
@pytest.mark.parametrize("name", BAD)
async def test_a_token_that_is_not_for_us_is_refused_with_the_reason(company: AuthorizationServer, name: str) -> None:
    claims, how, said = BAD[name]
    claims = {key: f"{company.base}/" if value == "SLASH" else value for key, value in claims.items()}
    refused = await refusal(issuer_of(company), signed(company.base, claims, **dict(how)))
    assert said in str(refused)
    assert (refused.status, refused.code) == (401, "invalid_token")


@pytest.mark.requirement("oauth.refused")
async def test_the_public_key_is_no_secret_to_sign_with(company: AuthorizationServer) -> None:
    """The attack that gave the confusion of algorithms its name, by hand: libraries refuse to make such a token."""
    pem = OLD.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    honest = signed(company.base)
    header = as_base64(json.dumps({"alg": "HS256", "kid": "old", "typ": "at+jwt"}).encode())
    said = f"{header}.{honest.split('.')[1]}"
    forged = f"{said}.{as_base64(hmac.new(pem, said.encode(), sha256).digest())}"
    assert "signature algorithm is not accepted" in str(await refusal(issuer_of(company), forged))


@pytest.mark.requirement("oauth.refused")
@pytest.mark.parametrize("token", ["x", "a.b.c", "....", "é\x00", "e30.e30.", "x" * 20_000, "\udcff"])
async def test_garbage_is_refused_and_nobody_is_asked(company: AuthorizationServer, token: str) -> None:
    company.post("/reset")
    assert (await refusal(issuer_of(company), token)).status == 401
    assert company.get("/counts")["requests"].keys() <= {"/reset", "/counts"}


@pytest.mark.requirement("oauth.refused")
async def test_a_token_is_taken_in_one_spelling_and_with_claims_alone(company: AuthorizationServer) -> None:
    issuer = issuer_of(company)
    header, said, signature = signed(company.base).split(".")
    last = ALPHABET[ALPHABET.index(signature[-1]) + 1]  # of its bits some are beyond the last byte, so it says the same
    spelled = [f"{signature[:-1]}{last}", f"{signature}==", f"{signature[:9]}!{signature[9:]}", f"{signature} ", ""]
    for odd in spelled:
        assert "not valid" in str(await refusal(issuer, f"{header}.{said}.{odd}"))
    extended = as_base64(json.dumps({"alg": "ES256", "kid": "old", "b64": False, "crit": ["b64"]}).encode())
    for head, text in ((header, b"[]"), (header, b"{"), (header, b"[" * 9_000), (header, b"\xff"), (extended, b"{}")):
        begin = f"{head}.{as_base64(text)}"
        proof = ES256.sign(begin.encode(), OLD)
        assert "not valid" in str(await refusal(issuer, f"{begin}.{as_base64(proof)}"))
    assert await issuer.principal_with(f"{header}.{said}.{signature}")


@pytest.mark.requirement("oauth.refused")
async def test_a_key_counts_on_its_own_curve_alone(tmp_path: Path) -> None:
    """Its issuer names no algorithm with the key, and signs on another curve than the header says."""
    jwk = {**ECAlgorithm.to_jwk(LONG.public_key(), as_dict=True), "kid": "old"}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk]}))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    with served_by_thread(server):
        name = f"http://127.0.0.1:{server.server_port}"
        issuer = Issuer(IssuerSettings(issuer=name, resource=RESOURCE, jwks_uri=f"{name}/keys.json"))
        header = as_base64(json.dumps({"alg": "ES256", "kid": "old"}).encode())
        begin = f"{header}.{signed(name).split('.')[1]}"
        proof = as_base64(ES256.sign(begin.encode(), LONG))
        assert "not valid" in str(await refusal(issuer, f"{begin}.{proof}"))


@pytest.mark.requirement("oauth.scopes")
async def test_a_token_without_a_scope_that_counts_gives_too_little(company: AuthorizationServer) -> None:
    refused = await refusal(issuer_of(company), signed(company.base, {"scope": "openid profile"}))
    assert (refused.status, refused.code) == (403, "insufficient_scope")
    assert refused.scope == SCOPES
    demanding = issuer_of(company, required_scopes=("openid",), default_scopes=("read",))
    refused = await refusal(demanding, signed(company.base))
    assert (refused.status, refused.scope) == (403, "openid")
    known = await demanding.principal_with(signed(company.base, {"scope": "openid"}))
    assert known.rights.scopes == {"read"}
    prefixed = issuer_of(company, scope_prefix="tools.")
    known = await prefixed.principal_with(signed(company.base, {"scope": None, "scp": ["tools.read", "write"]}))
    assert known.rights.scopes == {"read"}


@pytest.mark.requirement("oauth.keys")
async def test_a_thousand_unknown_keys_are_fetched_for_once(company: AuthorizationServer) -> None:
    company.post("/reset")
    issuer = issuer_of(company)
    await issuer.principal_with(signed(company.base))
    tokens = [signed(company.base, key=NEW, headers={"kid": f"key-{number}"}) for number in range(1_000)]
    async with anyio.create_task_group() as tasks:
        for token in tokens:
            tasks.start_soon(refusal, issuer, token)
    assert company.requests("/jwks") == 1
    await issuer.principal_with(signed(company.base, {"sub": "bob"}))


@pytest.mark.requirement("oauth.keys")
async def test_a_key_that_is_new_counts_after_a_while_and_one_that_is_gone_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()

    def after() -> str:
        return signed(f"http://127.0.0.1:{port}", key=NEW, headers={"kid": "new"})

    if not is_fetched():
        pytest.skip("not run: the authorization server is not here; `python -P tests/conformance/fetch.py` brings it")
    with authorization_server(options(port, OLD, "old")) as company:
        issuer = issuer_of(company)
        await issuer.principal_with(signed(company.base))
        assert "does not have" in str(await refusal(issuer, after()))
    # The issuer is away: what was known stays, and of the rest nothing can be said.
    monkeypatch.setattr("server.transports.issuer.FETCH_SECONDS", 0.0)
    await issuer.principal_with(signed(company.base, {"sub": "bob"}))
    away = await refusal(issuer, after())
    assert (away.status, away.code) == (503, "")
    with authorization_server(options(port, NEW, "new")):
        await issuer.principal_with(after())
        assert "does not have" in str(await refusal(issuer, signed(company.base, {"sub": "carol"})))


@pytest.mark.requirement("oauth.introspection")
async def test_an_opaque_token_is_asked_about_once_a_minute(company: AuthorizationServer) -> None:
    company.post("/reset")
    company.switch(format="opaque")
    about = IntrospectionSettings(url=f"{company.base}/token/introspection", client_id="server")
    issuer = issuer_of(company, introspection=about)
    alice, bob = token_of(company, "alice", "read write"), token_of(company, "bob")
    elsewhere = token_of(company, "alice", "read", "https://other.example.com/mcp")
    assert "." not in alice
    for _ in range(3):
        known = await issuer.principal_with(alice)
        assert known.unique_name == f"program alice of {company.base}"
        assert known.rights.scopes == {"read", "write"}
    assert (await issuer.principal_with(bob)).unique_name == f"program bob of {company.base}"
    for _ in range(3):
        assert "expired, or is not from the issuer" in str(await refusal(issuer, "never-given"))
    assert "another audience" in str(await refusal(issuer, elsewhere))
    assert company.requests("/token/introspection") == 4
    another = token_of(company, "alice", "read")
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(issuer.principal_with, another)
    assert company.requests("/token/introspection") == 5
    assert "not from the issuer" in str(await refusal(issuer_of(company), alice))
    company.post("/reset")


@pytest.mark.requirement("oauth.challenge")
async def test_clients_are_told_where_to_log_in(root: Path, tmp_path: Path, company: AuthorizationServer) -> None:
    company.post("/reset")
    async with served(root, tmp_path, company) as url, httpx2.AsyncClient(base_url=url) as http:
        place = "https://tools.example.com/.well-known/oauth-protected-resource/team/mcp"
        bare = await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        assert bare.status_code == 401
        assert bare.headers["www-authenticate"] == f'Bearer resource_metadata="{place}"'
        for path in ("/.well-known/oauth-protected-resource/team/mcp", "/.well-known/oauth-protected-resource"):
            about = await http.get(path, headers={"origin": "https://claude.ai"})
            assert about.json()["resource"] == RESOURCE
            assert about.json()["authorization_servers"] == [company.base]
            assert about.json()["scopes_supported"] == SCOPES.split()
            assert about.headers["access-control-allow-origin"] == "*"
        for path in ("/mcp", "/sse", "/messages/"):
            wrong = await http.request(
                "GET" if path == "/sse" else "POST", path, headers={"authorization": "Bearer wrong", **ACCEPT}
            )
            assert wrong.status_code == 401
            assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
            assert f'resource_metadata="{place}"' in wrong.headers["www-authenticate"]
        little = signed(company.base, {"scope": "email"})
        poor = await http.post("/mcp", json=INITIALIZE, headers={"authorization": f"Bearer {little}", **ACCEPT})
        assert poor.status_code == 403
        assert 'error="insufficient_scope"' in poor.headers["www-authenticate"]
        assert f'scope="{SCOPES}"' in poor.headers["www-authenticate"]
        assert little not in poor.text


@pytest.mark.requirement("oauth.scopes")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_what_a_token_does_not_give_is_not_listed_and_refused_by_the_name_of_its_scope(
    root: Path, tmp_path: Path, company: AuthorizationServer, mode: str
) -> None:
    (root / "here.txt").write_text("to read\n")
    async with served(root, tmp_path, company, permissions={"allow": ["*"]}) as url:
        async with client_with(url, token_of(company, "alice", "read"), mode) as client:
            names = await names_of(client)
            assert {"read_file", "grep_search", "todo_write"} <= names
            assert names.isdisjoint({"edit", "write_file", "run_shell_command", "save_memory", "undo_change"})
            read = await client.call_tool("read_file", {"absolute_path": str(root / "here.txt")})
            assert not read.is_error
            refused = await client.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            assert refused.is_error
            assert "needs the scope write, which this client's token does not have" in str(refused.content)
            refused = await client.call_tool("run_shell_command", {"command": "true"})
            assert "needs the scope run" in str(refused.content)
        assert not (root / "new.txt").exists()
        async with client_with(url, token_of(company, "bob", "write"), mode) as client:
            assert {"read_file", "write_file"} <= await names_of(client)
            written = await client.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            assert not written.is_error, written.content
        async with client_with(url, token_of(company, "alice", "run"), mode) as client:
            assert await names_of(client) & {"read_file", "write_file", "run_shell_command"} == {"run_shell_command"}
            with pytest.raises(MCPError, match="needs the scope read"):
                await client.read_resource(f"file://{root}/here.txt")


@pytest.mark.requirement("oauth.principals")
async def test_two_people_of_one_issuer_have_nothing_of_each_other(
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
    tokens = with_tokens(tmp_path)  # of the settings, which are let in too
    named = json.loads(tokens.read_text())["http"]["tokens"]
    more = {"permissions": {"allow": ["Bash"]}, "log": {"audit": str(audit)}, "http": {"tokens": named}}
    async with served(root, tmp_path, company, oauth={"principals": principals}, **more) as url:
        async with (
            client_with(url, token_of(company, "alice", "read run")) as alice,
            client_with(url, token_of(company, "bob", "read run"), MODERN) as bob,
        ):
            for client, own, other in ((alice, "alice", "bob"), (bob, "bob", "alice")):
                read = await client.call_tool("read_file", {"absolute_path": str(tmp_path / own / "own.txt")})
                assert f"of {own}" in str(read.content)
                outside = await client.call_tool("read_file", {"absolute_path": str(tmp_path / other / "own.txt")})
                assert outside.is_error
                listed = await client.call_tool("glob", {"pattern": "*.txt"})
                assert str(tmp_path / other) not in str(listed.content)
                assert other not in (client.instructions or "")
            started = await alice.call_tool("run_shell_command", {"command": "sleep 300", "is_background": True})
            assert not started.is_error, started.content
            assert "sleep 300" in str((await alice.call_tool("list_background_jobs", {})).content)
            assert "sleep 300" not in str((await bob.call_tool("list_background_jobs", {})).content)
        # With the same program and another token, of the same person: what belongs to her is there.
        async with client_with(url, token_of(company, "alice"), MODERN) as again:
            assert "sleep 300" in str((await again.call_tool("list_background_jobs", {})).content)
            assert "run_shell_command" not in await names_of(again)
    said = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {each["principal"] for each in said} == {f"{company.base} alice", f"{company.base} bob"}


@pytest.mark.requirement("oauth.scopes")
async def test_servers_behind_are_for_those_whose_token_names_them(
    root: Path, tmp_path: Path, company: AuthorizationServer
) -> None:
    def entry(name: str) -> dict[str, Any]:
        lists = {
            "tools": [{"name": "look", "inputSchema": {"type": "object"}}],
            "prompts": [{"name": "greet"}],
            "resources": [{"uri": f"x://{name}", "name": name}],
        }
        orders = json.dumps({"name": name, **lists})
        about = {"command": sys.executable, "args": ["-S", str(PEERS / "listing_upstream.py"), orders], "trust": True}
        return {**about, "description": f"what {name} is for"}

    servers = {"mcpServers": {"docs": entry("docs"), "bank": entry("bank")}}
    async with served(root, tmp_path, company, **servers) as url:
        for mode in (HANDSHAKE, MODERN):
            async with client_with(url, signed(company.base, {"scope": "upstream:docs"}), mode) as client:
                assert await names_of(client) == {"docs__look"}
                assert not (await client.call_tool("docs__look", {})).is_error
                refused = await client.call_tool("bank__look", {})
                assert "needs the scope upstream:bank" in str(refused.content)
                assert {str(each.uri) for each in (await client.list_resources()).resources} >= {"x://docs"}
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
            async with client_with(url, signed(company.base, {"scope": "upstream:*"}), mode) as client:
                assert await names_of(client) == {"docs__look", "bank__look"}


@pytest.mark.requirement("oauth.scopes")
async def test_what_is_searched_for_has_only_what_the_token_gives(
    root: Path, tmp_path: Path, company: AuthorizationServer
) -> None:
    servers = {"docs": stdio_upstream(description="texts"), "bank": stdio_upstream(description="money")}
    async with (
        served(root, tmp_path, company, mcpServers=servers, proxy={"search": "on", "firstListWait": 30_000}) as url,
        client_with(url, signed(company.base, {"scope": "upstream:docs"})) as client,
    ):
        listed = str(await client.list_tools())
        assert "docs" in listed
        assert "bank" not in listed
        found = await client.call_tool("search_tools", {"query": "echo", "limit": 20})
        assert "docs__echo" in str(found.content)
        assert "bank" not in str(found.content)
        assert (await client.call_tool("describe_tool", {"name": "bank__echo"})).is_error
        with pytest.raises(MCPError):
            await client.call_tool("call_tool", {"name": "bank__echo", "arguments": {"text": "x"}})


@pytest.mark.requirement("network.profiles")
async def test_a_token_of_the_settings_has_folders_tools_and_rules_of_its_own(root: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "for-bot").mkdir()
    (folder / "seen.txt").write_text("a word\n")
    (folder / "secret.txt").write_text("a word\n")
    config = with_tokens(tmp_path, {"permissions": {"deny": ["Bash"]}})
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
            found = str((await bot.call_tool("grep_search", {"pattern": "a word"})).content)
            assert "seen.txt" in found
            assert "secret.txt" not in found
            written = await bot.call_tool("write_file", {"file_path": str(folder / "new.txt"), "content": "x"})
            assert not written.is_error, written.content
            outside = await bot.call_tool("list_directory", {"path": str(root)})
            assert outside.is_error
        async with client_of(url, "laptop") as laptop:
            assert {"glob", "todo_write"} <= await names_of(laptop)
            asked = await laptop.call_tool("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            assert "The user could not be asked" in str(asked.content)


@pytest.mark.requirement("network.profiles")
async def test_a_client_with_rights_of_its_own_is_told_nothing_where_there_is_nothing_to_tell(
    root: Path, tmp_path: Path
) -> None:
    config = with_tokens(tmp_path, {"tools": {"builtIn": False}})
    settings = json.loads(config.read_text())
    settings["http"]["tokens"]["bot"]["profile"] = "core"
    config.write_text(json.dumps(settings))
    who = INITIALIZE["params"]["clientInfo"]
    said: dict[str, Any] = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": who}
    meta = {f"io.modelcontextprotocol/{name}": each for name, each in said.items()}
    discover: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
    named: dict[str, str] = {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}
    async with serving(root, config) as url, httpx2.AsyncClient() as http:
        for request, headers in ((INITIALIZE, dict[str, str]()), (discover, named)):
            answer = await http.post(f"{url}/mcp", json=request, headers=ACCEPT | bearer("bot") | headers)
            assert "serverInfo" in answer.text
            assert '"instructions"' not in answer.text


@pytest.mark.requirement("oauth.settings")
async def test_an_issuer_that_cannot_be_used_stops_the_start_with_all_that_is_wrong() -> None:
    about = IntrospectionSettings(url="http://login.example.com/introspect", client_id="server", env="MISSING")
    wrong = IssuerSettings(
        issuer="http://login.example.com",
        resource="tools.example.com",
        default_scopes=("everything",),
        introspection=about,
    )
    with pytest.raises(SettingsError) as refused:
        read_issuer(wrong, {})
    keys = ("issuer", "introspection.url", "resource", "defaultScopes", "introspection.env")
    assert len(refused.value.problems) == len(keys)
    for problem, key in zip(refused.value.problems, keys, strict=True):
        assert problem.startswith(f"http.oauth.{key} ")


@pytest.mark.requirement("oauth.settings")
def test_known_scopes_and_those_of_a_server_are_given_by_default() -> None:
    settings = IssuerSettings(
        issuer="https://login.example.com",
        resource="https://tools.example.com/mcp",
        default_scopes=("read", "upstream:docs"),
    )
    assert read_issuer(settings, {}) is not None


@pytest.mark.requirement("oauth.settings")
def test_nothing_of_it_is_loaded_where_there_is_no_issuer() -> None:
    program = (
        "import sys, server.run_server, server.transports.http_server\n"
        "unwanted = 'jwt', 'server.transports.issuer', 'server.network.outbound'\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "[]"
