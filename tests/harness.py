"""Starting real servers and connecting real clients, over every transport and in both protocol eras."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters

from server.app import App
from server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "coretools_mcp.py"
PEERS = ROOT / "tests" / "peers"

MODERN = "2026-07-28"
HANDSHAKE = "legacy"

ROUTES = [
    ("stdio", HANDSHAKE),
    ("stdio", MODERN),
    ("http", HANDSHAKE),
    ("http", MODERN),
    ("sse", HANDSHAKE),
    ("sse", MODERN),
]
"""Every transport with every era that real clients speak over it."""


def stdio_upstream(**more: Any) -> dict[str, Any]:
    """A settings entry for the honest test upstream over stdio."""
    return {"command": sys.executable, "args": [str(PEERS / "upstream.py")], **more}


def write_config(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write a settings file and return its path."""
    path = folder / "config.json"
    # A busy machine may take longer than a person would wait to start an upstream.
    patient = {"proxy": {"firstListWait": 30_000}}
    path.write_text(json.dumps({**patient, **settings}))
    return path


def server_arguments(root: Path | None, config: Path | None, *options: str) -> list[str]:
    """The command line that starts our server, without the interpreter."""
    arguments = ["-P", "-W", "error", str(LAUNCHER), "serve", *options]
    if root is not None:
        arguments += ["--workspace", str(root)]
    if config is not None:
        arguments += ["--config", str(config)]
    return arguments


@asynccontextmanager
async def listening(command: list[str], pattern: str) -> AsyncGenerator[str]:
    """Run a server that tells its address on standard error; yields what the pattern's group found."""
    async with await anyio.open_process(command, stdin=None, stdout=None) as process:
        try:
            with anyio.fail_after(20):
                found = await _find(process, pattern)
            yield found
        finally:
            process.terminate()
            with anyio.move_on_after(10, shield=True):
                await process.wait()


async def _find(process: anyio.abc.Process, pattern: str) -> str:
    assert process.stderr is not None
    seen = ""
    async for chunk in process.stderr:
        seen += chunk.decode()
        match = re.search(pattern, seen)
        if match is not None:
            return match.group(1)
    raise AssertionError(f"the server ended without telling its address: {seen}")


@asynccontextmanager
async def our_http_server(root: Path | None, config: Path | None, transport: str = "http") -> AsyncGenerator[str]:
    """Our server over HTTP on a free port; yields its base URL."""
    options = server_arguments(root, config, "--transport", transport, "--port", "0")
    async with listening([sys.executable, *options], r"serving MCP at (http://\S+?),") as url:
        yield url


def http_client(url: str, transport: str, mode: str, **callbacks: Any) -> Client:
    """A client of the SDK for a server that is listening already."""
    callbacks.setdefault("cache", None)
    if transport == "sse":
        reach: AbstractAsyncContextManager[Any] = sse_client(f"{url}/sse")
        return Client(reach, mode=mode, **callbacks)
    return Client(f"{url}/mcp", mode=mode, **callbacks)


@asynccontextmanager
async def connected(
    transport: str, mode: str, root: Path | None, config: Path | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """A client connected to a server of its own."""
    callbacks.setdefault("cache", None)
    if transport == "stdio":
        parameters = StdioServerParameters(command=sys.executable, args=server_arguments(root, config))
        async with Client(parameters, mode=mode, **callbacks) as client:
            yield client
        return
    async with (
        our_http_server(root, config) as url,
        http_client(url, transport, mode, **callbacks) as client,
    ):
        yield client


@asynccontextmanager
async def in_memory(
    mode: str, root: Path | None, config: Path | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """A real client of the whole server without a process between them."""
    overrides: dict[str, Any] = {} if root is None else {"workspace": {"roots": [str(root)]}}
    app = App(load_settings([str(config)] if config else [], overrides, {}), "stdio")
    async with app.running(), Client(app.server, mode=mode, cache=None, **callbacks) as client:
        yield client
