"""A server that speaks as the providers of web search document it, and that can be told to misbehave.

It runs on the event loop of the test. Each provider has its own path; a request that is not as documented is answered
as the provider documents that.
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
"""A query that finds nothing."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as an object."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back: an object as JSON, or bytes as they are."""

    status: int = 200
    body: Any = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def data(self) -> bytes:
        """The whole answer."""
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} Said", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


Misbehaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


class SearchServer:
    """One server for all providers.

    Args:
        received: The requests so far.
        reply: Sent instead of what the provider would say.
        misbehave: Takes over the connection once a request has come.
        closed: Set when a client has gone away.
    """

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.reply: Reply | None = None
        self.misbehave: Misbehaviour | None = None
        self.closed = asyncio.Event()
        self.authority = ""
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def only(self) -> Received:
        """The request, where there was one."""
        (request,) = self.received
        return request

    def url(self, path: str) -> str:
        """The address of a path here."""
        return f"http://{self.authority}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self._serving.discard(task)

    async def end(self) -> None:
        """Wait until no connection is open; one that is still busy is broken off."""
        for task in tuple(self._serving):
            task.cancel()
        while self._serving:
            await asyncio.wait(tuple(self._serving))

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
    """A server on a port of its own."""
    serving = SearchServer()
    server = await asyncio.start_server(serving.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    serving.authority = f"{host}:{port}"
    try:
        yield serving
    finally:
        server.close()
        await serving.end()
        await server.wait_closed()


async def _request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    where = urlsplit(target)
    return Received(method, where.path, dict(parse_qsl(where.query, keep_blank_values=True)), headers, body)


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
    asked = request.json()
    found = [
        {
            "title": f"Page {number}",
            "url": f"https://example.org/{number}",
            "content": f"What page {number} says about it.",
            "score": 1 - number / 10,
            "raw_content": None,
            "published_date": "Mon, 02 Mar 2026 10:00:00 GMT",
        }
        for number in _pages(asked["max_results"])
    ]
    is_found = asked["query"] != NOTHING
    return Reply(
        body={
            "query": asked["query"],
            "answer": "It is so." if is_found and asked["include_answer"] else None,
            "follow_up_questions": None,
            "images": [],
            "results": found if is_found else [],
            "response_time": 1.09,
        }
    )


def _brave(request: Received) -> Reply:
    if request.headers.get("x-subscription-token") != BRAVE_KEY:
        return Reply(422, {"type": "ErrorResponse", "error": {"status": 422, "code": "SUBSCRIPTION_TOKEN_INVALID"}})
    query = request.query["q"]
    reply: dict[str, Any] = {"type": "search", "query": {"original": query, "more_results_available": False}}
    if query != NOTHING:
        found = [
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
        reply["web"] = {"type": "search", "results": found, "family_friendly": True}
    return Reply(body=reply)


def _google(request: Received) -> Reply:
    if request.query.get("key") != GOOGLE_KEY:
        said = "API key not valid. Please pass a valid API key."
        return Reply(400, {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}})
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
    found = [
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
    is_found = request.query["q"] != NOTHING
    return Reply(
        body={
            "query": request.query["q"],
            "number_of_results": 0,
            "results": found if is_found else [],
            "answers": [{"answer": "It is so.", "url": None}] if is_found else [],
            "corrections": [],
            "infoboxes": [],
            "suggestions": [],
            "unresponsive_engines": [],
        }
    )
