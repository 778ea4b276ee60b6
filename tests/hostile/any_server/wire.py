"""One connection to the server under test: JSON-RPC over its pipes or over Streamable HTTP, with every wait bounded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]

REVISION = "2025-06-18"
WAIT = 30.0
"""Seconds that an answer may take."""
START = 60.0
"""Seconds that a server may take to start."""
LARGEST_LINE = 1 << 28


class NoAnswerError(Exception):
    """The server is running, but it has not answered in time."""


class LostError(Exception):
    """The server has ended, or closed the connection."""


def object_at(value: Any, *keys: str) -> Json:
    """Return the object at this path of keys in an untrusted message, or an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def accept(question: Json) -> Json | None:
    """Answer as a person who always says yes: each required field gets its first choice."""
    schema = question.get("params", {}).get("requestedSchema", {})
    content: Json = {}
    for name in schema.get("required", []):
        form = schema.get("properties", {}).get(name, {})
        choices = form.get("enum") or [choice.get("const") for choice in form.get("oneOf", [])]
        by_type = {"boolean": True, "integer": 1, "number": 1}
        content[name] = choices[0] if choices else form.get("default", by_type.get(form.get("type"), "yes"))
    return {"result": {"action": "accept", "content": content}}


def decline(_question: Json) -> Json | None:
    """Answer as a person who always says no."""
    return {"result": {"action": "decline"}}


def no_answer(_question: Json) -> Json | None:
    """Give no answer: the person is away."""
    return None


@dataclass
class Person:
    """The person who answers the questions of a server.

    Args:
        answer: Returns the response to a question, with `result` or `error`, or None for no response.
        questions: The questions so far.
    """

    answer: Callable[[Json], Json | None] = accept
    questions: list[Json] = field(default_factory=list[Json])

    @property
    def messages(self) -> list[str]:
        """The text of each question."""
        return [str(question.get("params", {}).get("message", "")) for question in self.questions]


