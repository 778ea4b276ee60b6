"""Lines of JSON-RPC, of clients and upstreams: reading and writing them, and knowing which answers are still owed."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import anyio
import mcp_types as types
from pydantic_core import from_json, to_json

logger = logging.getLogger(__name__)

INBOX_MESSAGES = 256
"""Messages that wait to be taken before reading pauses."""

OUTBOX_BYTES = 4 * 1024 * 1024
"""Bytes waiting for a slow reader before senders have to wait."""

KEPT_OF_OVERSIZED = 4096
"""Bytes kept of each end of an oversized line, to find the id that has to be told."""

_ID = rb'(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
_ID_AT_HEAD = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*' + _ID)
_ID_AT_TAIL = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb"\s*\}\s*$")
"""Only these two places are certain to be the message's own id, without reading what is between them."""

_PARTS = 4
"""Of a request with parameters: what it is, its id, its method and these. An answer has one less."""

_INPUT_ENDED = (
    "The input ended while this was at work, so it was cancelled; a command was ended with all that it had started. "
    "Keep the input open until the answer has come."
)

RequestId = str | int
AnyId = RequestId | float
"""A fraction is no id that one should use, but a request with one is answered all the same."""


def read_message(line: bytes) -> types.JSONRPCMessage:
    """A message as it stands in a line. The usual forms are made without the SDK's models looking at every part.

    Raises:
        ValueError: It is none.
    """
    try:
        fields: Any = from_json(line, allow_inf_nan=False)
    except ValueError:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    if isinstance(fields, dict):
        known = cast("dict[str, Any]", fields)
        identity, method, params, result = (known.get(name) for name in ("id", "method", "params", "result"))
        if known.get("jsonrpc") != "2.0" or type(identity) not in (int, str):
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        if len(known) == _PARTS and isinstance(method, str) and isinstance(params, dict):
            return types.JSONRPCRequest.model_construct(jsonrpc="2.0", id=identity, method=method, params=params)
        if len(known) == _PARTS - 1 and isinstance(result, dict):
            return types.JSONRPCResponse.model_construct(jsonrpc="2.0", id=identity, result=result)
    return types.jsonrpc_message_adapter.validate_json(line, by_name=False)


class LineSplitter:
    """Cuts a byte stream into lines; of a line that is too long only its two ends are kept.

    Args:
        max_bytes: The longest line that is passed on.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._partial = bytearray()
        self._head: bytes | None = None
        self._oversized: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in bytes; yield the lines that are complete, without blank ones."""
        *complete, rest = data.split(b"\n")
        lines = [self._complete(piece) for piece in complete]
        self._partial += rest
        self._bound()
        for line in lines:
            if line and not line.isspace():
                yield line

    def take_oversized(self) -> list[bytes]:
        """The ends of the lines that were too long, since the last time."""
        taken, self._oversized = self._oversized, []
        return taken

    def _complete(self, rest: bytes) -> bytes | None:
        self._partial += rest
        self._bound()
        line, self._partial = bytes(self._partial), bytearray()
        if self._head is not None:
            self._oversized.append(self._head + b"\n" + line[-KEPT_OF_OVERSIZED:])
            self._head = None
            return None
        return line

    def _bound(self) -> None:
        if self._head is None and len(self._partial) <= self.max_bytes:
            return
        if self._head is None:
            self._head = bytes(self._partial[:KEPT_OF_OVERSIZED])
        del self._partial[:-KEPT_OF_OVERSIZED]


