"""Raw HTTP on persistent connections, for many clients that answer, listen and disconnect exactly as a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.harness import MODERN
from tests.interaction.raw_clients import Message

ACCEPT: Mapping[str, str] = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}
FORM: Mapping[str, Any] = {"elicitation": {"form": {}}}
INFO = {"name": "wires", "version": "1"}


@dataclass(frozen=True, slots=True)
class Head:
    """The status and the headers of a response."""

    status: int
    headers: Mapping[str, str]


class Connection:
    """A persistent connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str,
        reopen: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._reopen = reopen

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Head:
        """Send a request; return the head of the response."""
        lines = {"Host": self._host, "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        data = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body
        if self._reader.at_eof() and self._reopen is not None:  # the server closed the idle connection
            self._writer.close()
            self._reader, self._writer = await self._reopen()
        self._writer.write(data)
        return await self.head()

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Head:
        """Read the head of the next response."""
        line = await self._reader.readline()
        assert line, "the server closed the connection"
        headers: dict[str, str] = {}
        while (header := (await self._reader.readline()).decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        return Head(int(line.split()[1]), headers)

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """The pieces of a response's body, as they arrive."""
        if "content-length" in head.headers:
            yield await self._reader.readexactly(int(head.headers["content-length"]))
            return
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()

    async def events(self, head: Head) -> AsyncIterator[tuple[str, str]]:
        """The name and the data of each event of a stream; events without data are skipped."""
        text = ""
        async for piece in self.pieces(head):
            text += piece.decode().replace("\r\n", "\n")
            *blocks, text = text.split("\n\n")
            for block in blocks:
                fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
                if fields.get("data"):
                    yield fields.get("event", "message"), fields["data"]

    async def messages(self, head: Head) -> AsyncIterator[Message]:
        """The JSON-RPC messages of a response."""
        if head.headers.get("content-type", "").startswith("text/event-stream"):
            async for _, data in self.events(head):
                yield json.loads(data)
            return
        body = b"".join([piece async for piece in self.pieces(head)])
        if body:
            yield json.loads(body)

    def end_output(self) -> None:
        """Close the direction to the server; reading still works."""
        self._writer.write_eof()

    async def is_at_end(self) -> bool:
        """Whether the server sends nothing more, and has closed its direction."""
        return await self._reader.read() == b""

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def reset(self) -> None:
        """Abort the connection, as if the client's machine had crashed."""
        self._writer.transport.abort()


@asynccontextmanager
async def connection(url: str, source: str = "127.0.0.1", *, reopens: bool = False) -> AsyncGenerator[Connection]:
    """Open a connection to a server, from an address of this machine.

    With `reopens`, the connection is opened again if the server closed it while it was idle, as HTTP clients do.
    """
    address = urlsplit(url)
    local_address = (source, 0)

    async def open_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(address.hostname, address.port, limit=1 << 24, local_addr=local_address)

    wire = Connection(*await open_streams(), address.netloc, open_streams if reopens else None)
    try:
        yield wire
    finally:
        wire.close()


def request(identity: int, method: str, params: Mapping[str, Any] | None = None) -> Message:
    """A request of the handshake era."""
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": dict(params or {})}


def initialize(revision: str, capabilities: Mapping[str, Any] = FORM) -> Message:
    """The request that opens a session."""
    params = {"protocolVersion": revision, "capabilities": dict(capabilities), "clientInfo": INFO}
    return request(0, "initialize", params)


INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def modern(identity: int, method: str, params: Mapping[str, Any] | None = None, **capabilities: Any) -> Message:
    """A stateless request of 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": INFO,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return request(identity, method, {**(params or {}), "_meta": meta})


def modern_headers(message: Message) -> dict[str, str]:
    """The headers of a request of 2026-07-28."""
    name = message["params"].get("name") or message["params"].get("uri")
    name_header = {"Mcp-Name": name} if name else {}
    return {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"], **name_header}


async def post(wire: Connection, path: str, message: Message, headers: Mapping[str, str]) -> Head:
    """Send a JSON-RPC message; return the head of the response."""
    return await wire.ask("POST", path, {**ACCEPT, **headers}, json.dumps(message).encode())
