"""Runs a server as a child process over stdio: sends it requests and answers its questions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TextIO, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from server import VERSION
from server.protocol.json_rpc import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorResponse,
    Json,
    MCPError,
    Notification,
    Request,
    Response,
    as_mapping,
    read_message,
)
from server.protocol.revisions import LATEST_HANDSHAKE_VERSION
from server.transports.json_lines import LineSplitter

END_SECONDS = 2.0  # how long the server may take to exit on its own, and again after SIGTERM (as in the official SDKs)
MESSAGE_BYTES = 256 << 20  # this server never sends a longer message

Ask = Callable[[Json], Awaitable[Json]]
"""Answers a server's question: fills in a form or opens an address. Raises `MCPError` if nobody can."""


class OwnServer:
    """A server to which only one task sends requests."""

    def __init__(self, stdin: ByteSendStream, stdout: ByteReceiveStream, ask: Ask | None) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._ask = ask
        self._splitter = LineSplitter(MESSAGE_BYTES)
        self._lines: list[bytes] = []
        self._count = 0

    async def request(
        self, method: str, params: Json | None = None, on_progress: Callable[[str], None] | None = None
    ) -> Json:
        """Send a request and return its result; `on_progress` is called with each progress message.

        Raises:
            MCPError: The server responded with an error, or has exited.
        """
        self._count += 1
        if on_progress is not None:
            params = {**(params or {}), "_meta": {"progressToken": self._count}}
        await self._send({"id": self._count, "method": method, "params": params or {}})
        while True:
            message = read_message(await self._line())
            if isinstance(message, Response) and message.id == self._count:
                return message.result
            if isinstance(message, ErrorResponse) and message.id == self._count:
                error = message.error
                raise MCPError(error["code"], error["message"], error.get("data"))
            if isinstance(message, Request):
                await self._answer(message)
            elif isinstance(message, Notification) and message.method == "notifications/progress":
                text = as_mapping(message.params).get("message")
                if on_progress is not None and text:
                    on_progress(str(text))

    async def notify(self, method: str) -> None:
        await self._send({"method": method})

    async def _answer(self, asked: Request) -> None:
        answer: Json = {"id": asked.id}
        try:
            if asked.method == "ping":
                answer["result"] = {}
            elif asked.method == "elicitation/create" and self._ask is not None:
                answer["result"] = await self._ask(asked.params or {})
            else:
                answer["error"] = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
        except MCPError as error:
            answer["error"] = error.to_json()
        await self._send(answer)

    async def _send(self, message: Json) -> None:
        try:
            await self._stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _ended() from None

    async def _line(self) -> bytes:
        while not self._lines:
            try:
                self._lines.extend(self._splitter.feed(await self._stdout.receive()))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise _ended() from None
            if self._splitter.oversized:
                raise MCPError(INTERNAL_ERROR, "The server sent a message that is too long.")
        return self._lines.pop(0)


def _ended() -> MCPError:
    return MCPError(CONNECTION_CLOSED, "The server has ended.")


@asynccontextmanager
async def started(
    command: Sequence[str],
    folder: str | os.PathLike[str],
    environment: Mapping[str, str],
    log: TextIO,
    ask: Ask | None = None,
) -> AsyncGenerator[OwnServer]:
    """Start a server and initialize it. The server ends when this context exits.

    `log` receives the server's standard error. `ask` answers its questions; `None` means that nobody can be asked.

    Raises:
        MCPError: The server has exited.
    """
    process = await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=environment
    )
    try:
        server = OwnServer(cast("ByteSendStream", process.stdin), cast("ByteReceiveStream", process.stdout), ask)
        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}} if ask is not None else {}
        about = {"name": "coretools-mcp", "version": VERSION}
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": capabilities, "clientInfo": about}
        await server.request("initialize", params)
        await server.notify("notifications/initialized")
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            # Close the input, as a client would, so that the server exits on its own. If it does not, terminate it.
            if process.stdin is not None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await process.stdin.aclose()
            for end in (process.terminate, process.kill):
                with anyio.move_on_after(END_SECONDS):
                    await process.wait()
                    break
                with suppress(ProcessLookupError):
                    end()
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
