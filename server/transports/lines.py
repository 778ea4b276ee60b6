"""The lines of a wire of JSON-RPC: cutting them out of a stream of bytes, however it arrives."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import mcp_types as types

from server.json_rpc import NOT_A_MESSAGE, RequestId, error_of, read_unreadable

INBOX_MESSAGES = 256
"""Messages that wait to be taken before reading pauses."""

KEPT_OF_OVERSIZED = 4096
"""Bytes kept of each end of an oversized line, to find the id that has to be told."""

USUAL_PIPE_BYTES = 1 << 16
PIPE_BYTES = 1 << 20
"""What a pipe holds at first, and what one may hold through which much goes (Linux gives as much to every user)."""

LARGE_PIECE = 4096
"""A smaller piece of a line is added to the one before, so that there are not very many of them."""

_ID = rb'(-?\d{1,18}(?![\d.eE])|"(?:[^"\\]|\\.){0,200}")'
_ID_AT_HEAD = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*' + _ID)
_ID_AT_TAIL = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb"\s*\}\s*$")
"""Only these two places are certain to be the message's own id, without reading what is between them."""


def enlarge(descriptor: int) -> None:
    """Let a pipe hold more, where that is possible: what is large passes it in fewer turns."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - only where it exists

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class LineSplitter:
    """Cuts a byte stream into lines; of a line that is too long only its two ends are kept.

    Args:
        max_bytes: The longest line that is passed on.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._pieces: list[bytes | bytearray] = []
        """Of the line that is not complete; put together once, since they may be many and large."""
        self._size = 0
        self._head: bytes | None = None
        self._oversized: list[bytes] = []

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Take in bytes; the lines that are complete, without blank ones."""
        if not self._pieces and data.find(b"\n") == len(data) - 1 < self.max_bytes:
            line = data[:-1]  # one whole line, as nearly always
            return (line,) if line and not line.isspace() else ()
        *complete, rest = data.split(b"\n")
        lines = [self._complete(piece) for piece in complete]
        if rest:
            self._add(rest)
        return [line for line in lines if line and not line.isspace()]

    def take_oversized(self) -> list[bytes]:
        """The ends of the lines that were too long, since the last time."""
        taken, self._oversized = self._oversized, []
        return taken

    def _complete(self, rest: bytes) -> bytes | None:
        if not self._pieces and len(rest) <= self.max_bytes:
            return rest
        self._add(rest)
        line = b"".join(self._pieces)
        head, self._head = self._head, None
        self._pieces, self._size = [], 0
        if head is None:
            return line
        self._oversized.append(head + b"\n" + line[-KEPT_OF_OVERSIZED:])
        return None

    def _add(self, piece: bytes) -> None:
        """Keep a piece of the line that is not complete."""
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


def certain_id(head: bytes, tail: bytes) -> RequestId | None:
    """The id of a message that was not read, where it is certain.

    Args:
        head: Its beginning.
        tail: Its end.
    """
    match = _ID_AT_HEAD.search(head) or _ID_AT_TAIL.search(tail)
    try:
        return None if match is None else json.loads(match.group(1))
    except ValueError:  # a text with bytes or signs that are not allowed
        return None


def refusal_of_oversized(ends: bytes, max_bytes: int) -> dict[str, Any]:
    """The error for a line that was too long."""
    head, _, tail = ends.partition(b"\n")
    message = (
        f"The request is larger than {max_bytes} bytes (limits.requestBytes) and was not read. "
        "Send less at once, or let the operator raise the limit."
    )
    return error_of(certain_id(head, tail), message)


def refusal_of_unreadable(line: bytes, *, is_post: bool = False) -> dict[str, Any] | None:
    """The error for what is not a JSON-RPC message; `None` where nobody can wait for an answer to it.

    Args:
        line: What was sent.
        is_post: Whether it came with a request of HTTP, which is answered whatever it holds.
    """
    try:
        unreadable = read_unreadable(line)
    except ValueError:
        if not (b'"id"' in line and b'"method"' in line) and not is_post:
            return None
        message = "This is not valid JSON in UTF-8, or it is nested too deeply, or has a number of too many digits."
        may_answer = b'"result"' in line or b'"error"' in line  # then its id is one of ours
        identity = None if may_answer else certain_id(line[:KEPT_OF_OVERSIZED], b"")
        return error_of(identity, message, types.PARSE_ERROR)
    if unreadable is None or unreadable.is_answer:
        return error_of(None, NOT_A_MESSAGE) if is_post else None
    return unreadable.refusal
