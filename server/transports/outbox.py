"""What goes out to the client of a wire; and the account of which answers are still owed."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.dispatcher import coerce_request_id

from server.json_rpc import AnyId, Failure, Message, Notification, Request, RequestId, Response, encoded, error_of

OUTBOX_BYTES = 4 * 1024 * 1024
"""Bytes waiting for a slow reader before senders have to wait."""

UNREAD_BYTES = 1 << 18
"""More than this waits only for a client that reads more slowly than we write."""

LARGE_LINE = 1 << 16
"""Of a smaller line a copy costs less than another piece."""

MOST_PIECES = 64
"""Written at once."""

_INPUT_ENDED = (
    "The input ended while this was at work, so it was cancelled; a command was ended with all that it had started. "
    "Keep the input open until the answer has come."
)


def _tool_of(request: Request) -> str:
    """The name of the tool that a request calls, or nothing."""
    name = (request.params or {}).get("name") if request.method == "tools/call" else None
    return name if isinstance(name, str) else ""


class Outbox:
    """Messages that go out; and the account of what is owed to whom."""

    def __init__(self, on_data: Callable[[], None]) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self._size = 0
        self._on_data = on_data
        self._is_closed = False
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._answered = asyncio.Event()
        self._owed: dict[RequestId, tuple[RequestId, str]] = {}
        """The id of each open request by what ids are compared by, and the tool that it calls; empty for none."""
        self._given_up: set[RequestId] = set()
        self._asked: set[RequestId] = set()

    @property
    def owes_answers(self) -> bool:
        return bool(self._owed)

    def give_up(self, is_too_long: Callable[[str], bool]) -> list[Notification]:
        """Answer open requests with an error, since their answers are waited for no longer.

        Args:
            is_too_long: Whether the calls of this tool have had their time.

        Returns:
            What ends the work on them.
        """
        late: list[RequestId] = []
        for key, (identity, tool) in tuple(self._owed.items()):
            if not is_too_long(tool):
                continue
            late.append(identity)
            del self._owed[key]
            self._given_up.add(key)
            self.put(json.dumps(error_of(identity, _INPUT_ENDED, types.CONNECTION_CLOSED)).encode())
        return [Notification("notifications/cancelled", {"requestId": identity}) for identity in late]

    async def wait_answered(self, seconds: float) -> None:
        """Wait until an answer goes out, at most this long."""
        self._answered.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._answered.wait()
        except TimeoutError:
            return

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def owes(self, identity: RequestId) -> bool:
        """Whether a request with this id is open; a number and its text are the same one."""
        return coerce_request_id(identity) in self._owed

    def note_received(self, message: Message) -> None:
        match message:
            case Request():
                self._owed[coerce_request_id(message.id)] = message.id, _tool_of(message)
            case Notification() if message.method == "notifications/cancelled":
                cancelled = (message.params or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    self._owed.pop(coerce_request_id(cancelled), None)
            case Response() | Failure():
                if message.id is not None:
                    self._asked.discard(message.id)
            case _:
                pass

    def fail_open_questions(self) -> list[Failure]:
        """Errors in place of the answers that the client can no longer give."""
        error = {"code": types.CONNECTION_CLOSED, "message": "The client closed its end."}
        return [Failure(identity, error) for identity in self._asked]

    def fail_question(self, identity: AnyId | None) -> Failure | None:
        """The error in place of an answer that is none; `None` if no such question is open."""
        if identity is None or isinstance(identity, float) or identity not in self._asked:
            return None
        self._asked.discard(identity)
        message = "The client's answer is no JSON-RPC response."
        return Failure(identity, {"code": types.INVALID_REQUEST, "message": message})

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly for more to be begun."""
        return self._size > OUTBOX_BYTES

    @property
    def is_unread(self) -> bool:
        """Whether more waits than an end that reads takes in its turn."""
        return self._size > UNREAD_BYTES

    @property
    def size(self) -> int:
        """How many bytes wait to be written."""
        return self._size

    def next_pieces(self) -> Sequence[bytes | memoryview]:
        """What is to be written next, in the pieces in which it came: what is large is not copied."""
        return self._pieces if len(self._pieces) <= MOST_PIECES else tuple(islice(self._pieces, MOST_PIECES))

    def post(self, message: dict[str, Any]) -> None:
        """Send a message. An answer that is waited for no longer is dropped."""
        if self._is_closed:
            return
        identity = message.get("id")
        if identity is not None and "method" in message:
            self._asked.add(identity)
        elif identity is not None:
            key = coerce_request_id(identity)
            self._owed.pop(key, None)
            if key in self._given_up:
                return
            self._answered.set()
        if line := encoded(message):
            self.put(line)

    async def wait_for_room(self) -> None:
        """Wait while the client reads too slowly.

        Raises:
            anyio.BrokenResourceError: Nobody reads any more.
        """
        if self.is_full:
            self._room.clear()
            await self._room.wait()
            if self._is_closed:
                raise anyio.BrokenResourceError

    def put(self, line: bytes) -> None:
        """Let a line wait to be written.

        Args:
            line: Without its end.
        """
        if len(line) < LARGE_LINE:
            self._pieces.append(line + b"\n")
        else:
            self._pieces.append(line)
            self._pieces.append(b"\n")
        self._size += len(line) + 1
        self._empty.clear()
        self._on_data()

    def written(self, count: int) -> None:
        """So many bytes have been written."""
        self._size -= count
        if not self._size:
            self._pieces.clear()
            self._room.set()
            self._empty.set()
            return
        while count:
            first = self._pieces[0]
            if len(first) > count:
                self._pieces[0] = memoryview(first)[count:]
                break
            count -= len(first)
            self._pieces.popleft()
        if not self.is_full:
            self._room.set()

    def abandon(self) -> None:
        """Nobody reads any more: drop what is waiting, let senders go."""
        self._pieces.clear()
        self._size = 0
        self._is_closed = True
        self._owed.clear()
        self._room.set()
        self._empty.set()
        self._answered.set()
