"""Server-sent events (the HTML standard): one stream of messages to a client, and how it goes out over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, Self

from starlette.types import Message, Receive, Send

from server.protocol.json_rpc import RequestId, error_of
from server.transports.json_lines import OUTGOING_BYTES, Backpressure

UNWATCHED_SECONDS = 0.02  # a request is at work before it is looked whether its client is still there
KEPT_BYTES = 256 << 10  # of events that were sent, for a client that lost its connection and goes on
REQUEST_CANCELLED = -32800  # what the official SDKs answer to a request of the handshake era that its client cancelled
EVENT_STREAM = b"text/event-stream"
_HEADERS = [
    (b"content-type", EVENT_STREAM),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_PING = b": ping\r\n\r\n"


class EventStream:
    """Messages to a client in their order, until they are read, and the latest of them for a while after that.

    Args:
        name: In the ids of events, by which a client goes on; empty where it cannot.
        is_read: Whether somebody reads, or will in a moment. Where nobody does, only the latest messages are kept.
    """

    ping_seconds: ClassVar[float] = 4.0
    """After which a silent stream says something: many clients read with the time-out of httpx, which is five."""

    def __init__(self, name: str = "", *, is_read: bool = True) -> None:
        self.name = name
        self.is_read = is_read
        self.size = 0  # bytes of messages that nobody has read
        self.backpressure = Backpressure()
        self.is_ended = False  # whether no more messages come
        self.last = 0  # how many messages there were
        self.read = 0  # how many of them were read
        self._kept: deque[bytes] = deque()  # the latest messages
        self.kept_bytes = 0
        self.on_read: Callable[[], None] = lambda: None  # called when messages were read
        self.turn = 0  # counts who has read: a later reader takes its place
        self._waiter: asyncio.Future[bool] | None = None

    @property
    def unread(self) -> int:
        """How many messages were not read yet."""
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

    def put_answer(self, line: bytes) -> None:
        self.put(line)

    def leave_unanswered(self, identity: RequestId) -> None:
        """Nothing tells of it on this stream."""

    def end(self) -> None:
        """No more messages come."""
        self.is_ended = True
        self.backpressure.free()
        self.wake()

    def take(self) -> list[bytes]:
        """The messages that were not read yet, which count as read from now on."""
        count = min(self.unread, len(self._kept))
        lines = list(self._kept)[len(self._kept) - count :]
        self.read, self.size = self.last, 0
        self.backpressure.free()
        self._drop()
        if lines:
            self.on_read()
        return lines

    def rewind(self, number: int) -> None:
        """Go on after the message of this number, as far as it is kept."""
        self.read = max(min(number, self.last), self.last - len(self._kept))
        self.size = sum(map(len, list(self._kept)[len(self._kept) - self.unread :]))

    def _drop(self) -> None:
        # What nobody has read is dropped too where nobody reads. An answer is kept where a client can come for it.
        least = max(self.unread if self.is_read else 0, int(self.is_ended and (bool(self.name) or self.unread > 0)))
        while len(self._kept) > least and (self.kept_bytes > KEPT_BYTES or not self.name):
            dropped = len(self._kept.popleft())
            self.kept_bytes -= dropped
            if self.last - len(self._kept) > self.read:
                self.size -= dropped
                self.read = self.last - len(self._kept)

    def take_turn(self) -> int:
        """Read from now on, in place of who has read."""
        self.turn += 1
        self.is_read = True
        self.wake()
        return self.turn

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def wait(self, seconds: float) -> bool:
        """Wait until there are messages, or no more come; whether that came in time."""
        if self.last > self.read or self.is_ended:
            return True
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        late = loop.call_later(seconds, lambda: waiter.done() or waiter.set_result(False))
        try:
            return await waiter
        finally:
            late.cancel()
            if self._waiter is waiter:  # else somebody else waits by now
                self._waiter = None

    def as_event(self, line: bytes, number: int) -> bytes:
        identity = b"id: %b/%d\r\n" % (self.name.encode(), number) if self.name else b""
        return b"event: message\r\n%bdata: %b\r\n\r\n" % (identity, line)


class RequestStream(EventStream):
    """The stream of one request, which ends with its answer; `on_end` is called then."""

    silent_seconds: ClassVar[float] = 1.0
    """After which a request that is at work is answered by a stream: its client sees that it is taken."""

    def __init__(self, name: str = "", *, is_read: bool = True, on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(name, is_read=is_read)
        self._on_end = on_end

    def put_answer(self, line: bytes) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._append(line)
            self.end()
            self._on_end()

    def leave_unanswered(self, identity: RequestId) -> None:
        self.put_answer(json.dumps(error_of(identity, "Request cancelled", REQUEST_CANCELLED)).encode())


class AnswerStream(RequestStream):
    """The stream of a request whose client takes the answer alone: what else is said for it goes elsewhere."""

    silent_seconds: ClassVar[float] = 7 * 86_400.0  # how long a request may be at work whose client takes no stream

    def __init__(self, elsewhere: EventStream | None = None) -> None:
        super().__init__()
        self._elsewhere = elsewhere

    def put(self, line: bytes) -> None:
        if self._elsewhere is not None:
            self._elsewhere.put(line)


class ClientWatch:
    """Looks whether the client of a request has left, and wakes who waits for its stream then.

    It begins after a moment: most requests are answered before that.
    """

    def __init__(self, receive: Receive, stream: EventStream) -> None:
        self.has_left = False
        self._receive = receive
        self._stream = stream
        self._beginning: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._beginning = asyncio.get_running_loop().call_later(UNWATCHED_SECONDS, self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._beginning, self._watching):
            if each is not None:
                each.cancel()

    def _begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        self._stream.wake()


async def send_events(
    stream: EventStream,
    watch: ClientWatch,
    send: Send,
    headers: Iterable[tuple[bytes, bytes]] = (),
    first: bytes = b"",
) -> None:
    """Send a stream until its end, or until its client has left or goes on elsewhere.

    Args:
        stream: What is sent.
        watch: Tells whether the client has left.
        send: Takes the response.
        headers: Of the response, besides those of every stream.
        first: An event that comes before the messages.
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


async def send_json(body: bytes, status: int, send: Send, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    length = b"%d" % len(body)
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-type", b"application/json"), (b"content-length", length), *headers],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
