"""Ways to a server that may be lost at any moment: over stdio, Streamable HTTP with and without sessions, and SSE.

An answer is that of the request that it names, so whatever comes for another one is noted as crossed.
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
"""What a connection that is gone looks like to `wires`."""
ENDPOINT = -1
"""What waits for the address of an SSE session, as if it were the answer to a request."""
YES: Mapping[str, Any] = {"action": "accept", "content": {"decision": "once"}}


class Way(ABC):
    """One client.

    Args:
        name: Its nonces begin with it.
    """

    is_lasting = True
    """Whether the server knows it again with the next request, so that its jobs are its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crossed: list[str] = []
        self.is_lost = True
        self.open: dict[int, str] = {}
        self._numbers = itertools.count(1)
        self._tokens = set[object]()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json | None:
        """The answer, a result or an error; nothing where the connection was lost."""
        if self.is_lost:
            return None
        identity = next(self._numbers)
        self._tokens.add(params.get("_meta", {}).get("progressToken"))
        self.open[identity] = f"{self.name}: {method} {str(params)[:200]}"
        try:
            answer = await self._ask(identity, method, params)
        except LOST:
            answer = None
        finally:
            del self.open[identity]
        if answer is None:
            self.is_lost = True
        elif answer.get("id") not in (identity, None):
            self.crossed.append(f"{self.name}: request {identity} has the answer {answer}")
        return answer

    async def call(self, tool: str, arguments: Mapping[str, Any], token: object = None) -> Json | None:
        """The answer to a call of a tool."""
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return await self.ask("tools/call", {"name": tool, "arguments": arguments, **meta})

    async def begin(self) -> bool:
        """Introduce itself; whether that worked."""
        try:
            async with asyncio.timeout(CEILING):
                self.is_lost = not await self._begin()
        except (*LOST, TimeoutError):
            self.is_lost = True
        return not self.is_lost

    async def close(self) -> None:
        """Go away."""
        self.is_lost = True

    def heard(self, message: Json) -> Json | None:
        """Take what is no answer; what is to be said to it."""
        method, identity = message.get("method"), message.get("id")
        if method == "notifications/progress":
            token = message["params"]["progressToken"]
            if token not in self._tokens:
                self.crossed.append(f"{self.name}: progress of somebody else, {token}")
        if identity is None or method is None:
            return None
        if method == "elicitation/create":
            if f"{self.name}x" not in message["params"]["message"]:
                self.crossed.append(f"{self.name}: asked about somebody else's call, {message}")
            return {"jsonrpc": "2.0", "id": identity, "result": YES}
        return {"jsonrpc": "2.0", "id": identity, "result": {}}

    @abstractmethod
    async def _begin(self) -> bool: ...

    @abstractmethod
    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None: ...


