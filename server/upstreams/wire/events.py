"""Server-sent events (WHATWG HTML, 9.2), read from bytes: whatever a server calls its charset, they are UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

MOST_ID_CHARS = 4_096  # of an id that is given back in a header
LINE_COST = 64  # so many bytes each line counts beside its own: it takes as much time


class EventsTooLongError(Exception):
    """An event is larger than is taken."""


@dataclass(slots=True)
class Event:
    name: str = ""
    data: bytes = b""
    id: str | None = None  # empty to forget the one before
    retry: int | None = None  # milliseconds


class EventReader:
    """Cuts a stream into events."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()  # as far as it has come
        self._is_first, self._ends_in_cr = True, False
        self._begin()

    def _begin(self) -> None:
        self._event, self._data, self._size, self._is_empty = Event(), bytearray(), 0, True

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Take in bytes; the events that are complete. `EventsTooLongError` where one is too large."""
        if self._ends_in_cr:
            chunk = chunk.removeprefix(b"\n")
        self._ends_in_cr = chunk.endswith(b"\r")
        first, *others = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line += first
        for part in others:
            line = bytes(self._line)
            self._line[:] = part
            if self._is_first:
                self._is_first, line = False, line.removeprefix(codecs.BOM_UTF8)
            if line:
                self._take(line)
            elif not self._is_empty:
                self._event.data = bytes(self._data[:-1])
                yield self._event
                self._begin()
        if self._size + len(self._line) > self._max_bytes:
            raise EventsTooLongError

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value + b"\n"
        elif name == b"event":
            self._event.name = value.decode("utf-8", "replace")
        elif name == b"id":
            text = value.decode("utf-8", "replace")
            if text.isascii() and text.isprintable() and text == text.strip() and len(text) <= MOST_ID_CHARS:
                self._event.id = text  # any other one could not be given back
        elif name == b"retry" and value.isdigit():
            self._event.retry = int(value[:9])
        else:
            return
        self._is_empty = False
        self._size += len(line) + LINE_COST
        if self._size > self._max_bytes:
            raise EventsTooLongError
