"""JSON-RPC with a language server over pipes, in messages with a Content-Length header.

The size and rate of the server's messages are limited, and so is the amount of data that the server has not read yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from pydantic_core import from_json, to_json

from tools.machine.threads import THREADS

logger = logging.getLogger(__name__)
HEAD_BYTES = 1 << 12  # maximum size of a message's header
MESSAGE_BYTES, MESSAGE_PARTS = 8 << 20, 300_000  # parts are limited, because even small JSON values cost memory
LARGE_BYTES = 1 << 18  # larger messages are parsed in a thread
MESSAGES_A_SECOND, BYTES_A_SECOND = 5_000, 64 << 20  # at a higher rate, the connection is ended
WAITING_BYTES = 32 << 20  # maximum amount of data that the server has not read yet
METHOD_NOT_FOUND = -32601
Json = Mapping[str, Any]


def as_object(value: Any) -> Json:
    """Return the value if it is a JSON object, else an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


class AnswerError(Exception):
    """The server answered a request with an error. The text of that error is the message of this exception."""


class EndedError(Exception):
    """The connection has ended. The connection's `problem` says why."""


class LanguageServerConnection:
    """The connection to a server. Once it has ended, `problem` says why.

    Args:
        answer: Answers a request from the server. Raises a `LookupError` for an unknown method.
        hear: Receives a notification.
        lose: Called once when the connection has ended.
    """

    def __init__(
        self, answer: Callable[[str, Any], Any], hear: Callable[[str, Any], None], lose: Callable[[], None]
    ) -> None:
        # Why the connection has ended, to complete a sentence that begins with the server's name. Empty before the end.
        self.problem = ""
        self.ended = asyncio.Event()
        self.heard = 0  # number of messages received
        self._answer, self._hear, self._lose = answer, hear, lose
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._last = 0
        self._writer: asyncio.WriteTransport | None = None
        self._reader: asyncio.ReadTransport | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, output: int, given: int) -> None:
        """Start reading from the descriptor `output` and writing to `given`. Both are closed with the connection."""
        loop, stream = asyncio.get_running_loop(), asyncio.StreamReader(HEAD_BYTES)
        writing = os.fdopen(given, "wb", buffering=0)
        self._writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writing)
        reading = os.fdopen(output, "rb", buffering=0)
        self._reader, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), reading)
        self._reading = asyncio.create_task(self._read(stream), name="language server")

    def notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Json | None, seconds: float) -> Any:
        """Send a request and return the result.

        Raises:
            AnswerError: The server answered with an error.
            TimeoutError: The server did not answer in time.
            EndedError: The connection ended before the answer.
        """
        self._last += 1
        identity, answer = self._last, asyncio.get_running_loop().create_future()
        self._waiting[identity] = answer
        try:
            self._send({"id": identity, "method": method, "params": params})
            async with asyncio.timeout(seconds):
                message = await answer
        finally:
            del self._waiting[identity]
            if not answer.done() or answer.cancelled():
                self.notify("$/cancelRequest", {"id": identity})
        if "error" in message:
            raise AnswerError(str(as_object(message["error"]).get("message", "")) or "no message")
        return message.get("result")

    def end(self, problem: str) -> None:
        """Stop reading and writing, and make the waiting requests fail. `problem` says why the connection ends."""
        if self.problem:
            return
        self.problem = problem
        self.ended.set()
        if self._reader is not None and not self._reader.is_closing():
            self._reader.close()
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(EndedError)
        if self._reading is not None:
            self._reading.cancel()
        self._lose()

    def _send(self, message: Json) -> None:
        if self._writer is None or self.problem:
            return
        body = to_json({"jsonrpc": "2.0", **message}, inf_nan_mode="null")
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        if self._writer.get_write_buffer_size() > WAITING_BYTES:
            self.end("does not read its input")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        began, messages, size = loop.time(), 0, 0
        try:
            while True:
                length = _length(await stream.readuntil(b"\r\n\r\n"))
                if loop.time() > began + 1:
                    began, messages, size = loop.time(), 0, 0
                messages, size = messages + 1, size + length
                if messages > MESSAGES_A_SECOND or size > BYTES_A_SECOND:
                    return self.end("sent too much data")
                started = loop.time()
                body = await stream.readexactly(length)
                self._take(await THREADS.run(partial(_parsed, body)) if length > LARGE_BYTES else _parsed(body))
                await asyncio.sleep(min(loop.time() - started, 0.05) if length > HEAD_BYTES else 0)
        except (asyncio.IncompleteReadError, OSError):
            self.end("has ended")
        except Exception:
            logger.info("a message from a language server cannot be parsed", exc_info=True)
            self.end("sent an invalid message")

    def _take(self, given: Any) -> None:
        message, self.heard = as_object(given), self.heard + 1
        method, identity = message.get("method"), message.get("id")
        if isinstance(method, str) and isinstance(identity, int | str):
            try:
                self._send({"id": identity, "result": self._answer(method, message.get("params"))})
            except LookupError:
                self._send({"id": identity, "error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}})
        elif isinstance(method, str):
            self._hear(method, message.get("params"))
        elif isinstance(identity, int) and (answer := self._waiting.get(identity)) is not None and not answer.done():
            answer.set_result(message)


def _parsed(body: bytes) -> Any:
    if sum(map(body.count, (b"[", b"{", b","))) > MESSAGE_PARTS:
        raise ValueError("too many parts")
    try:
        return from_json(body)
    except ValueError:  # for example, a lone surrogate from a server that cut a string short
        return json.loads(json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace"))


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
            if length <= MESSAGE_BYTES:
                return length
    raise ValueError("missing or excessive length")
