"""Clients over stdio, Streamable HTTP with and without sessions, and SSE. Their connection may be lost at any moment.

A message that belongs to another client, or to no open request, is recorded as misrouted.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio

from tests.interaction.network.wires import (
    ACCEPT,
    FORM,
    INITIALIZED,
    connection,
    initialize,
    modern,
    modern_headers,
    post,
    request,
)
from tests.waiting import CEILING

Json = dict[str, Any]
REVISION = "2025-11-25"
LOST = (OSError, EOFError, ValueError, AssertionError, anyio.ClosedResourceError)
"""The exceptions of a lost connection."""
ENDPOINT = -1
"""The id under which an SSE client waits for its endpoint, as if that were the answer to a request."""
YES: Mapping[str, Any] = {"action": "accept", "content": {"decision": "once"}}


class ChaosClient(ABC):
    """A client.

    Args:
        name: The first part of its nonces.
    """

    has_session = True
    """Whether the server recognises the client at its next request, so that it keeps its background jobs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.misrouted: list[str] = []
        self.is_lost = True
        self.open_requests: dict[int, str] = {}
        self._numbers = itertools.count(1)
        self._tokens = set[object]()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json | None:
        """Send a request and return the answer (a result or an error), or None if the connection was lost."""
        if self.is_lost:
            return None
        identity = next(self._numbers)
        self._tokens.add(params.get("_meta", {}).get("progressToken"))
        self.open_requests[identity] = f"{self.name}: {method} {str(params)[:200]}"
        try:
            answer = await self._ask(identity, method, params)
        except LOST:
            answer = None
        finally:
            del self.open_requests[identity]
        if answer is None:
            self.is_lost = True
        elif answer.get("id") not in (identity, None):
            self.misrouted.append(f"{self.name}: request {identity} has the answer {answer}")
        return answer

    async def call(self, tool: str, arguments: Mapping[str, Any], token: object = None) -> Json | None:
        """Call a tool and return the answer."""
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return await self.ask("tools/call", {"name": tool, "arguments": arguments, **meta})

    async def connect(self) -> bool:
        """Connect and initialize. Return whether that worked."""
        try:
            async with asyncio.timeout(CEILING):
                self.is_lost = not await self._connect()
        except (*LOST, TimeoutError):
            self.is_lost = True
        return not self.is_lost

    async def close(self) -> None:
        """Disconnect."""
        self.is_lost = True

    def handle(self, message: Json) -> Json | None:
        """Handle a request or notification from the server, and return the reply to send, if any."""
        method, identity = message.get("method"), message.get("id")
        if method == "notifications/progress":
            token = message["params"]["progressToken"]
            if token not in self._tokens:
                self.misrouted.append(f"{self.name}: progress for another client, {token}")
        if identity is None or method is None:
            return None
        if method == "elicitation/create":
            if f"{self.name}x" not in message["params"]["message"]:
                self.misrouted.append(f"{self.name}: a question about another client's call, {message}")
            return {"jsonrpc": "2.0", "id": identity, "result": YES}
        return {"jsonrpc": "2.0", "id": identity, "result": {}}

    @abstractmethod
    async def _connect(self) -> bool: ...

    @abstractmethod
    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None: ...


class PendingRequests:
    """The open requests of a client whose answers arrive over one stream.

    Args:
        client: Records answers that no request waits for.
    """

    def __init__(self, client: ChaosClient) -> None:
        self._client = client
        self._waiting: dict[int, asyncio.Future[Json | None]] = {}

    def register(self, identity: int) -> asyncio.Future[Json | None]:
        """Register a request before it is sent. The future is the answer, or None if the stream ends first."""
        waiting = self._waiting[identity] = asyncio.get_running_loop().create_future()
        return waiting

    def take(self, answer: Json) -> None:
        """Pass an answer to the request that waits for it."""
        waiting = self._waiting.pop(answer["id"], None)
        if waiting is None:
            self._client.misrouted.append(f"{self._client.name}: an answer that nobody waits for, {answer}")
        elif not waiting.cancelled():  # a cancelled caller no longer wants its answer
            waiting.set_result(answer)

    def end(self) -> None:
        """End all open requests, because the stream has ended."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)


class StdioClient(ChaosClient):
    """A client over the pipes of a server.

    Args:
        name: See `ChaosClient`.
        writing: Descriptor of the pipe to the server.
        reading: Descriptor of the pipe from the server.
    """

    def __init__(self, name: str, writing: int, reading: int) -> None:
        super().__init__(name)
        self.writing, self.reading = writing, reading
        for descriptor in (writing, reading):
            os.set_blocking(descriptor, False)
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._turn = asyncio.Lock()
        self._pending = PendingRequests(self)
        self._reader = asyncio.create_task(self._read())

    async def _connect(self) -> bool:
        greeting = await self._ask(0, "initialize", initialize(REVISION)["params"])
        await self._say(INITIALIZED)
        return greeting is not None

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        waiting = self._pending.register(identity)
        await self._say(request(identity, method, params))
        return await waiting

    async def _say(self, message: Json) -> None:
        await self.write(json.dumps(message).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        """Send bytes unchanged."""
        async with self._turn:
            while data:
                with suppress(BlockingIOError):
                    data = data[os.write(self.writing, data) :]
                    continue
                await anyio.wait_writable(self.writing)

    def say_no_more(self) -> None:
        """Close the pipe to the server, and go on reading."""
        if self.writing >= 0:
            anyio.notify_closing(self.writing)
            os.close(self.writing)
            self.writing = -1

    async def _read(self) -> None:
        partial_line = b""
        try:
            while True:
                await self.may_read.wait()
                await anyio.wait_readable(self.reading)
                try:
                    data = os.read(self.reading, 1 << 16)
                except BlockingIOError:
                    continue
                if not data:
                    break
                *lines, partial_line = (partial_line + data).split(b"\n")
                for line in lines:
                    await self._take(json.loads(line))
        except (OSError, anyio.ClosedResourceError):
            pass
        self.is_lost = True
        self._pending.end()

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            self._pending.take(message)
        elif (reply := self.handle(message)) is not None:
            await self._say(reply)

    async def close(self) -> None:
        self.may_read.set()
        self.say_no_more()
        if self.reading >= 0:
            anyio.notify_closing(self.reading)
            os.close(self.reading)
            self.reading = -1
        self._reader.cancel()
        await asyncio.wait([self._reader])
        self._pending.end()
        await super().close()


class HttpClient(ChaosClient):
    """What all clients over HTTP share.

    Args:
        name: See `ChaosClient`.
        url: Base URL of the server.
        token: Access token; empty if the server requires none.
    """

    def __init__(self, name: str, url: str, token: str) -> None:
        super().__init__(name)
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def _post(self, path: str, message: Json, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], Json]:
        """Send a message, and answer the server's requests. Return the status, the headers and the last message."""
        async with connection(self.url) as wire:
            head = await post(wire, path, message, {**self._headers, **headers, "Connection": "close"})
            last: Json = {}
            if head.status == 202:
                return head.status, head.headers, last
            async for received in wire.messages(head):
                last = received
                if (reply := self.handle(received)) is not None:
                    await self._post(path, reply, headers)
            return head.status, head.headers, last


