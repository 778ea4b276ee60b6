"""A whole server in front of a liar and an honest upstream, and a client of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from server.app import App
from server.settings import load_settings
from server.upstreams.connections.connection import Upstream
from tests.fork_server import forked
from tests.harness import HANDSHAKE, PEERS, listening, own_state, stdio_upstream
from tests.in_process import in_process
from tests.waiting import CEILING

LIAR = str(PEERS / "lying_upstream.py")
HTTP_LIAR = str(PEERS / "lying_http_upstream.py")

DeedT = TypeVar("DeedT")

FLOODS = [500, pytest.param(5_000, marks=pytest.mark.long)]
"""How many messages a liar floods with."""

PATIENT = {"timeout": 60_000, "connectTimeout": 60_000, "listTimeout": 60_000}
"""Nothing of what is expected comes from a limit of time."""


def over_stdio(*deeds: str, **more: Any) -> dict[str, Any]:
    """A liar that is told to do something."""
    return {"command": sys.executable, "args": ["-I", "-S", LIAR, *deeds], "trust": True, **PATIENT, **more}


@asynccontextmanager
async def over_http(transport: str, *deeds: str, **more: Any) -> AsyncGenerator[dict[str, Any]]:
    """The same over HTTP, on a port of its own."""
    command = [sys.executable, *forked([HTTP_LIAR, transport, *deeds])]
    async with listening(command, r"port (\d+)") as port:
        kind = "sse" if transport == "sse" else "http"
        address = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        yield {"url": address, "type": kind, "trust": True, **PATIENT, **more}


@asynccontextmanager
async def all_over_http(transport: str, deeds: Iterable[str]) -> AsyncGenerator[dict[str, dict[str, Any]]]:
    """A liar over HTTP for each deed, by an alias."""
    async with AsyncExitStack() as stack:
        yield {
            alias: await stack.enter_async_context(over_http(transport, deed)) for alias, deed in aliases(deeds).items()
        }


def all_over_stdio(deeds: Iterable[str | Sequence[str]]) -> dict[str, dict[str, Any]]:
    """A liar over stdio for each deed, or for several of one, by an alias."""
    told = ([deed] if isinstance(deed, str) else deed for deed in deeds)
    return {alias: over_stdio(*each) for alias, each in aliases(told).items()}


def flooding(deeds: Iterable[str], count: int) -> list[str]:
    """Deeds, of which those that flood do so with so many messages."""
    parts = [deed.partition("@") for deed in deeds]
    return [
        f"{what}/{count}{at}{phase}" if what.startswith("flood") else f"{what}{at}{phase}" for what, at, phase in parts
    ]


def aliases(deeds: Iterable[DeedT]) -> dict[str, DeedT]:
    """Deeds by the aliases of their liars."""
    return {f"bad{number}": deed for number, deed in enumerate(deeds)}


@dataclass
class Scene:
    """A client, and the server that it talks to.

    Args:
        app: The server.
        client: Of the handshake era unless the test says otherwise.
        heard: Methods of the notifications that the client got.
    """

    app: App
    client: Client
    heard: list[str] = field(default_factory=list[str])

    @property
    def bad(self) -> Upstream:
        """The liar."""
        return self.upstream("bad")

    def upstream(self, alias: str) -> Upstream:
        """One of the servers behind ours."""
        found = self.app.pool.by_alias.get(alias)
        assert found is not None
        return found

    def report(self, alias: str = "bad") -> dict[str, Any]:
        """What people are told about it."""
        return next(facts for facts in self.app.pool.report() if facts["alias"] == alias)

    async def names(self) -> set[str]:
        """What is listed."""
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str = "bad__echo", **arguments: Any) -> str:
        """Call a tool: the text that a model gets, after `error: ` if it is one; an error of the protocol as that."""
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            result = await self.client.session.send_request(request, types.CallToolResult)
        except MCPError as error:
            return f"protocol error {error.error.code}: {error.error.message}"
        text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
        return f"error: {text}" if result.is_error else text

    async def check_others(self, root: Path) -> None:
        """What has nothing to do with the liar goes on: pings, a tool of ours, an honest upstream."""
        await self.client.session.send_request(types.PingRequest(), types.EmptyResult)
        assert "seen.txt" in await self.call("list_directory", path=str(root))
        assert await self.call("good__echo", text="hello") == "hello"


def check_told(text: str) -> None:
    """A sentence for people: whose fault it is, and nothing of what is inside of us."""
    assert "bad" in text
    assert not re.search(r"Traceback|Error\(|/server/|\.py|pydantic|asyncio|anyio|task ?group", text, re.IGNORECASE)


def beside(
    folder: Path, root: Path, bad: dict[str, Any], *, wait: int = 30_000, **callbacks: Any
) -> AbstractAsyncContextManager[Scene]:
    """A server with a liar and an honest upstream behind it."""
    return beside_all(folder, root, {"bad": bad}, wait=wait, **callbacks)


@asynccontextmanager
async def beside_all(
    folder: Path,
    root: Path,
    bad: Mapping[str, dict[str, Any]],
    *,
    wait: int = 30_000,
    proxy: Mapping[str, Any] | None = None,
    **callbacks: Any,
) -> AsyncGenerator[Scene]:
    """A server with liars and an honest upstream behind it."""
    (root / "seen.txt").touch()
    config = folder / "config.json"
    # All that is listed, and all of a result, is to be seen.
    whole = {"proxy": {"firstListWait": wait, "search": "off", **(proxy or {})}, "limits": {"resultChars": None}}
    config.write_text(json.dumps({"mcpServers": {**bad, "good": stdio_upstream(trust=True, **PATIENT)}, **whole}))
    app = App(load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state()), "stdio")
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        if not isinstance(message, Exception):
            heard.append(str(getattr(message, "method", "")))

    with anyio.fail_after(CEILING):
        async with (
            app.running(),
            Client(in_process(app), mode=HANDSHAKE, cache=None, message_handler=on_message, **callbacks) as client,
        ):
            yield Scene(app, client, heard)
