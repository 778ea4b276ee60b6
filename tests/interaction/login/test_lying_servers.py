"""Upstreams that publish impossible login data, demand a login after each login, or change while a login is open."""

from __future__ import annotations

import json
import os
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
"""Half of a surrogate pair, which no URL or form can contain"""


class Liar:
    """An upstream that is its own authorization server; a test sets its answers.

    Args:
        tools: The names of its tools.
    """

    def __init__(self, *tools: str) -> None:
        self.overrides: dict[str, dict[str, Any]] = {}
        self.challenge = ""
        self.accepts_tokens = True
        self.wants_scopes = False
        self.calls: list[str] = []
        self.token_requests: list[str] = []  # bodies of requests to /token
        self.registrations: list[str] = []
        self.statuses: dict[str, int] = {}
        self.first_answers: dict[str, tuple[int, dict[str, Any]]] = {}  # answers that are given only once
        self._tools = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                del format, args

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer, headers = liar.answer(self.path, body, self.headers.get("Authorization"))
                content = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the library's names

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.listener.server_port}"

    def answer(self, target: str, body: bytes, token: str | None) -> tuple[int, Any, dict[str, str]]:
        """Return the status, the content and the headers of the answer to a request."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.token_requests += [body.decode()] if path == "/token" else []
        self.registrations += [body.decode()] if path == "/register" else []
        if (first := self.first_answers.pop(path, None)) is not None:
            return *first, {}
        if path == "/mcp":
            return self._answer_mcp(body, token)
        if path == "/authorize":
            (redirect_uri,), (state,) = query["redirect_uri"], query["state"]
            return 302, None, {"Location": f"{redirect_uri}?{urlencode({'code': 'x', 'state': state})}"}
        default_answers: dict[str, dict[str, Any]] = {
            RESOURCE: {"resource": f"{self.base}/mcp", "authorization_servers": [self.base]},
            SERVER: self.metadata,
            "/register": {"client_id": "us"},
            "/token": {"access_token": "good", "token_type": "Bearer", "refresh_token": "further"},
        }
        if path not in default_answers and path not in self.overrides:
            return 404, {}, {}
        return self.statuses.get(path, 200), {**default_answers.get(path, {}), **self.overrides.get(path, {})}, {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that it publishes as an authorization server."""
        ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "registration_endpoint": "register"}
        return {
            "issuer": self.base,
            **{name: f"{self.base}/{end}" for name, end in ends.items()},
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        }

    def _answer_mcp(self, body: bytes, token: str | None) -> tuple[int, Any, dict[str, str]]:
        if token != "Bearer good" or not self.accepts_tokens:
            return 401, {}, {"WWW-Authenticate": f"Bearer {self.challenge}"}
        message: dict[str, Any] = json.loads(body) if body else {}
        if "id" not in message:
            return (202 if message else 405), None, {}
        method = message["method"]
        result: dict[str, Any] = {}
        if method == "initialize":
            server_info = {"name": "liar", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}}
            result = {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "serverInfo": server_info}
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
def start_liar() -> Generator[Callable[..., Liar]]:
    """Return a function that starts a liar; the liars are shut down after the test."""
    liars: list[Liar] = []

    def start(*tools: str) -> Liar:
        liars.append(liar := Liar(*tools))
        Thread(target=liar.listener.serve_forever, daemon=True).start()
        return liar

    yield start
    for liar in liars:
        liar.listener.shutdown()
        liar.listener.server_close()


def _scene(folder: Path, liar: Liar) -> Scene:
    http = httpx2.Client(base_url=liar.base)  # required by the constructors, and not used
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
    "an address that leads a browser to another host": (
        RESOURCE,
        {"authorization_servers": ["https://bank.example\\.a/"]},
        "not a plain https address",
    ),
    "an address with a fragment": (SERVER, {"authorization_endpoint": "https://a/#b"}, "not a plain https address"),
    "half a character": (SERVER, {"scopes_supported": [HALF]}, "publishes no metadata"),
    "half a character for who we are": ("/register", {"client_id": HALF}, "did not register"),
    "a name for us of a million characters": ("/register", {"client_id": "x" * 900_000}, "characters"),
    "half a character as a token": ("/token", {"access_token": HALF}, "not JSON"),
    "a line break in a token": ("/token", {"access_token": "a\nb"}, "did not issue a bearer token"),
}
"""For each fault: the path, the wrong fields in its answer, and a part of the message about them"""


