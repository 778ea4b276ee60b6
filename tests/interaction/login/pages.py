"""What tests of the pages of a login have around them: people with browsers, and a server of ours over HTTP."""

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
    """A browser of its own: nobody else has its cookies. It shows redirects."""
    return httpx2.AsyncClient(timeout=CEILING)


async def go_on(person: httpx2.AsyncClient, link: str, **headers: str) -> httpx2.Response:
    """Press the button of the page."""
    parts = urlsplit(link)
    return await person.post(link, headers={"Origin": f"{parts.scheme}://{parts.netloc}", **headers})


async def to_the_end(person: httpx2.AsyncClient, response: httpx2.Response, base: str) -> str:
    """Follow the authorization server up to the address of ours that it sends the browser to, which is not opened."""
    while True:
        url = str(response.url.join(response.headers["Location"]))
        if url.startswith(base):
            return url
        response = await person.get(url)


async def log_in(link: str, base: str) -> str:
    """Log in as a person does; the page at the end."""
    async with browser() as person:
        assert (await person.get(link)).status_code == 200
        return (await person.get(await to_the_end(person, await go_on(person, link), base))).text


class Shown:
    """Somebody who accepts every address, and opens it when the test does."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.texts: list[str] = []

    async def look(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Be shown one."""
        del context
        assert isinstance(params, types.ElicitRequestURLParams)
        self.links.append(params.url)
        self.texts.append(params.message)
        return types.ElicitResult(action="accept")


class Served:
    """A server of ours over HTTP that has the login with which tools are listed, and clients of it."""

    def __init__(self, base: str, stack: AsyncExitStack, folder: Path, settings: Mapping[str, Any]) -> None:
        self.base = base
        self._stack, self._folder, self._settings = stack, folder, settings

    def write(self, servers: Mapping[str, Any]) -> None:
        """Have the settings name other servers."""
        write_config(self._folder, {**self._settings, "mcpServers": servers})

    async def client(self, name: str, revision: str, **callbacks: Any) -> Client:
        """A client with somebody's token."""
        return await self.client_with(TOKENS[name], revision, **callbacks)

    async def client_with(self, token: str, revision: str, **callbacks: Any) -> Client:
        """A client with a token."""
        wire = http_transport(f"{self.base}/mcp", token)
        client = await self._stack.enter_async_context(speaking(revision, wire, **callbacks))
        with anyio.fail_after(CEILING):
            while ECHO not in {tool.name for tool in (await client.list_tools()).tools}:  # noqa: ASYNC110 - as asked for
                await anyio.sleep(0.05)
        return client


@asynccontextmanager
async def served(
    scene: Scene, tmp_path: Path, http: Mapping[str, Any] | None = None, **oauth: Any
) -> AsyncGenerator[Served]:
    """Start it."""
    await scene.log_in()
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    tokens = {name: {"env": f"TOKEN_{name}"} for name in TOKENS}
    settings = {
        "mcpServers": {ALIAS: {**scene.entry, **({"oauth": oauth} if oauth else {})}},
        "http": {"tokens": tokens, "publicUrl": base, **(http or {})},
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
        yield Served(base, stack, folder, settings)


async def called(scene: Scene, client: Client, results: list[types.CallToolResult]) -> None:
    """Call, beside the test."""
    results.append(await scene.call(client))


async def told(scene: Scene, client: Client) -> str:
    """The link that a call tells a client that cannot show it."""
    found = re.search(r"http://\S+/connect/\S+", text_of(await scene.call(client)))
    assert found is not None
    return found[0]
