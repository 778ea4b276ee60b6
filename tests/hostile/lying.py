"""A whole server in front of a liar and an honest upstream, and a client of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from server.app import App
from server.settings import load_settings
from server.upstreams.connection import Upstream
from tests.harness import HANDSHAKE, PEERS, listening, own_state
from tests.waiting import CEILING

LIAR = str(PEERS / "lying_upstream.py")

PATIENT = {"timeout": 60_000, "connectTimeout": 60_000, "listTimeout": 60_000}
"""Nothing of what is expected comes from a limit of time."""


def over_stdio(*deeds: str, **more: Any) -> dict[str, Any]:
    """A liar that is told to do something; an honest one without a word."""
    return {"command": sys.executable, "args": [LIAR, *deeds], "trust": True, **PATIENT, **more}


@asynccontextmanager
async def over_http(transport: str, *deeds: str, **more: Any) -> AsyncGenerator[dict[str, Any]]:
    """The same over HTTP, on a port of its own."""
    command = [sys.executable, LIAR, transport, *deeds]
    async with listening(command, r"port (\d+)") as port:
        kind = "sse" if transport == "sse" else "http"
        address = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        yield {"url": address, "type": kind, "trust": True, **PATIENT, **more}


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
        """What people are told of it."""
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


@asynccontextmanager
async def beside(
    folder: Path, root: Path, bad: dict[str, Any], *, wait: int = 30_000, mode: str = HANDSHAKE, **callbacks: Any
) -> AsyncGenerator[Scene]:
    """A server with a liar and an honest upstream behind it."""
    (root / "seen.txt").touch()
    config = folder / "config.json"
    # All that is listed, and all of a result, is to be seen.
    whole = {"proxy": {"firstListWait": wait, "search": "off"}, "limits": {"resultChars": None}}
    config.write_text(json.dumps({"mcpServers": {"bad": bad, "good": over_stdio()}, **whole}))
    app = App(load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state()), "stdio")
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        if not isinstance(message, Exception):
            heard.append(str(getattr(message, "method", "")))

    with anyio.fail_after(CEILING):
        async with (
            app.running(),
            Client(app.server, mode=mode, cache=None, message_handler=on_message, **callbacks) as client,
        ):
            yield Scene(app, client, heard)
