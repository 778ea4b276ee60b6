"""Servers that say of their logins what cannot be, want one after each, or change while one is open."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.harness import MODERN, text_of
from tests.interaction.login.scene import (
    ALIAS,
    ECHO,
    ERAS,
    HANDSHAKE,
    LOGIN,
    AuthorizationServer,
    Peer,
    Person,
    Scene,
    visit,
)

pytestmark = pytest.mark.anyio

RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SERVER = "/.well-known/oauth-authorization-server"

HALF = "\ud800"
"""Half a character, of which no address or form can be made."""


class Liar:
    """A server with tools that is its own authorization server, and says what it is told to.

    Args:
        tools: The names of its tools.
    """

    def __init__(self, *tools: str) -> None:
        self.said: dict[str, dict[str, Any]] = {}
        self.challenge = ""
        self.lets_in = True
        self.wants_scopes = False
        self.calls: list[str] = []
        self.forms: list[str] = []  # what has come for a token
        self.registrations: list[str] = []
        self.statuses: dict[str, int] = {}
        self.first: dict[str, tuple[int, dict[str, Any]]] = {}  # what is answered once
        self._tools = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
                del format, args

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, said, headers = liar.answer(self.path, body, self.headers.get("Authorization"))
                content = b"" if said is None else json.dumps(said).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - their names in the library

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.listener.server_port}"

    def answer(self, target: str, body: bytes, token: str | None) -> tuple[int, Any, dict[str, str]]:
        """Status, content and headers of an answer."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.forms += [body.decode()] if path == "/token" else []
        self.registrations += [body.decode()] if path == "/register" else []
        if (first := self.first.pop(path, None)) is not None:
            return *first, {}
        if path == "/mcp":
            return self._of_tools(body, token)
        if path == "/authorize":
            (back,), (state,) = query["redirect_uri"], query["state"]
            return 302, None, {"Location": f"{back}?{urlencode({'code': 'x', 'state': state})}"}
        usual: dict[str, dict[str, Any]] = {
            RESOURCE: {"resource": f"{self.base}/mcp", "authorization_servers": [self.base]},
            SERVER: self.metadata,
            "/register": {"client_id": "us"},
            "/token": {"access_token": "good", "token_type": "Bearer", "refresh_token": "further"},
        }
        if path not in usual and path not in self.said:
            return 404, {}, {}
        return self.statuses.get(path, 200), {**usual.get(path, {}), **self.said.get(path, {})}, {}

    @property
    def metadata(self) -> dict[str, Any]:
        """What it says of itself as an authorization server."""
        ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "registration_endpoint": "register"}
        return {
            "issuer": self.base,
            **{name: f"{self.base}/{end}" for name, end in ends.items()},
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        }

    def _of_tools(self, body: bytes, token: str | None) -> tuple[int, Any, dict[str, str]]:
        if token != "Bearer good" or not self.lets_in:
            return 401, {}, {"WWW-Authenticate": f"Bearer {self.challenge}"}
        message: dict[str, Any] = json.loads(body) if body else {}
        if "id" not in message:
            return (202 if message else 405), None, {}
        method = message["method"]
        result: dict[str, Any] = {}
        if method == "initialize":
            about = {"name": "liar", "version": "1"}
            able: dict[str, Any] = {"tools": {}}
            result = {"protocolVersion": HANDSHAKE, "capabilities": able, "serverInfo": about}
        elif method == "tools/list":
            result = {"tools": self._tools}
        elif method == "tools/call" and self.wants_scopes:
            return 403, {}, {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="more"'}
        elif method == "tools/call":
            self.calls.append(message["params"]["name"])
            result = {"content": [{"type": "text", "text": "done"}]}
        elif method != "ping":
            error = {"code": types.METHOD_NOT_FOUND, "message": "not known"}
            return 200, {"jsonrpc": "2.0", "id": message["id"], "error": error}, {}
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, {}


@pytest.fixture
def liars() -> Generator[Callable[..., Liar]]:
    """Makes them."""
    made: list[Liar] = []

    def make(*tools: str) -> Liar:
        made.append(liar := Liar(*tools))
        Thread(target=liar.listener.serve_forever, daemon=True).start()
        return liar

    yield make
    for liar in made:
        liar.listener.shutdown()
        liar.listener.server_close()


def _scene(folder: Path, liar: Liar) -> Scene:
    http = httpx2.Client(base_url=liar.base)  # which nothing is asked by
    return Scene(folder, AuthorizationServer(liar.base, http), Peer(liar.base, http))


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "an address that cannot be read": (RESOURCE, {"authorization_servers": ["https://["]}, "not a plain https address"),
    "an address with a control character": (RESOURCE, {"authorization_servers": ["https://a\0/"]}, "not a plain https"),
    "a resource that cannot be read": (RESOURCE, {"resource": "https://["}, "not its address"),
    "another resource": (RESOURCE, {"resource": "https://other.example/mcp"}, "not its address"),
    "a program as its address": (
        SERVER,
        {"authorization_endpoint": "javascript:alert(1)"},
        "publishes invalid metadata",
    ),
    "the name of another host": (
        SERVER,
        {"authorization_endpoint": "https://bank.example@a/"},
        "not a plain https address",
    ),
    "an address with a fragment": (SERVER, {"authorization_endpoint": "https://a/#b"}, "not a plain https address"),
    "half a character": (SERVER, {"scopes_supported": [HALF]}, "publishes no metadata"),
    "half a character for who we are": ("/register", {"client_id": HALF}, "did not register"),
    "a name for us of a million characters": ("/register", {"client_id": "x" * 900_000}, "characters"),
    "half a character as a token": ("/token", {"access_token": HALF}, "not JSON"),
    "a line break in a token": ("/token", {"access_token": "a\nb"}, "did not issue a bearer token"),
}
"""Where it says what, and what is told about it."""


