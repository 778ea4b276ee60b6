"""The lines of a wire of JSON-RPC: cutting them out of a stream of bytes, however it arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from server.json_rpc import error_of

INBOX_MESSAGES = 256
"""Messages that wait to be taken before reading pauses."""

KEPT_OF_OVERSIZED = 4096
"""Bytes kept of each end of an oversized line, to find the id that has to be told."""

_ID = rb'(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
_ID_AT_HEAD = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*' + _ID)
_ID_AT_TAIL = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb"\s*\}\s*$")
"""Only these two places are certain to be the message's own id, without reading what is between them."""


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

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Take in bytes; the lines that are complete, without blank ones."""
        if not self._partial and self._head is None and data.find(b"\n") == len(data) - 1 < self.max_bytes:
            line = data[:-1]  # one whole line, as nearly always
            return (line,) if line and not line.isspace() else ()
        *complete, rest = data.split(b"\n")
        lines = [self._complete(piece) for piece in complete]
        self._partial += rest
        self._bound()
        return [line for line in lines if line and not line.isspace()]

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
    return error_of(json.loads(match.group(1)), message)
