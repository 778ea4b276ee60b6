"""Lanes: the ways in which a principal reaches a server, namely sessions over `/mcp`, stateless requests, and `/sse`.

Each lane numbers its requests from 1, so that all lanes use the same JSON-RPC ids at the same time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.interaction.network.wires import (
    FORM,
    INITIALIZED,
    Connection,
    connection,
    initialize,
    modern,
    modern_headers,
    post,
    request,
)
from tests.interaction.raw_clients import Message

CAPABILITIES: Mapping[str, Any] = {**FORM, "roots": {}}


class Lane(ABC):
    """A client of one principal.

    Args:
        name: The lane's name; the tests use it for files, so that each question must contain it.
        token: The token of the principal.
        roots: The folders in which the client works.
    """

    def __init__(self, name: str, token: str, roots: Sequence[Path]) -> None:
        self.name = name
        self.reply: Mapping[str, Any] = {"action": "decline"}
        self.questions: list[str] = []
        self.calls = 0
        self.headers = {"Authorization": f"Bearer {token}"}
        self._roots = [{"uri": root.as_uri()} for root in roots]
        self._numbers = itertools.count(1)

    async def call(self, tool: str, **arguments: Any) -> Message:
        """Call a tool; return the result."""
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """Send a request, and check that the answer has its id; return the result."""
        self.calls += 1
        return await self._ask(next(self._numbers), method, params or {})

    @abstractmethod
    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Message: ...

    def _result(self, identity: int, message: Message) -> Message:
        assert message.get("id") == identity, f"{self.name} got the answer {message} to request {identity}"
        return message["result"]

    def _answer(self, question: Message) -> Message:
        """The answer to a request from the server."""
        if question["method"] == "roots/list":
            result: Mapping[str, Any] = {"roots": self._roots}
        else:
            self.questions.append(question["params"]["message"])
            result = self.reply
        return {"jsonrpc": "2.0", "id": question["id"], "result": result}


class SessionLane(Lane):
    """A session over Streamable HTTP."""

    def __init__(self, name: str, token: str, roots: Sequence[Path], wire: Connection, aside: Connection) -> None:
        super().__init__(name, token, roots)
        self._wire = wire
        self._aside = aside

    async def begin(self, revision: str) -> None:
        """Do the handshake."""
        head = await post(self._wire, "/mcp", initialize(revision, CAPABILITIES), self.headers)
        assert [message["id"] async for message in self._wire.messages(head)] == [0]
        session_headers = {"Mcp-Session-Id": head.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        self.headers.update(session_headers)
        await self._say(INITIALIZED)

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Message:
        head = await post(self._wire, "/mcp", request(identity, method, params), self.headers)
        answer: Message = {}
        async for message in self._wire.messages(head):
            answer = message
            if "method" in message and "id" in message:
                await self._say(self._answer(message))
        return self._result(identity, answer)

    async def _say(self, message: Message) -> None:
        head = await post(self._aside, "/mcp", message, self.headers)
        assert head.status == 202
        _ = [piece async for piece in self._aside.pieces(head)]


class StatelessLane(Lane):
    """Stateless requests of 2026-07-28 over Streamable HTTP."""

    def __init__(self, name: str, token: str, wire: Connection) -> None:
        super().__init__(name, token, ())
        self._wire = wire

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Message:
        result = await self._leg(identity, method, params)
        if result.get("resultType") != "input_required":
            return result
        ((key, question),) = result["inputRequests"].items()
        self.questions.append(question["params"]["message"])
        self.calls += 1
        answered_params = {**params, "inputResponses": {key: self.reply}, "requestState": result["requestState"]}
        return await self._leg(next(self._numbers), method, answered_params)

    async def _leg(self, identity: int, method: str, params: Mapping[str, Any]) -> Message:
        message = modern(identity, method, params, **FORM)
        head = await post(self._wire, "/mcp", message, {**self.headers, **modern_headers(message)})
        answers = [answer async for answer in self._wire.messages(head)]
        return self._result(identity, answers[-1])


class SseLane(Lane):
    """A session over SSE, the older transport."""

    def __init__(self, name: str, token: str, roots: Sequence[Path], stream: Connection, wire: Connection) -> None:
        super().__init__(name, token, roots)
        self._stream = stream
        self._wire = wire
        self._events: AsyncIterator[tuple[str, str]] | None = None
        self._endpoint = ""

    async def begin(self, revision: str) -> None:
        """Open the stream, and do the handshake."""
        head = await self._stream.ask("GET", "/sse", self.headers)
        events = self._stream.events(head)
        name, self._endpoint = await anext(events)
        assert name == "endpoint"
        self._events = events
        await self._say(initialize(revision, CAPABILITIES))
        assert (await self._next())["id"] == 0
        await self._say(INITIALIZED)

    async def _ask(self, identity: int, method: str, params: Mapping[str, Any]) -> Message:
        await self._say(request(identity, method, params))
        while "method" in (message := await self._next()):
            if "id" in message:
                await self._say(self._answer(message))
        return self._result(identity, message)

    async def _next(self) -> Message:
        assert self._events is not None
        return json.loads((await anext(self._events))[1])

    async def _say(self, message: Message) -> None:
        head = await post(self._wire, self._endpoint, message, self.headers)
        assert head.status == 202
        _ = [piece async for piece in self._wire.pieces(head)]


@asynccontextmanager
async def open_lane(
    kind: str, url: str, name: str, token: str, roots: Sequence[Path], source: str = "127.0.0.1"
) -> AsyncGenerator[Lane]:
    """Open a lane, with its handshake done, from an address of this machine.

    The kinds are `session`, `sse` and `lone`, which is for stateless requests.
    """
    async with (
        connection(url, source, reopens=True) as first,
        connection(url, source, reopens=True) as second,
    ):
        if kind == "lone":
            yield StatelessLane(name, token, first)
            return
        lane = (SessionLane if kind == "session" else SseLane)(name, token, roots, first, second)
        async with asyncio.timeout(30):
            await lane.begin("2025-11-25")
        yield lane
