"""Local web servers that send exactly what a test wants, and name servers whose answers a test determines."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Talk
"""The bytes of a response, or a function that writes it"""


def answer(
    body: bytes | str = b"", *, status: str = "200 OK", headers: Mapping[str, str] | None = None, **more_headers: str
) -> bytes:
    """An ordinary response; headers given as keyword arguments have `_` instead of `-`."""
    content = body.encode() if isinstance(body, str) else body
    all_headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content)), **(headers or {})}
    all_headers |= {name.replace("_", "-").title(): value for name, value in more_headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + content


def redirect(location: str, status: str = "302 Found") -> bytes:
    """A redirect to a location."""
    return answer(status=status, headers={"Location": location})


@dataclass
class WebServer:
    """A server that records its requests.

    Args:
        port: The port on 127.0.0.1.
        answers: The responses by path and query; anything else is a 404.
        requests: The head of each request.
        connections: The number of connections so far.
        open_connections: The number of open connections.
    """

    port: int
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    requests: list[str] = field(default_factory=list[str])
    connections: int = 0
    open_connections: int = 0

    @property
    def paths(self) -> list[str]:
        """The requested paths, with their queries."""
        return [request.split(" ", 2)[1] for request in self.requests]

    def url(self, path: str = "/", host: str = "site.test") -> str:
        """The URL of a path on this server."""
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self.open_connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()
            self.open_connections -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.requests.append(head)
        reply = self.answers.get(self.paths[-1], answer("nothing here", status="404 Not Found"))
        if isinstance(reply, bytes):
            writer.write(reply)
            await writer.drain()
        else:
            await reply(reader, writer)


@asynccontextmanager
async def web_server(
    answers: Mapping[str, Answer] | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[WebServer]:
    """Run a server within the context; when the context ends, all connections are closed."""
    site = WebServer(0, dict(answers or {}))
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        with anyio.fail_after(20, shield=True):
            while site.open_connections:  # noqa: ASYNC110 - a connection ends when the server notices that the client has disconnected
                await anyio.sleep(0.005)


class NameServer:
    """Resolves names to the addresses that a test gives; each query takes the next list, and the last one is repeated.

    Args:
        hosts: The address lists of each name; other names do not exist.
    """

    def __init__(self, hosts: Mapping[str, Sequence[str] | Sequence[Sequence[str]]] | None = None) -> None:
        self._hosts = {
            name: [[str(item) for item in addresses]]
            if addresses and isinstance(addresses[0], str)
            else [list(g) for g in addresses]
            for name, addresses in (hosts or {"site.test": ["127.0.0.1"]}).items()
        }
        self.queries: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the next answer for a name."""
        del port
        self.queries.append(host)
        answers = self._hosts.get(host, [[]])
        return answers.pop(0) if len(answers) > 1 else answers[0]


class DeadNameServer:
    """A name server that cannot be reached."""

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Fail, as if nobody answered."""
        raise OSError(host, port)


async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Send nothing until the client disconnects."""
    await reader.read()


def drip(head: bytes, piece: bytes, seconds: float = 0) -> Talk:
    """Write a head, and then a piece again and again until the client disconnects."""

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(seconds)

    return talk
