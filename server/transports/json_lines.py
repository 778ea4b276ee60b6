"""JSON-RPC lines: splits incoming bytes, rejects invalid lines, and queues outgoing lines."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from server.protocol.json_rpc import NOT_A_MESSAGE, PARSE_ERROR, Json, RequestId, error_of, read_unreadable

INBOX_MESSAGES = 256  # number of an upstream's unprocessed messages at which reading pauses
KEPT_OF_OVERSIZED = 4096  # bytes kept at each end of an oversized line, to find its id
USUAL_PIPE_BYTES = 1 << 16  # initial capacity of a pipe
PIPE_BYTES = 1 << 20  # capacity of a busy pipe (Linux allows this for every user)
NO_MEMORY_PAUSE_SECONDS = 0.05  # pause after a read for which there was no memory; nothing is lost
LARGE_PIECE = 4096  # smaller pieces of an incoming line are joined at once, to limit the number of pieces
OUTGOING_BYTES = 4 * 1024 * 1024  # number of queued bytes above which senders must wait for a slow reader
UNREAD_BYTES = 1 << 18  # a longer queue means that the client is a slow reader
LARGE_LINE = 1 << 16  # copying a shorter line to append its line ending is cheaper than queueing two pieces
MAX_PIECES = 64  # maximum number of pieces in one write

_ID = rb'(-?\d{1,18}(?![\d.eE])|"(?:[^"\\]|\\.){0,200}")'
_ID_AT_HEAD = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*' + _ID)
_ID_AT_TAIL = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb"\s*\}\s*$")
"""If the middle of a message is unknown, only an id in one of these two places is certainly the id of the message."""


def enlarge(descriptor: int) -> None:
    """Increase a pipe's capacity if possible, so that large messages need fewer loop iterations."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - loaded only on Linux

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class LineSplitter:
    """Splits a byte stream into lines. Only the two ends of a line longer than `max_bytes` are kept."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._pieces: list[bytes | bytearray] = []  # pieces of the incomplete line, joined once it is complete
        self._size = 0
        self._head: bytes | None = None
        self.oversized: list[bytes] = []  # the two ends of each oversized line; the caller removes them

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Add bytes, and return the complete, non-blank lines."""
        if not self._pieces and data.find(b"\n") == len(data) - 1 < self.max_bytes:
            line = data[:-1]  # one whole line, the common case
            return (line,) if line and not line.isspace() else ()
        *complete, rest = data.split(b"\n")
        lines = [self._complete(piece) for piece in complete]
        if rest:
            self._add(rest)
        return [line for line in lines if line and not line.isspace()]

    def _complete(self, rest: bytes) -> bytes | None:
        if not self._pieces and len(rest) <= self.max_bytes:
            return rest
        self._add(rest)
        line = b"".join(self._pieces)
        head, self._head = self._head, None
        self._pieces, self._size = [], 0
        if head is None:
            return line
        self.oversized.append(head + b"\n" + line[-KEPT_OF_OVERSIZED:])
        return None

    def _add(self, piece: bytes) -> None:
        """Keep a piece of the incomplete line."""
        self._size += len(piece)
        if len(piece) >= LARGE_PIECE:
            self._pieces.append(piece)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))
        if self._head is None and self._size <= self.max_bytes:
            return
        whole = b"".join(self._pieces)
        if self._head is None:
            self._head = whole[:KEPT_OF_OVERSIZED]
        self._pieces = [bytearray(whole[-KEPT_OF_OVERSIZED:])]


