"""What an upstream sent that is no message: which request of ours it was meant to answer, so that it fails at once.

And what is more than one: the revision 2025-03-26 allows servers to send an array of messages.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import mcp_types as types
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from pydantic_core import from_json, to_json

from server.json_rpc import Failure, Message, Notification, Request, Response, of_sdk, read_message, read_unreadable
from server.sdk_seams import ReadStream, WriteStream
from server.transports.lines import KEPT_OF_OVERSIZED, certain_id
from server.upstreams.wire.peer import unusable

_SAID_BY_THE_SDK: tuple[tuple[int, str, str], ...] = (
    (types.PARSE_ERROR, "Failed to parse ", "what it sent is no JSON-RPC message, or broke off, or is too long"),
    (types.INVALID_REQUEST, "Unexpected content type: ", "what it sent is neither JSON nor a stream of events"),
    (types.INVALID_REQUEST, "Redirect to ", "it wants the request to be sent to another address"),
    (types.INVALID_REQUEST, "server answered a request with 202", "it took the request without answering it"),
    (types.CONNECTION_CLOSED, "SSE stream ended", "it ended its answer before it was whole"),
    (types.CONNECTION_CLOSED, "SSE stream failed", "what it sent is too long, or no stream of events"),
)
"""Errors that the SDK makes up in place of answers, with texts of exceptions in some, and what they mean."""


@asynccontextmanager
async def sdk_streams(transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[tuple[SdkReading, SdkWriting]]:
    """Open a transport.

    Args:
        transport: Gives the two streams.
    """
    async with transport as (reading, writing):
        yield SdkReading(reading), SdkWriting(writing)


class SdkReading:
    """What comes from a transport of the SDK, with its own errors in words of ours.

    Args:
        stream: The transport's.
    """

    def __init__(self, stream: ReadStream[SessionMessage | Exception]) -> None:
        self._stream = stream

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand over each message until the connection ends."""
        async for item in self._stream:
            if isinstance(item, SessionMessage):
                listener(_readable(of_sdk(item.message)))


class SdkWriting:
    """Gives messages to a transport of the SDK.

    Args:
        stream: The transport's.
    """

    has_room = False
    """It takes one at a time, so who sends may have to wait."""

    takes_headers = True

    def __init__(self, stream: WriteStream[SessionMessage]) -> None:
        self._stream = stream

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message."""
        metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
        await self._stream.send(SessionMessage(_as_sdk(message), metadata))


def _readable(message: Message) -> Message:
    if isinstance(message, Failure) and message.id is not None:
        for code, beginning, why in _SAID_BY_THE_SDK:
            if message.error["code"] == code and message.error["message"].startswith(beginning):
                return unusable(message.id, why)
    return message


def _as_sdk(message: Message) -> types.JSONRPCMessage:
    match message:
        case Request(identity, method, params):
            return types.JSONRPCRequest(jsonrpc="2.0", id=identity, method=method, params=params)
        case Notification(method, None):
            return types.JSONRPCNotification(jsonrpc="2.0", method=method)
        case Notification(method, params):
            return types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        case Response(identity, result):
            return types.JSONRPCResponse(jsonrpc="2.0", id=identity, result=result)
        case Failure(identity, error):
            return types.JSONRPCError(jsonrpc="2.0", id=identity, error=types.ErrorData.model_validate(error))


MESSAGE_BYTES = 64 << 20
"""A longer message of an upstream is not taken; a call whose answer it is fails."""

MOST_TOGETHER = 1_000
"""Messages of one array that are taken."""

NO_MESSAGE = "what it sent is no valid JSON-RPC message"

TOO_LARGE = f"what it sent is larger than {MESSAGE_BYTES} bytes"

_ANSWER = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|-?\d+)\s*,\s*){0,2}"(?:result|error)"\s*:')
"""The beginning of an answer. One that begins otherwise is none for us: what is in it could look like anything."""


def answered_by(line: bytes) -> Failure | None:
    """The error in place of an answer that is no message; `None` where it was meant as something else.

    Args:
        line: Begins with a brace or a bracket.
    """
    try:
        parsed = read_unreadable(line)
    except ValueError:
        return answered_by_ends(line[:KEPT_OF_OVERSIZED] + b"\n" + line[-KEPT_OF_OVERSIZED:], NO_MESSAGE)
    if parsed is None or not parsed.is_answer or parsed.identity is None:
        return None
    identity = parsed.identity
    if isinstance(identity, float):
        return unusable(int(identity), NO_MESSAGE) if identity.is_integer() else None
    return unusable(identity, NO_MESSAGE)


def taken_apart(text: str) -> list[Message]:
    """The messages of an array, with errors in place of answers that are none; empty where it is no such array.

    Args:
        text: Begins with a bracket.
    """
    try:
        parts: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        return []
    found: list[Message] = []
    for part in cast("list[Any]", parts)[:MOST_TOGETHER]:
        line = to_json(part, inf_nan_mode="null") if isinstance(part, dict) else b""
        try:
            found.append(read_message(line))
        except ValueError:
            failed = answered_by(line) if line else None
            if failed is not None:
                found.append(failed)
    return found


def understood(text: str, line: bytes) -> tuple[list[Message], bool]:
    """The messages of a text of an upstream, and whether it is such; else the error in place of the answer that it was.

    Args:
        text: Begins with a brace or a bracket.
        line: The same as it came.
    """
    if text.lstrip()[:1] == "[" and (messages := taken_apart(text)):
        return messages, True
    try:
        return [read_message(text)], True
    except ValueError:
        failed = answered_by(line)
        return [] if failed is None else [failed], False


def answered_by_ends(ends: bytes, why: str) -> Failure | None:
    """The same of a line of which only the ends are there.

    Args:
        ends: Its beginning and its end, with a line feed between.
        why: What is wrong with it.
    """
    head, _, tail = ends.partition(b"\n")
    identity = certain_id(head, tail) if _ANSWER.match(ends) else None
    return None if identity is None else unusable(identity, why)