def refusal_of_oversized(ends: bytes, max_bytes: int) -> dict[str, Any] | None:
    """The error for a line that was too long, or `None` where its id cannot be known."""
    head, _, tail = ends.partition(b"\n")
    match = _ID_AT_HEAD.search(head) or _ID_AT_TAIL.search(tail)
    if match is None:
        return None
    message = (
        f"The request is larger than {max_bytes} bytes (limits.requestBytes) and was not read. "
        "Send less at once, or let the operator raise the limit."
    )
    return _error(json.loads(match.group(1)), message)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is JSON with an id but no JSON-RPC message.

    Args:
        identity: The id.
        is_answer: It was meant as the answer to a question of ours, so it must not be answered.
    """

    identity: AnyId
    is_answer: bool

    @property
    def refusal(self) -> dict[str, Any]:
        """The error for a request."""
        return _error(self.identity, "This is not a valid JSON-RPC 2.0 request.")


def read_unreadable(line: bytes) -> Unreadable | None:
    """What can be said of a line that is no JSON-RPC message; `None` if it has no id."""
    try:
        parsed: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    fields = cast("dict[str, Any]", parsed)
    identity = fields.get("id")
    if not isinstance(identity, str | int | float) or isinstance(identity, bool) or identity != identity:  # noqa: PLR0124 - NaN
        return None
    return Unreadable(identity, is_answer="method" not in fields and bool({"result", "error"} & fields.keys()))


def _error(identity: AnyId, message: str, code: int = types.INVALID_REQUEST) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}


def _tool_of(request: types.JSONRPCRequest) -> str:
    """The name of the tool that a request calls, or nothing."""
    name = (request.params or {}).get("name") if request.method == "tools/call" else None
    return name if isinstance(name, str) else ""


def encoded(message: Mapping[str, Any]) -> bytes:
    """One line for a message. What cannot be encoded becomes an error: it must not end the connection."""
    try:
        return _with_ready_parts(message) or to_json(message, inf_nan_mode="null") + b"\n"
    except ValueError:
        logger.exception("a message could not be encoded")
    if "result" not in message:
        return b""
    error = {"code": types.INTERNAL_ERROR, "message": "The result could not be encoded."}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n"


class ReadyList(list[Any]):
    """A list that is sent again and again as it is, and is encoded once."""

    @cached_property
    def json(self) -> bytes:
        """The list as JSON."""
        return to_json(list(self), inf_nan_mode="null")


def _with_ready_parts(message: Mapping[str, Any]) -> bytes | None:
    """One line for an answer whose result begins with a list that is encoded already."""
    result = message.get("result")
    if not isinstance(result, dict):
        return None
    fields = cast("dict[str, Any]", result)
    name, first = next(iter(fields.items()), ("", None))
    if not isinstance(first, ReadyList):
        return None
    rest = to_json({key: value for key, value in fields.items() if key != name}, inf_nan_mode="null")
    end = rest if rest == b"{}" else b"," + rest[1:]
    head = b'{"jsonrpc":"2.0","id":%b,"result":{%b:' % (to_json(message["id"]), to_json(name))
    return head + first.json + (end if end != b"{}" else b"}") + b"}\n"


class Outbox:
    """Messages that go out; and the account of what is owed to whom."""

    def __init__(self, on_data: Callable[[], None]) -> None:
        self.pending = bytearray()
        self._on_data = on_data
        self._is_closed = False
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._answered = asyncio.Event()
        self._owed: dict[RequestId, str] = {}
        """The tool that each open request calls; empty for those that call none."""
        self._given_up: set[RequestId] = set()
        self._asked: set[RequestId] = set()

    @property
    def owes_answers(self) -> bool:
        return bool(self._owed)

    def give_up(self, is_too_long: Callable[[str], bool]) -> list[types.JSONRPCNotification]:
        """Answer open requests with an error, since their answers are waited for no longer.

        Args:
            is_too_long: Whether the calls of this tool have had their time.

        Returns:
            What ends the work on them.
        """
        late = [identity for identity, tool in self._owed.items() if is_too_long(tool)]
        for identity in late:
            del self._owed[identity]
            self._given_up.add(identity)
            self.put(json.dumps(_error(identity, _INPUT_ENDED, types.CONNECTION_CLOSED)).encode() + b"\n")
        return [
            types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": identity})
            for identity in late
        ]

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

    def note_received(self, message: types.JSONRPCMessage) -> None:
        match message:
            case types.JSONRPCRequest():
                self._owed[message.id] = _tool_of(message)
            case types.JSONRPCNotification() if message.method == "notifications/cancelled":
                cancelled = (message.params or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    self._owed.pop(cancelled, None)
            case types.JSONRPCResponse() | types.JSONRPCError():
                if message.id is not None:
                    self._asked.discard(message.id)
            case _:
                pass

    def fail_open_questions(self) -> list[types.JSONRPCError]:
        """Errors in place of the answers that the client can no longer give."""
        error = types.ErrorData(code=types.CONNECTION_CLOSED, message="The client closed its end.")
        return [types.JSONRPCError(jsonrpc="2.0", id=identity, error=error) for identity in self._asked]

    def fail_question(self, identity: AnyId) -> types.JSONRPCError | None:
        """The error in place of an answer that is none; `None` if no such question is open."""
        if isinstance(identity, float) or identity not in self._asked:
            return None
        self._asked.discard(identity)
        error = types.ErrorData(code=types.INVALID_REQUEST, message="The client's answer is no JSON-RPC response.")
        return types.JSONRPCError(jsonrpc="2.0", id=identity, error=error)

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly for more to be begun."""
        return len(self.pending) > OUTBOX_BYTES

    def post(self, message: dict[str, Any]) -> None:
        """Send a message. An answer that is waited for no longer is dropped."""
        if self._is_closed:
            return
        identity = message.get("id")
        if identity is not None and "method" in message:
            self._asked.add(identity)
        elif identity is not None:
            self._owed.pop(identity, None)
            if identity in self._given_up:
                return
            self._answered.set()
        self.put(encoded(message))

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
        self.pending += line
        self._empty.clear()
        self._on_data()

    def written(self, count: int) -> None:
        del self.pending[:count]
        if not self.is_full:
            self._room.set()
        if not self.pending:
            self._empty.set()

    def abandon(self) -> None:
        """Nobody reads any more: drop what is waiting, let senders go."""
        self.pending.clear()
        self._is_closed = True
        self._owed.clear()
        self._room.set()
        self._empty.set()
        self._answered.set()