class Backpressure:
    """Tracks whether sending must pause for a slow reader, and which senders are waiting."""

    def __init__(self) -> None:
        self.is_full = False  # whether senders have to wait
        self._waiting: dict[Callable[[], None], None] = {}

    def free(self) -> None:
        self.is_full = False
        waiting, self._waiting = self._waiting, {}
        for callback in waiting:
            callback()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Register a callback for when sending is allowed again."""
        self._waiting[callback] = None

    async def wait(self) -> None:
        while self.is_full:
            free = asyncio.Event()
            self.when_free(free.set)
            await free.wait()


STDIO_BACKPRESSURE = Backpressure()  # for this process's stdio client; never full in a network server


class Outgoing(Protocol):
    """Receives messages for a client: `OutgoingLines` (stdio), `EventStream` (HTTP) or `_BatchAnswers` (a batch)."""

    size: int  # unread bytes
    backpressure: Backpressure

    def put(self, line: bytes) -> None: ...

    def put_answer(self, line: bytes) -> None:
        """Add the response to a request. No more messages follow for that request."""

    def leave_unanswered(self, identity: RequestId) -> None:
        """Record that a request gets no response because its client cancelled it."""


class OutgoingLines:
    """A queue of outgoing lines that does not copy large lines."""

    def __init__(self, on_queued: Callable[[], None], backpressure: Backpressure) -> None:
        self.size = 0  # number of unwritten bytes
        self.backpressure = backpressure  # full when too much is queued, and free when everything is written
        # Called when there is something to write: `_Wire._schedule_write`, or for an upstream `StdinWriter._write`.
        self._on_queued = on_queued
        self._pieces: deque[bytes | memoryview] = deque()
        self._is_closed = False
        self.empty = asyncio.Event()  # set while everything is written, or there is no longer a reader
        self.empty.set()

    def put(self, line: bytes) -> None:
        """Queue a line, given without its line ending. It is dropped if it is empty or there is no longer a reader."""
        if self._is_closed or not line:
            return
        if len(line) < LARGE_LINE:
            self._pieces.append(line + b"\n")
        else:
            self._pieces.append(line)
            self._pieces.append(b"\n")
        self.size += len(line) + 1
        self.empty.clear()
        if self.size > OUTGOING_BYTES:
            self.backpressure.is_full = True
        self._on_queued()

    put_answer = put

    def leave_unanswered(self, identity: RequestId) -> None:
        """Do nothing: over stdio, a client expects no response to a request that it has cancelled."""

    def next_pieces(self) -> Sequence[bytes | memoryview]:
        return self._pieces if len(self._pieces) <= MAX_PIECES else tuple(islice(self._pieces, MAX_PIECES))

    def written(self, count: int) -> None:
        self.size -= count
        if not self.size:
            self._pieces.clear()
            self.empty.set()
            if self.backpressure.is_full:
                self.backpressure.free()
            return
        while count:
            first = self._pieces[0]
            if len(first) > count:
                self._pieces[0] = memoryview(first)[count:]
                break
            count -= len(first)
            self._pieces.popleft()

    def close(self) -> None:
        """Drop the queue and release the waiting senders, because there is no longer a reader."""
        self._is_closed = True
        self._pieces.clear()
        self.size = 0
        self.empty.set()
        self.backpressure.free()


def certain_id(head: bytes, tail: bytes) -> RequestId | None:
    """Return the id of a message, given only the start and the end of the message; `None` if the id is not certain."""
    match = _ID_AT_HEAD.search(head) or _ID_AT_TAIL.search(tail)
    try:
        return None if match is None else json.loads(match.group(1))
    except ValueError:  # a string with invalid bytes or characters
        return None


def refusal_of_oversized(ends: bytes, max_bytes: int) -> Json:
    head, _, tail = ends.partition(b"\n")
    message = (
        f"The request is larger than {max_bytes} bytes (limits.requestBytes) and was not read. Send less at once, or "
        "ask the operator to raise the limit."
    )
    return error_of(certain_id(head, tail), message)


def refusal_of_unreadable(line: bytes, *, is_post: bool = False) -> Json | None:
    """Return the error for a line that is not a JSON-RPC message; `None` if nobody can be waiting for a response.

    The body of an HTTP POST is always answered.
    """
    try:
        unreadable = read_unreadable(line)
    except ValueError:
        if not (b'"id"' in line and b'"method"' in line) and not is_post:
            return None
        message = "This is not valid JSON in UTF-8, is nested too deeply, or has a number with too many digits."
        # The line may be a response, whose id is that of a request from this server.
        may_be_response = b'"result"' in line or b'"error"' in line
        identity = None if may_be_response else certain_id(line[:KEPT_OF_OVERSIZED], b"")
        return error_of(identity, message, PARSE_ERROR)
    if unreadable is None or unreadable.is_answer:
        return error_of(None, NOT_A_MESSAGE) if is_post else None
    return error_of(None if isinstance(unreadable.identity, float) else unreadable.identity, NOT_A_MESSAGE)
