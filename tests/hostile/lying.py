"""A complete server in front of a lying and an honest upstream, and a client of it."""

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
"""How many messages a liar sends in a flood."""

PATIENT = {"timeout": 60_000, "connectTimeout": 60_000, "listTimeout": 60_000}
"""Time limits that are too long to cause a failure that a test expects from something else."""


def over_stdio(*deeds: str, **options: Any) -> dict[str, Any]:
    """Return the entry of a liar with these deeds and options."""
    return {"command": sys.executable, "args": ["-I", "-S", LIAR, *deeds], "trust": True, **PATIENT, **options}


@asynccontextmanager
async def over_http(transport: str, *deeds: str, **options: Any) -> AsyncGenerator[dict[str, Any]]:
    """Run a liar over HTTP, and yield its entry."""
    command = [sys.executable, *forked([HTTP_LIAR, transport, *deeds])]
    async with listening(command, r"port (\d+)") as port:
        kind = "sse" if transport == "sse" else "http"
        address = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        yield {"url": address, "type": kind, "trust": True, **PATIENT, **options}


@asynccontextmanager
async def all_over_http(transport: str, deeds: Iterable[str]) -> AsyncGenerator[dict[str, dict[str, Any]]]:
    """Run a liar over HTTP for each deed, and yield their entries by alias."""
    async with AsyncExitStack() as stack:
        yield {
            alias: await stack.enter_async_context(over_http(transport, deed))
            for alias, deed in by_alias(deeds).items()
        }


def all_over_stdio(deeds: Iterable[str | Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return the entries of liars over stdio, one for each deed or sequence of deeds, by alias."""
    deed_lists = ([deed] if isinstance(deed, str) else deed for deed in deeds)
    return {alias: over_stdio(*deed_list) for alias, deed_list in by_alias(deed_lists).items()}


def with_flood_counts(deeds: Iterable[str], count: int) -> list[str]:
    """Return the deeds with `count` as the number of messages of each flood."""
    parts = [deed.partition("@") for deed in deeds]
    return [
        f"{name}/{count}{at}{phase}" if name.startswith("flood") else f"{name}{at}{phase}" for name, at, phase in parts
    ]


def by_alias(deeds: Iterable[DeedT]) -> dict[str, DeedT]:
    """Return the deeds by the aliases of their liars."""
    return {f"bad{number}": deed for number, deed in enumerate(deeds)}


@dataclass
class Scene:
    """A client and its server.

    Args:
        app: The server.
        client: Of the handshake era unless the test says otherwise.
        notifications: The methods of the notifications that the client has received.
    """

    app: App
    client: Client
    notifications: list[str] = field(default_factory=list[str])

    @property
    def bad(self) -> Upstream:
        """The liar."""
        return self.upstream("bad")

    def upstream(self, alias: str) -> Upstream:
        """Return an upstream by its alias."""
        upstream = self.app.pool.by_alias.get(alias)
        assert upstream is not None
        return upstream

    def report(self, alias: str = "bad") -> dict[str, Any]:
        """Return the entry of an upstream in the status report."""
        return next(facts for facts in self.app.pool.report() if facts["alias"] == alias)

    async def names(self) -> set[str]:
        """Return the names of the listed tools."""
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str = "bad__echo", **arguments: Any) -> str:
        """Call a tool and return its text, after `error: ` for a failed call, or a text about a protocol error."""
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            result = await self.client.session.send_request(request, types.CallToolResult)
        except MCPError as error:
            return f"protocol error {error.error.code}: {error.error.message}"
        text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
        return f"error: {text}" if result.is_error else text

    async def check_others(self, root: Path) -> None:
        """Check that the liar does not affect pings, a built-in tool and an honest upstream."""
        await self.client.session.send_request(types.PingRequest(), types.EmptyResult)
        assert "seen.txt" in await self.call("list_directory", path=str(root))
        assert await self.call("good__echo", text="hello") == "hello"


def check_message(text: str) -> None:
    """Check that a message names the liar and reveals no internals."""
    assert "bad" in text
    assert not re.search(r"Traceback|Error\(|/server/|\.py|pydantic|asyncio|anyio|task ?group", text, re.IGNORECASE)


def scene_with(
    folder: Path, root: Path, bad: dict[str, Any], *, wait: int = 30_000, **callbacks: Any
) -> AbstractAsyncContextManager[Scene]:
    """Run a server with a liar and an honest upstream behind it."""
    return scene_with_all(folder, root, {"bad": bad}, wait=wait, **callbacks)


@asynccontextmanager
async def scene_with_all(
    folder: Path,
    root: Path,
    bad: Mapping[str, dict[str, Any]],
    *,
    wait: int = 30_000,
    proxy: Mapping[str, Any] | None = None,
    **callbacks: Any,
) -> AsyncGenerator[Scene]:
    """Run a server with liars and an honest upstream behind it."""
    (root / "seen.txt").touch()
    config = folder / "config.json"
    # Without search and without a limit, clients see every tool and complete results.
    settings = {"proxy": {"firstListWait": wait, "search": "off", **(proxy or {})}, "limits": {"resultChars": None}}
    config.write_text(json.dumps({"mcpServers": {**bad, "good": stdio_upstream(trust=True, **PATIENT)}, **settings}))
    app = App(load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state()), "stdio")
    notifications: list[str] = []

    async def on_message(message: Any) -> None:
        if not isinstance(message, Exception):
            notifications.append(str(getattr(message, "method", "")))

    with anyio.fail_after(CEILING):
        async with (
            app.running(),
            Client(in_process(app), mode=HANDSHAKE, cache=None, message_handler=on_message, **callbacks) as client,
        ):
            yield Scene(app, client, notifications)
