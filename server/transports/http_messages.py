"""Messages over HTTP: reads those that clients post, and sends others as plain JSON or as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import ClassVar, Self

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from server.protocol.json_rpc import BatchError, Json, Message, RequestId, error_of, read_of_client
from server.transports.json_lines import OUTGOING_BYTES, Backpressure, refusal_of_unreadable
from tools.machine.threads import THREADS

OPEN_REQUEST = "coretools-mcp.open-request"  # ASGI scope key of the cancel scope that a request runs in
LARGE_BYTES = 256 << 10  # a longer body is parsed in a thread
ROOT_PATH = "coretools-mcp.root-path"  # ASGI scope key of the path under which a proxy publishes this server
SERVER_ENDS = "The server is shutting down, so this request was cancelled."
UNWATCHED_SECONDS = 0.02  # how long a request runs before this server starts to watch for a disconnection
KEPT_BYTES = 256 << 10  # maximum size of the sent events that are kept in case the client resumes the stream
REQUEST_CANCELLED = -32800  # the official SDKs' error code for a request that a handshake-era client cancelled
EVENT_STREAM = b"text/event-stream"
_HEADERS = [
    (b"content-type", EVENT_STREAM),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_PING = b": ping\r\n\r\n"


@dataclass(eq=False)
class RequestRefusedError(Exception):
    """An HTTP request is refused; `HttpGate` sends the response."""

    status: int
    error: str | Json  # the message, or a whole JSON-RPC error
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


async def read_posted(
    scope: Scope, receive: Receive, max_bytes: int, *, takes_batches: bool = False
) -> tuple[Message | list[Message], bytes]:
    """Return the posted message or batch, and its bytes.

    Raises:
        RequestRefusedError: The message is refused.
        ClientDisconnect: The client is gone.
    """
    headers = dict(scope["headers"])
    content_length, kind = headers.get(b"content-length", b"0"), headers.get(b"content-type", b"")
    size = int(content_length) if content_length.isdigit() else 0
    if size <= max_bytes and kind.partition(b";")[0].strip().lower() != b"application/json":
        raise RequestRefusedError(HTTPStatus.BAD_REQUEST, "The Content-Type header must be application/json.")
    pieces: list[bytes] = []
    received_bytes = 0
    while size <= max_bytes:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        received_bytes += len(pieces[-1])
        size = max(size, received_bytes)
        if size > max_bytes or message.get("more_body", False):
            continue
        body = b"".join(pieces)
        parse = partial(_parse, body, takes_batches)
        parsed = await THREADS.run(parse) if len(body) > LARGE_BYTES else parse()
        if isinstance(parsed, dict):
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, parsed)
        return parsed, body
    text = f"The body is longer than {max_bytes} bytes (limits.requestBytes) and was not read. Send less at once."
    raise RequestRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def _parse(body: bytes, takes_batches: bool) -> Message | list[Message] | Json:
    """Parse a body, or return the error that refuses it: an error raised in a thread would keep the body in a cycle."""
    try:
        return read_of_client(body, takes_batches=takes_batches)
    except BatchError as error:
        return error_of(None, str(error))
    except ValueError:
        return refusal_of_unreadable(body, is_post=True) or error_of(None, "")


async def say_accepted(send: Send, body: bytes = b"") -> None:
    """Acknowledge a message with 202; its response, if any, is sent on another stream."""
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": HTTPStatus.ACCEPTED, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(status: int, error: str | Json, send: Send, headers: Mapping[str, str] | None = None) -> None:
    """Refuse an HTTP request with a JSON-RPC error. A string becomes the message of such an error."""
    # Unlike `encoded`, `json.dumps` preserves lone surrogates, which an id may contain.
    body = json.dumps(error_of(None, error) if isinstance(error, str) else error).encode()
    header_pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]
    await send_json(body, status, send, header_pairs)


async def send_json(body: bytes, status: int, send: Send, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


class EventStream:
    """Ordered messages to a client, kept until they are read. If the client can resume, the latest are kept longer."""

    ping_seconds: ClassVar[float] = 4.0
    """Seconds of silence before a keep-alive message: many clients use httpx's read timeout of five seconds."""

    def __init__(self, name: str = "", *, is_read: bool = True) -> None:
        self.name = name  # prefix of the event ids with which a client can resume; empty if it cannot
        # Whether somebody reads the stream, or is about to. Otherwise, only the latest messages are kept.
        self.is_read = is_read
        self.size = 0  # bytes of unread messages
        self.backpressure = Backpressure()
        self.is_ended = False  # whether the stream is complete
        self.last = 0  # number of the latest message
        self.read = 0  # number of the latest message that was read
        self._kept: deque[bytes] = deque()  # the latest messages
        self.kept_bytes = 0
        self.on_read: Callable[[], None] = lambda: None  # called when messages have been read
        self.turn = 0  # identifies the current reader, which a later one replaces
        self._waiter: asyncio.Future[bool] | None = None

    @property
    def unread(self) -> int:
        return self.last - self.read

    def put(self, line: bytes) -> None:
        if not self.is_ended and line:
            self._append(line)

    def _append(self, line: bytes) -> None:
        self._kept.append(line)
        self.kept_bytes += len(line)
        self.size += len(line)
        self.last += 1
        if self.is_read:
            self.backpressure.is_full = self.size > OUTGOING_BYTES
        self._drop()
        self.wake()

    put_answer = put

    def leave_unanswered(self, identity: RequestId) -> None:
        """Do nothing: a client expects no response to a request that it has cancelled."""

    def end(self) -> None:
        self.is_ended = True
        self.backpressure.free()
        self.wake()

    def take(self) -> list[bytes]:
        """Return the unread messages, and mark them as read."""
        count = min(self.unread, len(self._kept))
        lines = list(self._kept)[len(self._kept) - count :]
        self.read, self.size = self.last, 0
        self.backpressure.free()
        self._drop()
        if lines:
            self.on_read()
        return lines

    def rewind(self, number: int) -> None:
        """Resume after the message with this number, or at the oldest kept message if the next one was dropped."""
        self.read = max(min(number, self.last), self.last - len(self._kept))
        self.size = sum(map(len, list(self._kept)[len(self._kept) - self.unread :]))

    def _drop(self) -> None:
        # Without a reader, unread messages are dropped too. When the stream has ended, its last message is kept if it
        # is unread, or if the client can resume the stream.
        keep_count = max(
            self.unread if self.is_read else 0, int(self.is_ended and (bool(self.name) or self.unread > 0))
        )
        while len(self._kept) > keep_count and (self.kept_bytes > KEPT_BYTES or not self.name):
            dropped_bytes = len(self._kept.popleft())
            self.kept_bytes -= dropped_bytes
            if self.last - len(self._kept) > self.read:
                self.size -= dropped_bytes
                self.read = self.last - len(self._kept)

    def take_turn(self) -> int:
        """Make the caller the reader instead of the previous one, and return the number that identifies it."""
        self.turn += 1
        self.is_read = True
        self.wake()
        return self.turn

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def wait(self, seconds: float) -> bool:
        """Wait for messages or the end of the stream. Return false on timeout."""
        if self.last > self.read or self.is_ended:
            return True
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(seconds, lambda: waiter.done() or waiter.set_result(False))
        try:
            return await waiter
        finally:
            timer.cancel()
            if self._waiter is waiter:  # otherwise another reader is now waiting
                self._waiter = None

    def as_event(self, line: bytes, number: int) -> bytes:
        identity = b"id: %b/%d\r\n" % (self.name.encode(), number) if self.name else b""
        return b"event: message\r\n%bdata: %b\r\n\r\n" % (identity, line)