class Connection:
    """A client of the server: it sends requests and answers the server's requests.

    Args:
        send: Sends one message.
        send_bytes: Sends bytes as they are; None if the transport is not a byte stream.
        process: The server's process, if the runner started it.
    """

    def __init__(
        self,
        send: Send,
        send_bytes: Callable[[bytes], Awaitable[None]] | None = None,
        process: asyncio.subprocess.Process | None = None,
    ) -> None:
        self.person = Person()
        self.send_bytes = send_bytes
        self.process = process
        self.invalid_lines: list[bytes] = []
        """Lines of standard output that are not JSON-RPC."""
        self.unexpected_answers: list[Json] = []
        """Answers to requests that were never sent or had already been answered."""
        self.methods: list[str] = []
        """Methods of the requests and notifications that the server sent."""
        self.greeting: Json = {}
        self.roots: list[Json] | None = None
        self._send = send
        self._pending: dict[str, asyncio.Future[Json]] = {}
        self._count = 0
        self._lost = False

    async def send(self, message: Json) -> None:
        """Send one message.

        Raises:
            NoAnswerError: The server did not read the message in time.
            LostError: The server accepts no messages any more.
        """
        try:
            async with asyncio.timeout(WAIT):
                await self._send({"jsonrpc": "2.0", **message})
        except TimeoutError:
            raise NoAnswerError(f"the server did not take a message within {WAIT:.0f} s") from None
        except Exception as error:
            raise LostError(f"the server took no message ({type(error).__name__})") from error

    async def begin(self, method: str, params: Json | None = None, identity: Any = None) -> asyncio.Future[Json]:
        """Send a request, and return a future of its answer."""
        if identity is None:
            self._count += 1
            identity = self._count
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        if self._lost:
            raise LostError("the server ended")
        self._pending[json.dumps(identity)] = future
        await self.send({"id": identity, "method": method, **({} if params is None else {"params": params})})
        return future

    async def request(
        self, method: str, params: Json | None = None, *, identity: Any = None, wait: float = WAIT
    ) -> Json:
        """Send a request, and return the whole answer with its `result` or `error`.

        Raises:
            NoAnswerError: No answer came in time.
            LostError: The server ended.
        """
        future = await self.begin(method, params, identity)
        return await answer_of(future, method, wait)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification."""
        await self.send({"method": method, **({} if params is None else {"params": params})})

    async def ping(self, wait: float = WAIT) -> None:
        """Make sure that the server still answers."""
        await self.request("ping", wait=wait)

    async def greet(self, *, revision: str = REVISION, roots: list[Json] | None = None) -> Json:
        """Perform the handshake, and return the result of `initialize`."""
        self.roots = roots
        capabilities: Json = {"elicitation": {}}
        if roots is not None:
            capabilities["roots"] = {"listChanged": True}
        client_info = {"name": "hostile-cases", "version": "1"}
        answer = await self.request(
            "initialize",
            {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client_info},
            wait=START,
        )
        if "result" not in answer:
            raise LostError(f"the server refused the handshake: {answer.get('error')}")
        self.greeting = answer["result"]
        await self.notify("notifications/initialized")
        return self.greeting

    async def receive(self, message: Any) -> None:
        """Handle one message from the server."""
        if not isinstance(message, dict):
            self.invalid_lines.append(json.dumps(message).encode())
            return
        body: Json = message  # pyright: ignore[reportUnknownVariableType]
        if "method" in body:
            self.methods.append(str(body["method"]))
            if "id" in body:
                reply = self._reply(body)
                if reply is not None:
                    with suppress(LostError, NoAnswerError):
                        await self.send({"id": body["id"], **reply})
            return
        future = self._pending.pop(json.dumps(body.get("id")), None)
        if future is None:
            self.unexpected_answers.append(body)
        elif not future.done():
            future.set_result(body)

    def _reply(self, request: Json) -> Json | None:
        match request["method"]:
            case "ping":
                return {"result": {}}
            case "roots/list" if self.roots is not None:
                return {"result": {"roots": self.roots}}
            case "elicitation/create":
                self.person.questions.append(request)
                return self.person.answer(request)
            case _:
                return {"error": {"code": -32601, "message": "this client has no such method"}}

    def mark_lost(self) -> None:
        """Record that the server sends no more messages, and fail all pending requests."""
        self._lost = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(LostError("the server ended"))
                future.exception()  # nobody may wait for it


async def answer_of(future: asyncio.Future[Json], request_name: str, wait: float = WAIT) -> Json:
    """Wait for the answer to a request that was sent."""
    try:
        async with asyncio.timeout(wait):
            return await asyncio.shield(future)
    except TimeoutError:
        raise NoAnswerError(f"no answer to {request_name} within {wait:.0f} s") from None


@asynccontextmanager
async def over_pipes(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
) -> AsyncGenerator[Connection]:
    """Start a server, and talk to it over its standard input and output; at the end, end it and its process group."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
            limit=LARGEST_LINE,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    source, sink = process.stdout, process.stdin

    async def send_bytes(data: bytes) -> None:
        sink.write(data)
        await sink.drain()

    async def send(message: Json) -> None:
        await send_bytes(json.dumps(message).encode() + b"\n")

    connection = Connection(send, send_bytes, process)

    async def read() -> None:
        try:
            while line := await source.readline():
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    connection.invalid_lines.append(line[:200])
                else:
                    await connection.receive(message)
        except (ValueError, OSError):
            connection.invalid_lines.append(b"a line of more than 256 MB")
        finally:
            connection.mark_lost()

    reader = asyncio.create_task(read())
    try:
        yield connection
    finally:
        await end(process)
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


async def end(process: asyncio.subprocess.Process, patience: float = 3) -> None:
    """End a server as the protocol says: close its input, then send signals."""
    if process.stdin is not None:
        process.stdin.close()
    for step in (None, signal.SIGTERM, signal.SIGKILL):
        if step is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(step)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await process.wait()
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@asynccontextmanager
async def over_http(url: str) -> AsyncGenerator[Connection]:
    """Talk to a server that is already listening."""
    async with streamable_http_client(url) as (source, sink, *_):

        async def send(message: Json) -> None:
            await sink.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))

        connection = Connection(send)

        async def read() -> None:
            try:
                async for item in source:
                    if isinstance(item, Exception):
                        connection.invalid_lines.append(str(item).encode()[:200])
                    else:
                        await connection.receive(item.message.model_dump(by_alias=True, exclude_none=True))
            finally:
                connection.mark_lost()

        reader = asyncio.create_task(read())
        try:
            yield connection
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
