"""Server-sent events (WHATWG HTML, 9.2), parsed from bytes: always UTF-8, regardless of the declared charset."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass

import anyio.lowlevel

MAX_ID_CHARS = 4_096  # maximum length of an id, which is sent back in a header
PIECE_BYTES = 4_096  # bytes parsed before other tasks run
LINE_COST = 64  # bytes counted for each line in addition to its length, because parsing a line takes time


@dataclass(slots=True)
class Event:
    name: str = ""
    data: bytes = b""
    id: str | None = None  # empty to forget the previous id
    retry: int | None = None  # milliseconds


async def events_in(chunks: AsyncIterable[bytes], most_bytes: int) -> AsyncGenerator[Event]:
    """Yield the events of a stream.

    Raises:
        OverflowError: An event is too large.
    """
    event: Event | None = None
    line, data, size, is_first, ends_in_cr = bytearray(), list[bytes](), 0, True, False
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE_BYTES):
            await anyio.lowlevel.checkpoint()
            piece = chunk[start : start + PIECE_BYTES].removeprefix(b"\n" if ends_in_cr else b"")
            ends_in_cr = piece.endswith(b"\r")
            first, *others = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            line += first
            for part in others:
                whole, line[:] = bytes(line), part
                if is_first:
                    is_first, whole = False, whole.removeprefix(codecs.BOM_UTF8)
                if not whole and event is not None:
                    event.data = b"\n".join(data)
                    yield event
                    event, data, size = None, [], 0
                if not whole or whole[:1] == b":":
                    continue
                event = event or Event()
                size += len(whole) + LINE_COST
                name, _, value = whole.partition(b":")
                value = value.removeprefix(b" ")
                text = value[:MAX_ID_CHARS].decode("utf-8", "replace")
                if name == b"data":
                    data.append(value)
                elif name == b"event":
                    event.name = text
                elif name == b"id" and text.isascii() and text.isprintable() and text.strip().encode() == value:
                    event.id = text  # any other value could not be sent back in a header
                elif name == b"retry" and value.isdigit():
                    event.retry = int(value[:9])
            if size + len(line) > most_bytes:
                raise OverflowError
