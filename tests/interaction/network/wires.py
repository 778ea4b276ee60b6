"""HTTP as bytes on kept connections: clients that answer, listen and leave as a test wants, many at once."""

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
    """What comes before the body of an answer."""

    status: int
    headers: Mapping[str, str]


class Connection:
    """One connection that is kept."""

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
        """Send a request; the head of its answer."""
        lines = {"Host": self._host, "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        sent = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body
        if self._reader.at_eof() and self._reopen is not None:  # it was closed while nothing was asked
            self._writer.close()
            self._reader, self._writer = await self._reopen()
        self._writer.write(sent)
        return await self.head()

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Head:
        """The head of the next answer."""
        line = await self._reader.readline()
        assert line, "the server closed the connection"
        headers: dict[str, str] = {}
        while (header := (await self._reader.readline()).decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        return Head(int(line.split()[1]), headers)

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """The body of an answer as it comes."""
        if "content-length" in head.headers:
            yield await self._reader.readexactly(int(head.headers["content-length"]))
            return
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()

    async def events(self, head: Head) -> AsyncIterator[tuple[str, str]]:
        """The name and the data of each event of a stream; one without data is none."""
        text = ""
        async for piece in self.pieces(head):
            text += piece.decode().replace("\r\n", "\n")
            *whole, text = text.split("\n\n")
            for block in whole:
                fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
                if fields.get("data"):
                    yield fields.get("event", "message"), fields["data"]

    async def messages(self, head: Head) -> AsyncIterator[Message]:
        """The JSON-RPC messages of an answer."""
        if head.headers.get("content-type", "").startswith("text/event-stream"):
            async for _, data in self.events(head):
                yield json.loads(data)
            return
        body = b"".join([piece async for piece in self.pieces(head)])
        if body:
            yield json.loads(body)

    def end_output(self) -> None:
        """Close the way to the server, and read on."""
        self._writer.write_eof()

    async def is_at_end(self) -> bool:
        """Whether the server has closed its way too."""
        return await self._reader.read() == b""

    def close(self) -> None:
        """Go away."""
        self._writer.close()

    def reset(self) -> None:
        """Be lost, as when a machine goes."""
        self._writer.transport.abort()


@asynccontextmanager
async def connection(url: str, source: str = "127.0.0.1", *, reopens: bool = False) -> AsyncGenerator[Connection]:
    """A connection to a server, from an address of this machine.

    With `reopens` one that the server closed while nothing was asked is opened again, as HTTP clients do.
    """
    address = urlsplit(url)
    own = (source, 0)

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(address.hostname, address.port, limit=1 << 24, local_addr=own)

    connected = Connection(*await opened(), address.netloc, opened if reopens else None)
    try:
        yield connected
    finally:
        connected.close()


def request(identity: int, method: str, params: Mapping[str, Any] | None = None) -> Message:
    """A request of the revisions with a handshake."""
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": dict(params or {})}


def initialize(revision: str, capabilities: Mapping[str, Any] = FORM) -> Message:
    """What begins a session."""
    params = {"protocolVersion": revision, "capabilities": dict(capabilities), "clientInfo": INFO}
    return request(0, "initialize", params)


INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def modern(identity: int, method: str, params: Mapping[str, Any] | None = None, **capabilities: Any) -> Message:
    """A request of 2026-07-28, which stands for itself."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": INFO,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return request(identity, method, {**(params or {}), "_meta": meta})


def modern_headers(message: Message) -> dict[str, str]:
    """The headers that go with it."""
    named = message["params"].get("name") or message["params"].get("uri")
    more = {"Mcp-Name": named} if named else {}
    return {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"], **more}


async def post(wire: Connection, path: str, message: Message, headers: Mapping[str, str]) -> Head:
    """Send a message."""
    return await wire.ask("POST", path, {**ACCEPT, **headers}, json.dumps(message).encode())
