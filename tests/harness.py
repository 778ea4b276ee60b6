"""Starts real servers and connects real clients, over every transport and in every protocol revision."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import anyio
import anyio.abc
import mcp_types as types
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from server.app import App
from server.settings import load_settings
from tests.fork_server import forked
from tests.in_process import in_process

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "coretools_mcp.py"
PEERS = ROOT / "tests" / "peers"

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with a handshake."""

HANDSHAKE = "legacy"
"""The mode of an SDK client with a handshake, in which it proposes the latest revision."""

MODERN = "2026-07-28"
REVISIONS = (*HANDSHAKES, MODERN)


class Route(NamedTuple):
    """A transport and a protocol revision."""

    transport: str
    revision: str

    @property
    def is_modern(self) -> bool:
        """Whether the revision has no handshake, and sends questions as results."""
        return self.revision == MODERN

    @property
    def is_network(self) -> bool:
        """Whether clients reach the server over HTTP."""
        return self.transport in ("http", "sse")

    @property
    def tells_clients_apart(self) -> bool:
        """Whether the server can tell clients apart."""
        return not (self.is_network and self.is_modern)

    @property
    def has_forms(self) -> bool:
        """Whether the revision has elicitation."""
        return self.revision not in ("2024-11-05", "2025-03-26")

    def __str__(self) -> str:
        return f"{self.transport}-{self.revision}"


TRANSPORTS = ("memory", "stdio", "sse", "http")
"""Over `http`, the revisions with a handshake have sessions. The 2026-07-28 revision has none."""

ROUTES = [Route(transport, revision) for transport in TRANSPORTS for revision in REVISIONS]

PERSONAL = types.Implementation(name="a-client-with-a-dialog", version="1")
"""A client with a person in front of it. By default, the SDK names itself as agent frameworks do."""

Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
Wire = AbstractAsyncContextManager[Streams]


def stdio_upstream(**settings: Any) -> dict[str, Any]:
    """Return a settings entry for the plain test upstream over stdio, which starts quickly."""
    return {"command": sys.executable, "args": ["-S", str(PEERS / "plain_upstream.py")], **settings}


def sdk_upstream(**settings: Any) -> dict[str, Any]:
    """Return a settings entry for a slower upstream with the same tools, built with the SDK."""
    return {"command": sys.executable, "args": forked([str(PEERS / "upstream.py")]), **settings}


def own_state() -> dict[str, str]:
    """Return the environment of a server in this process, whose state is not kept in the home folder."""
    return {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}


def write_config(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write a settings file and return its path."""
    path = folder / "config.json"
    # A busy machine may need longer to start an upstream than the default wait.
    defaults = {"proxy": {"firstListWait": 30_000}}
    path.write_text(json.dumps({**defaults, **settings}))
    return path


def command_line(*arguments: str) -> list[str]:
    """Return the command line of coretools-mcp. It is forked from a process that has already imported everything."""
    return [sys.executable, *forked([str(LAUNCHER), *arguments])]


def server_arguments(root: Path | None, config: Path | None, *options: str) -> list[str]:
    """Return the command line of `coretools-mcp serve`, without the interpreter."""
    arguments = ["-P", "-W", "error", str(LAUNCHER), "serve", *options]
    if root is not None:
        arguments += ["--workspace", str(root)]
    if config is not None:
        arguments += ["--config", str(config)]
    return arguments


@asynccontextmanager
async def listening(command: list[str], pattern: str) -> AsyncGenerator[str]:
    """Run a server that prints its address on standard error. Yields what the pattern's group matches."""
    async with await anyio.open_process(command, stdin=None, stdout=None) as process:
        try:
            with anyio.fail_after(60):
                address = await _find(process, pattern)
            yield address
        finally:
            process.terminate()
            with anyio.move_on_after(10, shield=True):
                await process.wait()


async def _find(process: anyio.abc.Process, pattern: str) -> str:
    assert process.stderr is not None
    output = ""
    async for chunk in process.stderr:
        output += chunk.decode()
        match = re.search(pattern, output)
        if match is not None:
            return match.group(1)
    raise AssertionError(f"the server ended without printing its address: {output}")


@asynccontextmanager
async def our_http_server(root: Path | None, config: Path | None, transport: str = "http") -> AsyncGenerator[str]:
    """Run coretools-mcp over HTTP on a free port. Yields its base URL."""
    options = server_arguments(root, config, "--transport", transport, "--port", "0")
    async with listening([sys.executable, *forked(options)], r"serving MCP at (http://\S+?),") as url:
        yield url


class _OlderRevisionStream:
    """Rewrites the `initialize` request to propose an older revision: the SDK's client proposes only the latest."""

    def __init__(self, stream: WriteStream[SessionMessage], revision: str) -> None:
        self._stream = stream
        self._revision = revision

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            params: dict[str, Any] = {**(message.params or {}), "protocolVersion": self._revision}
            if not Route("", self._revision).has_forms:
                params["capabilities"] = {**params["capabilities"]}
                params["capabilities"].pop("elicitation", None)
            item = SessionMessage(message.model_copy(update={"params": params}), item.metadata)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


@asynccontextmanager
async def _proposing(revision: str, wire: Wire) -> AsyncGenerator[Streams]:
    async with wire as (reading, writing):
        yield reading, _OlderRevisionStream(writing, revision)


@asynccontextmanager
async def speaking(revision: str, wire: Wire, **callbacks: Any) -> AsyncGenerator[Client]:
    """Connect an SDK client with this revision, over any transport."""
    callbacks = {"cache": None, "client_info": PERSONAL, **callbacks}
    if revision in HANDSHAKES:
        async with Client(_proposing(revision, wire), mode="legacy", **callbacks) as client:
            assert client.session.protocol_version == revision
            yield client
        return
    async with Client(wire, mode=revision, **callbacks) as client:
        yield client


def http_client(url: str, transport: str, revision: str, **callbacks: Any) -> AbstractAsyncContextManager[Client]:
    """Connect an SDK client to a running server."""
    wire = sse_client(f"{url}/sse") if transport == "sse" else streamable_http_client(f"{url}/mcp")
    return speaking(revision, wire, **callbacks)


@asynccontextmanager
async def connected(
    transport: str, revision: str, root: Path | None, config: Path | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """Connect an SDK client to a new server."""
    if transport == "memory":
        async with in_memory(revision, root, config, **callbacks) as client:
            yield client
    elif transport == "stdio":
        parameters = StdioServerParameters(command=sys.executable, args=forked(server_arguments(root, config)))
        async with speaking(revision, stdio_client(parameters), **callbacks) as client:
            yield client
    else:
        async with (
            our_http_server(root, config) as url,
            http_client(url, transport, revision, **callbacks) as client,
        ):
            yield client


@asynccontextmanager
async def in_memory(
    revision: str, root: Path | None, config: Path | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """Connect an SDK client to the whole server in this process."""
    overrides: dict[str, Any] = {} if root is None else {"workspace": {"roots": [str(root)]}}
    app = App(load_settings([str(config)] if config else [], overrides, own_state()), "stdio")
    async with app.running():
        if revision in HANDSHAKES:
            async with speaking(revision, in_process(app), **callbacks) as client:
                yield client
            return
        callbacks = {"cache": None, "client_info": PERSONAL, **callbacks}
        async with Client(in_process(app), mode=revision, **callbacks) as client:
            yield client


def text_of(result: types.CallToolResult) -> str:
    """Return all text of a result that the model sees."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
