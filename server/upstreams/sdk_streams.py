"""The streams of the SDK's client transports, as a peer reads and writes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from server.json_rpc import Failure, Message, Notification, Request, Response, of_sdk
from server.sdk_seams import ReadStream, WriteStream
from server.upstreams.peer import unusable

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
