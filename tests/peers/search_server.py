"""A server that imitates the web search providers as their documentation describes them, and that can misbehave.

It runs on the event loop of the test. Each provider has its own path. A request that breaks a provider's documented
rules gets the documented error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TAVILY_KEY = "tvly-a-key-for-tests-only"
BRAVE_KEY = "BSA-a-key-for-tests-only"
GOOGLE_KEY = "AIza-a-key-for-tests-only"
ENGINE = "0123456789abcdef0"

TAVILY_PATH = "/tavily/search"
BRAVE_PATH = "/res/v1/web/search"
GOOGLE_PATH = "/customsearch/v1"
SEARXNG_PATH = "/searxng/search"

NOTHING = "nothing to be found"
"""A query without results"""


@dataclass(frozen=True, slots=True)
class Received:
    """A request that the server received."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; a body of bytes is sent as it is, any other one as JSON."""

    status: int = 200
    body: Any = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def data(self) -> bytes:
        """The response as bytes, with its head."""
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} Said", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


Misbehaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


class SearchServer:
    """One server for all providers.

    Args:
        received: The requests so far.
        reply: The reply to send instead of the provider's.
        misbehave: Takes over each connection after its request.
        closed: Set when a client of a misbehaving server has disconnected.
    """

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.reply: Reply | None = None
        self.misbehave: Misbehaviour | None = None
        self.closed = asyncio.Event()
        self.authority = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def only(self) -> Received:
        """The only request so far."""
        (request,) = self.received
        return request

    def url(self, path: str) -> str:
        """The URL of a path on this server."""
        return f"http://{self.authority}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def end(self) -> None:
        """Cancel all connections that are still open, and wait until they are closed."""
        for task in tuple(self._tasks):
            task.cancel()
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _request(reader)
            self.received.append(request)
            if self.misbehave is not None:
                await self.misbehave(writer)
                await reader.read()
                self.closed.set()
            else:
                writer.write((self.reply or _provider_reply(request)).data())
                await writer.drain()


@asynccontextmanager
async def search_server() -> AsyncGenerator[SearchServer]:
    """Run a server on a free port."""
    site = SearchServer()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    site.authority = f"{host}:{port}"
    try:
        yield site
    finally:
        server.close()
        await site.end()
        await server.wait_closed()


async def _request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return Received(method, url.path, dict(parse_qsl(url.query, keep_blank_values=True)), headers, body)


def _provider_reply(request: Received) -> Reply:
    provider = {
        ("POST", TAVILY_PATH): _tavily,
        ("GET", BRAVE_PATH): _brave,
        ("GET", GOOGLE_PATH): _google,
        ("GET", SEARXNG_PATH): _searxng,
    }.get((request.method, request.path))
    return provider(request) if provider is not None else Reply(404, b"Not found", {"Content-Type": "text/plain"})


def _pages(count: int) -> range:
    return range(1, count + 1)


def _tavily(request: Received) -> Reply:
    if request.headers.get("authorization") != f"Bearer {TAVILY_KEY}":
        return Reply(401, {"detail": {"error": "Unauthorized: missing or invalid API key."}})
    if request.headers.get("content-type") != "application/json":
        return Reply(422, {"detail": "the body is no JSON"})
    search = request.json()
    results = [
        {
            "title": f"Page {number}",
            "url": f"https://example.org/{number}",
            "content": f"What page {number} says about it.",
            "score": 1 - number / 10,
            "raw_content": None,
            "published_date": "Mon, 02 Mar 2026 10:00:00 GMT",
        }
        for number in _pages(search["max_results"])
    ]
    has_results = search["query"] != NOTHING
    return Reply(
        body={
            "query": search["query"],
            "answer": "It is so." if has_results and search["include_answer"] else None,
            "follow_up_questions": None,
            "images": [],
            "results": results if has_results else [],
            "response_time": 1.09,
        }
    )


def _brave(request: Received) -> Reply:
    if request.headers.get("x-subscription-token") != BRAVE_KEY:
        return Reply(422, {"type": "ErrorResponse", "error": {"status": 422, "code": "SUBSCRIPTION_TOKEN_INVALID"}})
    query = request.query["q"]
    reply: dict[str, Any] = {"type": "search", "query": {"original": query, "more_results_available": False}}
    if query != NOTHING:
        results = [
            {
                "type": "search_result",
                "title": f"Page {number} &amp; more",
                "url": f"https://example.org/{number}",
                "description": f"What page {number} says, &quot;quoted&quot;.",
                "page_age": "2026-03-02T10:00:00",
                "age": "March 2, 2026",
            }
            for number in _pages(int(request.query["count"]))
        ]
        reply["web"] = {"type": "search", "results": results, "family_friendly": True}
    return Reply(body=reply)


def _google(request: Received) -> Reply:
    if request.query.get("key") != GOOGLE_KEY:
        message = "API key not valid. Please pass a valid API key."
        return Reply(400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
    if request.query.get("cx") != ENGINE or not 1 <= int(request.query["num"]) <= 10:
        return Reply(400, {"error": {"code": 400, "message": "Request contains an invalid argument."}})
    reply: dict[str, Any] = {"kind": "customsearch#search", "searchInformation": {"totalResults": "0"}}
    if request.query["q"] != NOTHING:
        reply["items"] = [
            {
                "kind": "customsearch#result",
                "title": f"Page {number}",
                "link": f"https://example.org/{number}",
                "snippet": f"What page {number}\nsays about it.",
                "pagemap": {"metatags": [{"article:published_time": "2026-03-02T10:00:00Z"}]},
            }
            for number in _pages(int(request.query["num"]))
        ]
    return Reply(body=reply)


def _searxng(request: Received) -> Reply:
    if request.query.get("format") != "json":
        return Reply(403, b"Forbidden", {"Content-Type": "text/html"})
    results = [
        {
            "title": f"Page {number}",
            "url": f"https://example.org/{number}",
            "content": f"What page {number} says about it.",
            "engine": "one",
            "engines": ["one"],
            "score": 4.5,
            "publishedDate": "2026-03-02T10:00:00",
        }
        for number in _pages(30)
    ]
    has_results = request.query["q"] != NOTHING
    return Reply(
        body={
            "query": request.query["q"],
            "number_of_results": 0,
            "results": results if has_results else [],
            "answers": [{"answer": "It is so.", "url": None}] if has_results else [],
            "corrections": [],
            "infoboxes": [],
            "suggestions": [],
            "unresponsive_engines": [],
        }
    )