@pytest.mark.requirement("login.faults")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_is_told_what_is_wrong_with_a_login_and_the_server_goes_on(
    revision: str, tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar, person = start_liar("echo"), Person()
    scene = _scene(tmp_path, liar)
    async with scene.serving(revision, person) as client:
        assert await scene.tools(client) == {LOGIN}
        for fault, (path, fields, message) in FAULTS.items():
            liar.overrides = {path: fields}
            result = await scene.call(client, LOGIN)
            assert result.is_error, fault
            assert message in text_of(result), fault
        liar.overrides = {}
        assert not (await scene.call(client, LOGIN)).is_error
        assert text_of(await scene.call(client)) == "done"
    assert "Traceback" not in "".join(scene.outputs)


@pytest.mark.requirement("login.faults")
async def test_a_challenge_with_an_invalid_url_is_reported_in_a_sentence(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    liar.challenge = 'resource_metadata="https://["'
    result = await _scene(tmp_path, liar).run("login", ALIAS)
    assert result.returncode == 1
    assert "not a plain https address" in result.stderr


@pytest.mark.requirement("login.faults")
async def test_a_token_that_lives_longer_than_any_clock_is_used(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    liar.overrides = {"/token": {"expires_in": 10**400}}
    scene = _scene(tmp_path, liar)
    await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "done"


@pytest.mark.requirement("login.secrets")
async def test_a_key_in_the_address_of_a_server_is_not_listed(tmp_path: Path, start_liar: Callable[..., Liar]) -> None:
    liar = start_liar("echo")
    scene = _scene(tmp_path, liar)
    scene.entry["httpUrl"] += "?key=of-the-address"
    await scene.log_in()
    for options in ((), ("--json",)):
        listing = (await scene.run("login", "--list", *options)).stdout
        assert f"{liar.base}/mcp" in listing
        assert "of-the-address" not in listing


@pytest.mark.requirement("login.issuer")
@pytest.mark.parametrize("grant", ["authorization-code", "client-credentials"])
async def test_the_secret_of_an_entry_goes_to_one_authorization_server_alone(
    grant: str, tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar, thief = start_liar("echo"), start_liar()
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "us", "clientSecret": "TOP-SECRET", "grant": grant}
    await scene.log_in()
    assert "TOP-SECRET" in liar.token_requests[0]
    liar.accepts_tokens = False
    liar.overrides = {RESOURCE: {"authorization_servers": [thief.base]}}
    refusal = await scene.run("login", ALIAS)
    assert refusal.returncode == 1
    assert thief.base in refusal.stderr
    assert "oauth.issuer" in refusal.stderr
    assert thief.token_requests == []


@pytest.mark.requirement("login.issuer")
@pytest.mark.parametrize("grant", ["authorization-code", "client-credentials"])
async def test_after_a_logout_and_for_another_person_only_oauth_issuer_moves_the_secret_to_another_authorization_server(
    grant: str, tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar, thief = start_liar("echo"), start_liar()
    scene = _scene(tmp_path, liar)
    scene.principals = ("ann",)
    scene.variables["TOKEN"] = "t" * 32
    scene.entry["oauth"] = {"clientId": "us", "clientSecret": "TOP-SECRET", "grant": grant}
    await scene.log_in()
    assert (await scene.run("logout", ALIAS)).returncode == 0
    liar.overrides = {RESOURCE: {"authorization_servers": [thief.base]}}
    for arguments in ([], ["--as", "ann"] if grant == "authorization-code" else []):
        refusal = await scene.run("login", ALIAS, *arguments)
        assert refusal.returncode == 1
        assert f"belongs to {liar.base}" in refusal.stderr
        assert "set oauth.issuer" in refusal.stderr
    assert thief.token_requests == []
    scene.entry["oauth"]["issuer"] = thief.base
    await scene.log_in()
    assert "TOP-SECRET" in thief.token_requests[0]
    # From then on, only the new authorization server gets the secret, even without the setting.
    del scene.entry["oauth"]["issuer"]
    assert (await scene.run("logout", ALIAS)).returncode == 0
    liar.overrides, count = {}, len(liar.token_requests)
    assert f"belongs to {thief.base}" in (await scene.run("login", ALIAS)).stderr
    assert len(liar.token_requests) == count


@pytest.mark.requirement("login.issuer")
@pytest.mark.parametrize("grant", ["authorization-code", "client-credentials"])
async def test_after_an_authorization_server_has_moved_the_setting_alone_leads_to_the_new_one(
    grant: str, tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar, successor = start_liar("echo"), start_liar()
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "us", "clientSecret": "TOP-SECRET", "grant": grant}
    await scene.log_in()
    (path,) = Path(os.environ["XDG_STATE_HOME"]).rglob("logins/*.json")
    record = json.loads(path.read_text())
    record["login"]["expires_at"] = 1.0
    path.write_text(json.dumps(record))
    count = len(liar.token_requests)
    liar.overrides = {RESOURCE: {"authorization_servers": [successor.base]}}
    scene.entry["oauth"]["issuer"] = successor.base
    await scene.log_in()
    assert "TOP-SECRET" in successor.token_requests[0]
    assert len(liar.token_requests) == count


@pytest.mark.requirement("login.issuer")
async def test_an_issuer_in_the_settings_is_the_only_one_from_the_beginning(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "us", "clientSecret": "TOP-SECRET", "issuer": "https://auth.example"}
    refusal = await scene.run("login", ALIAS)
    assert refusal.returncode == 1
    assert "belongs to https://auth.example" in refusal.stderr
    assert scene.tabs == []
    scene.entry["oauth"]["issuer"] = liar.base
    await scene.log_in()


@pytest.mark.requirement("login.command")
async def test_a_login_whose_token_the_server_refuses_is_made_again(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    scene = _scene(tmp_path, liar)
    liar.overrides = {"/token": {"access_token": "bad", "refresh_token": None}}
    assert (await scene.run("login", ALIAS)).returncode == 1
    liar.overrides = {}
    await scene.log_in()
    assert len(scene.tabs) == 2


@pytest.mark.requirement("login.bounded")
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("wants", ["a login", "scopes"])
async def test_an_upstream_that_demands_a_login_after_each_login_asks_a_person_at_most_twice_in_a_call(
    wants: str, revision: str, tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar, person = start_liar("echo"), Person()
    scene = _scene(tmp_path, liar)
    await scene.log_in()
    async with scene.serving(revision, person) as client:
        assert text_of(await scene.call(client)) == "done"
        liar.accepts_tokens, liar.wants_scopes = wants == "scopes", wants == "scopes"
        for count in (1, 2):
            assert (await scene.call(client)).is_error
            assert len(person.urls) <= 2 * count
    assert person.urls


@pytest.mark.requirement("login.consent")
async def test_what_was_agreed_to_before_a_login_does_not_go_to_another_server(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    first, second = start_liar("echo"), start_liar("echo", "other")
    scene = _scene(tmp_path, first)
    for liar in (second, first):
        scene.entry = {"httpUrl": f"{liar.base}/mcp"}
        await scene.log_in()
    first.wants_scopes = True
    question_modes: list[str] = []

    async def on_elicitation(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        question_modes.append(params.mode)
        if isinstance(params, types.ElicitRequestURLParams):
            await visit(params.url)
            scene.entry = {"httpUrl": f"{second.base}/mcp"}
            assert scene.config.exists()
            await scene.wait_for_tool(client, f"{ALIAS}__other")
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"decision": "once"})

    async with scene.serving(MODERN, elicitation_callback=on_elicitation) as client:
        await scene.wait_for_tool(client, ECHO)
        with pytest.raises(MCPError, match="requestState is invalid"):
            await scene.call(client)
    assert question_modes == ["form", "url"]
    assert first.calls == second.calls == []


async def _login_error(scene: Scene) -> str:
    """The error of a login with our command; empty if the login succeeds."""
    result = await scene.run("login", ALIAS)
    return "" if result.returncode == 0 else result.stderr


@pytest.mark.requirement("login.issuer-slash")
async def test_issuers_that_differ_by_the_slash_of_an_empty_path_are_one(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    for number, (named_path, own_path, is_same) in enumerate(
        (("/", "", True), ("", "/", True), ("/a/", "/a", False), ("/a", "/a/", False), ("", "//", False))
    ):
        liar = start_liar("echo")
        liar.overrides[RESOURCE] = {"authorization_servers": [liar.base + named_path]}
        for path in (SERVER, f"{SERVER}{named_path.rstrip('/')}", f"{SERVER}{named_path}"):
            liar.overrides[path] = {**liar.metadata, "issuer": liar.base + own_path}
        (tmp_path / str(number)).mkdir()
        error = await _login_error(_scene(tmp_path / str(number), liar))
        assert error == "" if is_same else "publishes the metadata of another one" in error, (
            named_path,
            own_path,
            error,
        )


@pytest.mark.requirement("login.assume-pkce")
async def test_the_operator_can_say_that_an_authorization_server_supports_pkce(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    liar.overrides[SERVER] = {"code_challenge_methods_supported": None}
    scene = _scene(tmp_path, liar)
    assert "oauth.assumePkce: true" in await _login_error(scene)
    scene.entry["oauth"] = {"assumePkce": True}
    assert await _login_error(scene) == ""
    assert "code_verifier=" in liar.token_requests[-1]


@pytest.mark.requirement("login.lenient")
async def test_a_registration_refused_for_its_scope_is_repeated_without_it_and_odd_answers_are_accepted(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    liar.overrides[RESOURCE] = {"scopes_supported": ["read", "write"]}
    liar.overrides["/token"] = {"scope": ["read", "write"]}
    refusal = {"error": "invalid_client_metadata", "error_description": "Scope \x1b[1m'write' is not yours"}
    liar.first_answers["/register"], liar.statuses["/token"] = (400, refusal), 201
    scene = _scene(tmp_path, liar)
    assert await _login_error(scene) == ""
    assert ["scope" in json.loads(registration) for registration in liar.registrations] == [True, False]
    (tmp_path / "other").mkdir()
    scopeless_liar = start_liar("echo")
    scopeless_liar.statuses["/register"], scopeless_liar.overrides["/register"] = 400, refusal
    error = await _login_error(_scene(tmp_path / "other", scopeless_liar))
    assert "invalid_client_metadata" in error
    assert "'write' is not yours" in error
    assert "\x1b[1m'" not in error
    assert len(scopeless_liar.registrations) == 1, "the registration had no scope to leave out"


@pytest.mark.requirement("login.secrets")
async def test_a_client_secret_that_the_token_endpoint_echoes_is_hidden(
    tmp_path: Path, start_liar: Callable[..., Liar]
) -> None:
    liar = start_liar("echo")
    liar.statuses["/token"] = 401
    liar.overrides["/token"] = {"error": "invalid_client", "error_description": "bad <b>7Hq%2Fgl0w\x1b[1m"}
    scene = _scene(tmp_path, liar)
    scene.entry["oauth"] = {"clientId": "someone", "clientSecret": "7Hq/gl0w"}
    error = await _login_error(scene)
    assert "bad <b>[hidden]" in error
    assert "7Hq" not in error