class Awaited:
    """The requests of a way whose answers come over one stream.

    Args:
        way: Notes what nobody waits for.
    """

    def __init__(self, way: Way) -> None:
        self._way = way
        self._waiting: dict[int, asyncio.Future[Json | None]] = {}

    def begin(self, identity: int) -> asyncio.Future[Json | None]:
        """The answer to a request that is about to be sent; nothing where the stream ends first."""
        waiting = self._waiting[identity] = asyncio.get_running_loop().create_future()
        return waiting

    def take(self, answer: Json) -> None:
        """Hand an answer to its request."""
        waiting = self._waiting.pop(answer["id"], None)
        if waiting is None:
            self._way.crossed.append(f"{self._way.name}: an answer that nobody waits for, {answer}")
        elif not waiting.cancelled():  # a caller that goes away may miss its answer
            waiting.set_result(answer)

    def end(self) -> None:
        """The stream has ended."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)


class StdioWay(Way):
    """The pipes of a server.

    Args:
        name: As of all.
        writing: The descriptor that the server reads.
        reading: The one that it writes.
    """

    def __init__(self, name: str, writing: int, reading: int) -> None:
        super().__init__(name)
        self.writing, self.reading = writing, reading
        for descriptor in (writing, reading):
            os.set_blocking(descriptor, False)
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._turn = asyncio.Lock()
        self._awaited = Awaited(self)
        self._reader = asyncio.create_task(self._read())

    async def _begin(self) -> bool:
        greeting = await self._ask(0, "initialize", initialize(REVISION)["params"])
        await self._say(INITIALIZED)
        return greeting is not None

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        waiting = self._awaited.begin(identity)
        await self._say(request(identity, method, params))
        return await waiting

    async def _say(self, message: Json) -> None:
        await self.write(json.dumps(message).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        async with self._turn:
            while data:
                with suppress(BlockingIOError):
                    data = data[os.write(self.writing, data) :]
                    continue
                await anyio.wait_writable(self.writing)

    def say_no_more(self) -> None:
        """Close the way to the server, and read on."""
        if self.writing >= 0:
            anyio.notify_closing(self.writing)
            os.close(self.writing)
            self.writing = -1

    async def _read(self) -> None:
        rest = b""
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
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await self._take(json.loads(line))
        except (OSError, anyio.ClosedResourceError):
            pass
        self.is_lost = True
        self._awaited.end()

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            self._awaited.take(message)
        elif (said := self.heard(message)) is not None:
            await self._say(said)

    async def close(self) -> None:
        self.may_read.set()
        self.say_no_more()
        if self.reading >= 0:
            anyio.notify_closing(self.reading)
            os.close(self.reading)
            self.reading = -1
        self._reader.cancel()
        await asyncio.wait([self._reader])
        self._awaited.end()
        await super().close()


class NetworkWay(Way):
    """What all ways over HTTP have.

    Args:
        name: As of all.
        url: Where the server listens.
        token: By which it knows the client, where it wants one.
    """

    def __init__(self, name: str, url: str, token: str) -> None:
        super().__init__(name)
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def _post(self, path: str, message: Json, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], Json]:
        """Send a message; the status, the headers and the last message of the answer. Requests in it are answered."""
        async with connection(self.url) as wire:
            head = await post(wire, path, message, {**self._headers, **headers, "Connection": "close"})
            last: Json = {}
            if head.status == 202:
                return head.status, head.headers, last
            async for heard in wire.messages(head):
                last = heard
                if (said := self.heard(heard)) is not None:
                    await self._post(path, said, headers)
            return head.status, head.headers, last


class SessionWay(NetworkWay):
    """A session over Streamable HTTP."""

    def __init__(self, name: str, url: str, token: str) -> None:
        super().__init__(name, url, token)
        self._session: dict[str, str] = {}

    async def _begin(self) -> bool:
        _, headers, _ = await self._post("/mcp", initialize(REVISION), {})
        self._session = {"Mcp-Session-Id": headers.get("mcp-session-id", ""), "MCP-Protocol-Version": REVISION}
        status, _, _ = await self._post("/mcp", INITIALIZED, self._session)
        return status == 202

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        status, _, answer = await self._post("/mcp", request(identity, method, params), self._session)
        return answer if "id" in answer and status != 404 else None

    def raw(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """A call as it goes over the wire."""
        body = json.dumps(request(1, "tools/call", {"name": tool, "arguments": dict(arguments)})).encode()
        lines = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **ACCEPT, **self._headers, **self._session}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body

    async def close(self) -> None:
        with suppress(*LOST, TimeoutError):
            async with asyncio.timeout(10), connection(self.url) as wire:
                await wire.ask("DELETE", "/mcp", {**self._headers, **self._session})
        await super().close()


class LoneWay(NetworkWay):
    """Requests of 2026-07-28, which stand for themselves; a question is answered at any of the servers.

    Args:
        name: As of all.
        urls: Where the servers listen; requests go to them in turn.
        token: As of all.
    """

    is_lasting = False

    def __init__(self, name: str, urls: list[str], token: str) -> None:
        super().__init__(name, urls[0], token)
        self._urls = itertools.cycle(urls)

    async def _begin(self) -> bool:
        return await self._leg(0, "server/discover", {}) is not None

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        if method == "ping":
            method = "server/discover"
        answer = await self._leg(identity, method, params)
        result: Json = (answer or {}).get("result") or {}
        if result.get("resultType") != "input_required":
            return answer
        for asked in result["inputRequests"].values():
            self.heard({"id": 0, **asked})
        replies = dict.fromkeys(result["inputRequests"], YES)
        again = {**params, "inputResponses": replies, "requestState": result["requestState"]}
        return await self._leg(identity, method, again)

    async def _leg(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        self.url = next(self._urls)
        message = modern(identity, method, params, **FORM)
        message["params"]["_meta"] |= params.get("_meta", {})
        status, _, answer = await self._post("/mcp", message, modern_headers(message))
        return answer if answer and status != 404 else None


class SseWay(NetworkWay):
    """A session over the older transport: one stream for all that the server says."""

    def __init__(self, name: str, url: str, token: str) -> None:
        super().__init__(name, url, token)
        self._endpoint = ""
        self._awaited = Awaited(self)
        self._listener: asyncio.Task[None] | None = None

    async def _begin(self) -> bool:
        await self.close()
        self._awaited = Awaited(self)
        known = self._awaited.begin(ENDPOINT)
        self._listener = asyncio.create_task(self._listen())
        if await known is None:
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
                        self._awaited.take({"id": ENDPOINT})
                    else:
                        await self._take(json.loads(data))
        self.is_lost = True
        self._awaited.end()

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            self._awaited.take(message)
        elif (said := self.heard(message)) is not None:
            await self._post(self._endpoint, said, {})

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Json | None:
        waiting = self._awaited.begin(identity)
        status, _, _ = await self._post(self._endpoint, request(identity, method, params), {})
        return await waiting if status == 202 else None

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
            self._awaited.end()
        await super().close()
