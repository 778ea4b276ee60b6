"""The scene for tests of the login pages: people with browsers, and our server over HTTP."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.client import Client

from tests.background_servers import free_port
from tests.fork_server import forked
from tests.harness import listening, server_arguments, speaking, text_of, write_config
from tests.interaction.login.scene import ALIAS, ECHO, Scene
from tests.interaction.relay.clients import http_transport
from tests.waiting import CEILING

TOKENS = {"ada": "a" * 24, "bob": "b" * 24}


def browser() -> httpx2.AsyncClient:
    """A new browser with its own cookies; it does not follow redirects."""
    return httpx2.AsyncClient(timeout=CEILING)


async def press_button(person: httpx2.AsyncClient, link: str, **headers: str) -> httpx2.Response:
    """Press the button of the login page."""
    parts = urlsplit(link)
    return await person.post(link, headers={"Origin": f"{parts.scheme}://{parts.netloc}", **headers})


async def follow_to_callback(person: httpx2.AsyncClient, response: httpx2.Response, base: str) -> str:
    """Follow the authorization server's redirects up to a URL of our server, and return that URL without opening it."""
    while True:
        url = str(response.url.join(response.headers["Location"]))
        if url.startswith(base):
            return url
        response = await person.get(url)


async def log_in(link: str, base: str) -> str:
    """Log in as a person does; return the text of the last page."""
    async with browser() as person:
        assert (await person.get(link)).status_code == 200
        return (await person.get(await follow_to_callback(person, await press_button(person, link), base))).text


class LinkCollector:
    """A person who accepts every login question, and collects the links; the test opens them."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.texts: list[str] = []

    async def on_elicitation(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Collect the link and the message of a question, and accept it."""
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        self.links.append(params.url)
        self.texts.append(params.message)
        return types.ElicitResult(action="accept")


class HttpServer:
    """Our server over HTTP, and its clients. It already has the login of the operator, with which it lists tools."""

    def __init__(self, base: str, stack: AsyncExitStack, folder: Path, settings: Mapping[str, Any]) -> None:
        self.base = base
        self._stack, self._folder, self._settings = stack, folder, settings

    def write(self, servers: Mapping[str, Any]) -> None:
        """Replace the upstreams in the settings."""
        write_config(self._folder, {**self._settings, "mcpServers": servers})

    async def client(self, name: str, revision: str, **callbacks: Any) -> Client:
        """A client with the token of a principal."""
        return await self.client_with(TOKENS[name], revision, **callbacks)

    async def client_with(self, token: str, revision: str, **callbacks: Any) -> Client:
        """A client with a token."""
        wire = http_transport(f"{self.base}/mcp", token)
        client = await self._stack.enter_async_context(speaking(revision, wire, **callbacks))
        with anyio.fail_after(CEILING):
            while ECHO not in {tool.name for tool in (await client.list_tools()).tools}:  # noqa: ASYNC110 - only polled
                await anyio.sleep(0.05)
        return client


@asynccontextmanager
async def http_server(
    scene: Scene, tmp_path: Path, http: Mapping[str, Any] | None = None, **oauth: Any
) -> AsyncGenerator[HttpServer]:
    """Log in as the operator, and start our server over HTTP."""
    await scene.log_in()
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    tokens = {name: {"env": f"TOKEN_{name}"} for name in TOKENS}
    settings = {
        "mcpServers": {ALIAS: {**scene.entry, **({"oauth": oauth} if oauth else {})}},
        "http": {"tokens": tokens, "publicUrl": base, **(http or {})},
        "confirmation": scene.confirmation,
    }
    folder = tmp_path / "served"
    folder.mkdir()
    options = server_arguments(None, write_config(folder, settings), "--transport", "http", "--port", str(port))
    variables = [f"TOKEN_{name}={token}" for name, token in TOKENS.items()]
    async with (
        listening(["env", *variables, sys.executable, *forked(options)], r"serving MCP at (http://\S+?),") as url,
        AsyncExitStack() as stack,
    ):
        assert url == base
        yield HttpServer(base, stack, folder, settings)


async def record_call(scene: Scene, client: Client, results: list[types.CallToolResult]) -> None:
    """Call the tool `echo`, and add the result to `results`."""
    results.append(await scene.call(client))


async def link_from_call(scene: Scene, client: Client) -> str:
    """The link in the error of a call, for a client that cannot show links."""
    match = re.search(r"http://\S+/connect/\S+", text_of(await scene.call(client)))
    assert match is not None
    return match[0]
