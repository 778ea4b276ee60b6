"""Reads the messages that clients post over HTTP, and sends responses that are not event streams."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from server.protocol.json_rpc import BatchError, Json, Message, error_of, read_of_client
from server.transports.json_lines import refusal_of_unreadable
from tools.machine.threads import THREADS

OPEN_REQUEST = "coretools-mcp.open-request"  # key in a request's ASGI scope for the cancel scope that ends the request
LARGE_BYTES = 256 << 10  # a longer body is parsed in a thread
ROOT_PATH = "coretools-mcp.root-path"  # key in the ASGI scope for the path under which a proxy publishes this server
SERVER_ENDS = "The server is shutting down, so this request was cancelled without a response."


async def read_posted(
    scope: Scope, receive: Receive, send: Send, max_bytes: int, *, takes_batches: bool = False
) -> tuple[Message | list[Message], bytes] | None:
    """Return the posted message or batch, and its bytes; `None` if it was refused, or the client is gone."""
    headers = dict(scope["headers"])
    declared, kind = headers.get(b"content-length", b"0"), headers.get(b"content-type", b"")
    size = int(declared) if declared.isdigit() else 0
    if size <= max_bytes and kind.partition(b";")[0].strip().lower() != b"application/json":
        await refuse(HTTPStatus.BAD_REQUEST, "The Content-Type header must be application/json.", send)
        return None
    pieces: list[bytes] = []
    while size <= max_bytes:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if message.get("more_body", False):
            size = max(size, sum(map(len, pieces)))
            continue
        body = b"".join(pieces)
        if len(body) > max_bytes:
            break
        read = partial(_read, body, takes_batches)
        posted = await THREADS.run(read) if len(body) > LARGE_BYTES else read()
        if not isinstance(posted, dict):
            return posted, body
        await refuse_json(posted, send)
        return None
    told = f"The body is longer than {max_bytes} bytes (limits.requestBytes) and was not read. Send less at once."
    await refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, told, send)
    return None


def _read(body: bytes, takes_batches: bool) -> Message | list[Message] | Json:
    """Parse a body, or return the error that refuses it."""
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


async def refuse_json(error: Json, send: Send) -> None:
    # Unlike `encoded`, `json.dumps` preserves lone surrogates, which an id may contain.
    await send_json(json.dumps(error).encode(), HTTPStatus.BAD_REQUEST, send)


async def refuse(status: int, sentence: str, send: Send, headers: dict[str, str] | None = None) -> None:
    """Refuse an HTTP request with a message, as a JSON-RPC error."""
    body = json.dumps(error_of(None, sentence)).encode()
    given = [(name.encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]
    await send_json(body, status, send, given)


async def send_json(body: bytes, status: int, send: Send, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