@pytest.mark.requirement("login.faults")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_is_told_what_is_wrong_with_a_login_and_the_server_goes_on(
    revision: str, tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar, person = liars("echo"), Person()
    scene = _scene(tmp_path, liar)
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        for fault, (path, said, told) in FAULTS.items():
            liar.said = {path: said}
            result = await scene.call(client, LOGIN)
            assert result.is_error, fault
            assert told in text_of(result), fault
        liar.said = {}
        assert not (await scene.call(client, LOGIN)).is_error
        assert text_of(await scene.call(client)) == "done"
    assert "Traceback" not in "".join(scene.heard)


@pytest.mark.requirement("login.faults")
async def test_a_challenge_that_names_no_address_is_told_of_in_a_sentence(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar = liars("echo")
    liar.challenge = 'resource_metadata="https://["'
    done = await _scene(tmp_path, liar).run("login", ALIAS)
    assert done.returncode == 1
    assert "not a plain https address" in done.stderr


@pytest.mark.requirement("login.faults")
async def test_a_token_that_lives_longer_than_any_clock_is_used(tmp_path: Path, liars: Callable[..., Liar]) -> None:
    liar = liars("echo")
    liar.said = {"/token": {"expires_in": 10**400}}
    scene = _scene(tmp_path, liar)
    await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "done"


@pytest.mark.requirement("login.secrets")
async def test_a_key_in_the_address_of_a_server_is_not_listed(tmp_path: Path, liars: Callable[..., Liar]) -> None:
    liar = liars("echo")
    scene = _scene(tmp_path, liar)
    scene.entry["httpUrl"] += "?key=of-the-address"
    await scene.log_in()
    for options in ((), ("--json",)):
        listed = (await scene.run("login", "--list", *options)).stdout
        assert f"{liar.base}/mcp" in listed
        assert "of-the-address" not in listed


@pytest.mark.requirement("login.issuer")
@pytest.mark.parametrize("grant", ["authorization-code", "client-credentials"])
async def test_the_secret_of_an_entry_goes_to_one_authorization_server_alone(
    grant: str, tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar, thief = liars("echo"), liars()
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "us", "clientSecret": "TOP-SECRET", "grant": grant}
    await scene.log_in()
    assert "TOP-SECRET" in liar.forms[0]
    liar.lets_in = False
    liar.said = {RESOURCE: {"authorization_servers": [thief.base]}}
    refused = await scene.run("login", ALIAS)
    assert refused.returncode == 1
    assert thief.base in refused.stderr
    assert "oauth.issuer" in refused.stderr
    assert thief.forms == []


@pytest.mark.requirement("login.issuer")
async def test_an_issuer_in_the_settings_is_the_only_one_from_the_beginning(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar = liars("echo")
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "us", "clientSecret": "TOP-SECRET", "issuer": "https://auth.example"}
    refused = await scene.run("login", ALIAS)
    assert refused.returncode == 1
    assert "belongs to https://auth.example" in refused.stderr
    assert scene.tabs == []
    scene.entry["oauth"]["issuer"] = liar.base
    await scene.log_in()


@pytest.mark.requirement("login.command")
async def test_a_login_whose_token_the_server_refuses_is_made_again(tmp_path: Path, liars: Callable[..., Liar]) -> None:
    liar = liars("echo")
    scene = _scene(tmp_path, liar)
    liar.said = {"/token": {"access_token": "bad", "refresh_token": None}}
    assert (await scene.run("login", ALIAS)).returncode == 1
    liar.said = {}
    await scene.log_in()
    assert len(scene.tabs) == 2


@pytest.mark.requirement("login.bounded")
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("wants", ["a login", "scopes"])
async def test_a_server_that_wants_a_login_after_each_has_a_person_asked_twice_in_a_call(
    wants: str, revision: str, tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar, person = liars("echo"), Person()
    scene = _scene(tmp_path, liar)
    await scene.log_in()
    async with scene.serving(revision, person) as client:
        assert text_of(await scene.call(client)) == "done"
        liar.lets_in, liar.wants_scopes = wants == "scopes", wants == "scopes"
        for count in (1, 2):
            assert (await scene.call(client)).is_error
            assert len(person.shown) <= 2 * count
    assert person.shown


@pytest.mark.requirement("login.consent")
async def test_what_was_agreed_to_before_a_login_does_not_go_to_another_server(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    first, second = liars("echo"), liars("echo", "other")
    scene = _scene(tmp_path, first)
    for liar in (second, first):
        scene.entry = {"httpUrl": f"{liar.base}/mcp"}
        await scene.log_in()
    first.wants_scopes = True
    asked: list[str] = []

    async def look(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        asked.append(params.mode)
        if isinstance(params, types.ElicitRequestURLParams):
            await visit(params.url)
            scene.entry = {"httpUrl": f"{second.base}/mcp"}
            assert scene.config.exists()
            await scene.until_listed(client, f"{ALIAS}__other")
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"decision": "once"})

    async with scene.serving(MODERN, elicitation_callback=look) as client:
        await scene.until_listed(client, ECHO)
        with pytest.raises(MCPError, match="requestState is invalid"):
            await scene.call(client)
    assert asked == ["form", "url"]
    assert first.calls == second.calls == []


async def _logged_in(scene: Scene) -> str:
    """What is told about a login at the terminal; empty where it works."""
    done = await scene.run("login", ALIAS)
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.requirement("login.issuer-slash")
async def test_issuers_that_differ_by_the_slash_of_an_empty_path_are_one(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    for number, (named, itself, is_same) in enumerate(
        (("/", "", True), ("", "/", True), ("/a/", "/a", False), ("/a", "/a/", False), ("", "//", False))
    ):
        liar = liars("echo")
        liar.said[RESOURCE] = {"authorization_servers": [liar.base + named]}
        for path in (SERVER, f"{SERVER}{named.rstrip('/')}", f"{SERVER}{named}"):
            liar.said[path] = {**liar.metadata, "issuer": liar.base + itself}
        (tmp_path / str(number)).mkdir()
        told = await _logged_in(_scene(tmp_path / str(number), liar))
        assert told == "" if is_same else "publishes the metadata of another one" in told, (named, itself, told)


@pytest.mark.requirement("login.assume-pkce")
async def test_the_operator_can_say_that_an_authorization_server_supports_pkce(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar = liars("echo")
    liar.said[SERVER] = {"code_challenge_methods_supported": None}
    scene = _scene(tmp_path, liar)
    assert "oauth.assumePkce: true" in await _logged_in(scene)
    scene.entry["oauth"] = {"assumePkce": True}
    assert await _logged_in(scene) == ""
    assert "code_verifier=" in liar.forms[-1]


@pytest.mark.requirement("login.lenient")
async def test_what_is_refused_for_its_scope_is_asked_once_more_without_and_odd_answers_count(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar = liars("echo")
    liar.said[RESOURCE] = {"scopes_supported": ["read", "write"]}
    liar.said["/token"] = {"scope": ["read", "write"]}
    refused = {"error": "invalid_client_metadata", "error_description": "Scope \x1b[1m'write' is not yours"}
    liar.first["/register"], liar.statuses["/token"] = (400, refused), 201
    scene = _scene(tmp_path, liar)
    assert await _logged_in(scene) == ""
    assert ["scope" in json.loads(each) for each in liar.registrations] == [True, False]
    (tmp_path / "other").mkdir()
    other = liars("echo")
    other.statuses["/register"], other.said["/register"] = 400, refused
    told = await _logged_in(_scene(tmp_path / "other", other))
    assert "invalid_client_metadata" in told
    assert "'write' is not yours" in told
    assert "\x1b[1m'" not in told
    assert len(other.registrations) == 1, "there was no scope to go without"


@pytest.mark.requirement("login.secrets")
async def test_what_is_secret_in_a_request_for_a_token_is_hidden_where_it_is_said_back(
    tmp_path: Path, liars: Callable[..., Liar]
) -> None:
    liar = liars("echo")
    liar.statuses["/token"] = 401
    liar.said["/token"] = {"error": "invalid_client", "error_description": "bad <b>7Hq%2Fgl0w\x1b[1m"}
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "someone", "clientSecret": "7Hq/gl0w"}
    told = await _logged_in(scene)
    assert "bad <b>[hidden]" in told
    assert "7Hq" not in told