class RequestStream(EventStream):
    """The stream of one request. It ends with the response, and then calls `on_end`."""

    silent_seconds: ClassVar[float] = 1.0
    """Seconds to wait for a message before the HTTP response starts without one, so that the client sees that its
    request was accepted.
    """

    def __init__(self, name: str = "", *, on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(name)
        self._on_end = on_end

    def put_answer(self, line: bytes) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._append(line)
            self.end()
            self._on_end()

    def only_message(self) -> bytes | None:
        """Return the response, if the stream is complete and contains nothing else."""
        return self.take()[0] if self.is_ended and self.last == 1 else None

    def leave_unanswered(self, identity: RequestId) -> None:
        self.put_answer(json.dumps(error_of(identity, "Request cancelled", REQUEST_CANCELLED)).encode())


class AnswerStream(RequestStream):
    """The stream of a request whose client accepts only JSON. Other messages go to `elsewhere`, or are dropped."""

    silent_seconds: ClassVar[float] = 7 * 86_400.0  # how long a request may run if its client accepts no stream

    def __init__(self, elsewhere: EventStream | None = None) -> None:
        super().__init__()
        self._elsewhere = elsewhere

    def put(self, line: bytes) -> None:
        if self._elsewhere is not None:
            self._elsewhere.put(line)


class ClientWatch:
    """Detects that the client of a request has left, and wakes the reader of its stream.

    Watching starts after a moment, because most requests are answered before then.
    """

    def __init__(self, receive: Receive, stream: EventStream) -> None:
        self.has_left = False
        self._receive = receive
        self._stream = stream
        self._start_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._start_timer = asyncio.get_running_loop().call_later(UNWATCHED_SECONDS, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._start_timer, self._task):
            if handle is not None:
                handle.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        self._stream.wake()


async def send_events(
    stream: EventStream, watch: ClientWatch, send: Send, headers: Iterable[tuple[bytes, bytes]] = (), first: bytes = b""
) -> None:
    """Send a stream until it ends, its client leaves, or its client resumes it with another request.

    `headers` are sent in addition to the usual ones, and the event `first` before the messages.
    """
    turn = stream.take_turn()
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
        if first:
            await send({"type": "http.response.body", "body": first, "more_body": True})
        while not watch.has_left and stream.turn == turn:
            number = stream.read
            events = [stream.as_event(line, number + step) for step, line in enumerate(stream.take(), start=1)]
            if events:
                await send({"type": "http.response.body", "body": b"".join(events), "more_body": True})
            elif stream.is_ended:
                await send({"type": "http.response.body"})
                return
            elif not await stream.wait(stream.ping_seconds):
                await send({"type": "http.response.body", "body": _PING, "more_body": True})
        if stream.turn != turn:
            await send({"type": "http.response.body"})
    finally:
        if stream.turn == turn:
            stream.is_read = False
            stream.backpressure.free()