class SessionClient(HttpClient):
    """A client with a session over Streamable HTTP."""

    def __init__(self, name: str, url: str, token: str) -> None:
        super().__init__(name, url, token)
        self._session: dict[str, str] = {}

    async def _connect(self) -> bool:
        _, headers, _ = await self._post("/mcp", initialize(REVISION), {})
        self._session = {"Mcp-Session-Id": headers.get("mcp-session-id", ""), "MCP-Protocol-Version": REVISION}
        status, _, _ = await self._post("/mcp", INITIALIZED, self._session)
        return status == 202

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        status, _, answer = await self._post("/mcp", request(identity, method, params), self._session)
        return answer if "id" in answer and status != 404 else None

    def raw(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """Return the bytes of a complete HTTP request that calls a tool."""
        body = json.dumps(request(1, "tools/call", {"name": tool, "arguments": dict(arguments)})).encode()
        lines = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **ACCEPT, **self._headers, **self._session}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body

    async def close(self) -> None:
        with suppress(*LOST, TimeoutError):
            async with asyncio.timeout(10), connection(self.url) as wire:
                await wire.ask("DELETE", "/mcp", {**self._headers, **self._session})
        await super().close()


class StatelessClient(HttpClient):
    """A client of the 2026-07-28 revision, which has no sessions. Any of the servers can take its answers to questions.

    Args:
        name: See `ChaosClient`.
        urls: Base URLs of the servers; requests go to them in turn.
        token: See `HttpClient`.
    """

    has_session = False

    def __init__(self, name: str, urls: list[str], token: str) -> None:
        super().__init__(name, urls[0], token)
        self._urls = itertools.cycle(urls)

    async def _connect(self) -> bool:
        return await self._send_once(0, "server/discover", {}) is not None

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        if method == "ping":
            method = "server/discover"
        answer = await self._send_once(identity, method, params)
        result: Json = (answer or {}).get("result") or {}
        if result.get("resultType") != "input_required":
            return answer
        for question in result["inputRequests"].values():
            self.handle({"id": 0, **question})
        replies = dict.fromkeys(result["inputRequests"], YES)
        retry_params = {**params, "inputResponses": replies, "requestState": result["requestState"]}
        return await self._send_once(identity, method, retry_params)

    async def _send_once(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        self.url = next(self._urls)
        message = modern(identity, method, params, **FORM)
        message["params"]["_meta"] |= params.get("_meta", {})
        status, _, answer = await self._post("/mcp", message, modern_headers(message))
        return answer if answer and status != 404 else None


class SseClient(HttpClient):
    """A client of the older HTTP+SSE transport, where all of the server's messages arrive over one stream."""

    def __init__(self, name: str, url: str, token: str) -> None:
        super().__init__(name, url, token)
        self._endpoint = ""
        self._pending = PendingRequests(self)
        self._listener: asyncio.Task[None] | None = None

    async def _connect(self) -> bool:
        await self.close()
        self._pending = PendingRequests(self)
        endpoint = self._pending.register(ENDPOINT)
        self._listener = asyncio.create_task(self._listen())
        if await endpoint is None:
            return False
        greeting = await self._ask(0, "initialize", initialize(REVISION)["params"])
        await self._post(self._endpoint, INITIALIZED, {})
        return greeting is not None

    async def _listen(self) -> None:
        with suppress(*LOST):
            async with connection(self.url) as wire:
                head = await wire.ask("GET", "/sse", self._headers)
                async for name, data in wire.events(head):
                    if name == "endpoint":
                        self._endpoint = data
                        self._pending.take({"id": ENDPOINT})
                    else:
                        await self._take(json.loads(data))
        self.is_lost = True
        self._pending.end()

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            self._pending.take(message)
        elif (reply := self.handle(message)) is not None:
            await self._post(self._endpoint, reply, {})

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        waiting = self._pending.register(identity)
        status, _, _ = await self._post(self._endpoint, request(identity, method, params), {})
        return await waiting if status == 202 else None

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
            self._pending.end()
        await super().close()
