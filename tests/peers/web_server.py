"""Web servers on this machine that say exactly what a test wants, and name servers that lie."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Talk
"""What is written, or what writes it."""


def answer(
    body: bytes | str = b"", *, status: str = "200 OK", headers: Mapping[str, str] | None = None, **named: str
) -> bytes:
    """An ordinary answer; named headers have `_` for `-`."""
    content = body.encode() if isinstance(body, str) else body
    given = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content)), **(headers or {})}
    given |= {name.replace("_", "-").title(): value for name, value in named.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + content


def redirect(location: str, status: str = "302 Found") -> bytes:
    """An answer that leads on."""
    return answer(status=status, headers={"Location": location})


@dataclass
class WebServer:
    """A server that keeps what it was asked.

    Args:
        port: Where it listens on 127.0.0.1.
        answers: By path and query; what is not there is 404.
        requests: The head of each request, as it came.
        connections: How many were made.
        talking: How many are open.
    """

    port: int
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    requests: list[str] = field(default_factory=list[str])
    connections: int = 0
    talking: int = 0

    @property
    def paths(self) -> list[str]:
        """What was asked for."""
        return [request.split(" ", 2)[1] for request in self.requests]

    def url(self, path: str = "/", host: str = "site.test") -> str:
        """The URL of a path on this server."""
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.talking += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()
            self.talking -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.requests.append(head)
        said = self.answers.get(self.paths[-1], answer("nothing here", status="404 Not Found"))
        if isinstance(said, bytes):
            writer.write(said)
            await writer.drain()
        else:
            await said(reader, writer)


@asynccontextmanager
async def web_server(
    answers: Mapping[str, Answer] | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[WebServer]:
    """A server for as long as the context lasts; at its end no connection is open."""
    site = WebServer(0, dict(answers or {}))
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        with anyio.fail_after(20, shield=True):
            while site.talking:  # noqa: ASYNC110 - a connection ends when the other side is seen to have gone
                await anyio.sleep(0.005)


class NameServer:
    """Answers with the addresses that a test gives, one list for each time it is asked, the last one for ever.

    Args:
        hosts: The addresses of each name; other names do not exist.
    """

    def __init__(self, hosts: Mapping[str, Sequence[str] | Sequence[Sequence[str]]] | None = None) -> None:
        self._hosts = {
            name: [[str(item) for item in given]] if given and isinstance(given[0], str) else [list(g) for g in given]
            for name, given in (hosts or {"site.test": ["127.0.0.1"]}).items()
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The next answer for a name."""
        del port
        self.asked.append(host)
        given = self._hosts.get(host, [[]])
        return given.pop(0) if len(given) > 1 else given[0]


class DeadNameServer:
    """Cannot be reached."""

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Nobody answers."""
        raise OSError(host, port)


async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Say nothing until the other side goes."""
    await reader.read()


def drip(head: bytes, piece: bytes, seconds: float = 0) -> Talk:
    """Write a head, then a piece again and again until the other side goes."""

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(seconds)

    return talk
