"""What a command prints, both streams in order: beginning and end in memory, all of it in a file if it is long."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tools.execution.command import OUTPUT_CHARS
from tools.execution.spill import Spill
from tools.execution.terminal_text import from_whole_character, plain_text, whole_characters

HEAD_SHARE = 5
"""One part in so many is kept for the beginning; what counts stands mostly at the end (both seeds' number)."""

HEAD_BYTES = 1 << 16
"""Bytes kept of the beginning: a fifth of the text, with room for colours."""

TAIL_BYTES = 1 << 18
"""Bytes kept of the end. An output that is no longer than this is in memory as a whole, and mostly in no file."""

SNIFFED_BYTES = 4096
"""A NUL among so many bytes at the beginning tells binary data (both seeds' number)."""

SMALL_BYTES = 4096
"""A smaller piece is joined with the one before, so that a million of them cost no more than their bytes."""


CUT_MARK = "[... what was printed here is left out ...]"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is in memory of an output at one moment. Making it text takes a while, and can be done in a thread.

    Args:
        head: Its beginning.
        tail: Its end; all of it where `is_whole`.
        is_whole: Whether nothing is missing.
    """

    head: bytes
    tail: bytes
    is_whole: bool

    def text(self, budget: int = OUTPUT_CHARS) -> tuple[str, bool]:
        """The output as text, without blank lines around it, and whether its middle was left out."""
        head_chars = budget // HEAD_SHARE
        if self.is_whole and len(self.tail) <= TAIL_BYTES:
            whole = plain_text(self.tail).strip("\n")
            if len(whole) <= budget:
                return whole, False
            return _joined(whole[:head_chars], whole[head_chars - budget :]), True
        head = plain_text(whole_characters(self.head)).lstrip("\n")[:head_chars]
        return _joined(head, self._last_text(budget - head_chars)), True

    def _last_text(self, chars: int) -> str:
        """As much of the end as is needed, since there may be ten times as many bytes as characters, or as few."""
        size = 2 * chars
        tail = self.tail[-TAIL_BYTES:]
        while True:
            text = plain_text(from_whole_character(tail[-size:])).strip("\n")
            if len(text) >= chars or size >= len(tail):
                return text[-chars:]
            size *= 4


def _joined(head: str, tail: str) -> str:
    """Beginning and end of a text, whole lines where they are not very long, and a mark between them."""
    kept = head.rpartition("\n")[0] or head
    line, ending, rest = tail.partition("\n")
    if ending and len(line) < len(tail) // 2:
        tail = rest
    return f"{kept}\n{CUT_MARK}\n{tail}"


class Output:
    """Takes over what was printed, on the event loop.

    Args:
        open_spill: Gives the file for an output that is too long, or `None` if nothing is kept.
        tail_bytes: Bytes kept of the end in memory; an output that is no longer is there as a whole.
    """

    def __init__(self, open_spill: Callable[[], Spill | None], tail_bytes: int = TAIL_BYTES) -> None:
        self.total = 0
        """Bytes printed so far."""
        self.changed_at = time.monotonic()
        """When something was printed last; at first, when this was made."""
        self.is_binary = False
        self.spill: Spill | None = None
        self._open_spill = open_spill
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._recent: deque[bytes | bytearray] = deque()
        self._recent_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take over what was printed next."""
        if self.total < SNIFFED_BYTES and b"\0" in data[: SNIFFED_BYTES - self.total]:
            self.is_binary = True
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        self.total += len(data)
        self.changed_at = time.monotonic()
        self._remember(data)
        if self.spill is not None:
            self.spill.write(data)
        elif self.total > self._tail_bytes and self.tail_start == 0:
            self.keep_all()
        self._forget()

    @property
    def tail_start(self) -> int:
        """Position of the first byte of the end that is in memory."""
        return self.total - self._recent_bytes

    @property
    def waiting(self) -> int:
        """Bytes of memory that wait for the disk."""
        return self.spill.waiting if self.spill is not None else 0

    def keep_all(self) -> None:
        """Write the output to a file from here on, with all that came before; in time, while that is in memory."""
        if self.spill is None and (spill := self._open_spill()) is not None:
            self.spill = spill
            spill.write(self.tail())

    def tail(self, size: int | None = None) -> bytes:
        """The last bytes, as many as there are in memory or as are asked for."""
        if size is None:
            return b"".join(self._recent)
        pieces: list[bytes | bytearray] = []
        for piece in reversed(self._recent):
            pieces.append(piece)
            size -= len(piece)
            if size <= 0:
                break
        pieces.reverse()
        return b"".join(pieces)[max(-size, 0) :]

    def snapshot(self) -> Snapshot:
        """What is in memory now."""
        return Snapshot(bytes(self._head), self.tail(), is_whole=self.tail_start == 0)

    def keep_only_end(self, size: int) -> None:
        """After the last of it: give back memory. What is dropped can be read from the file only."""
        self._head.clear()
        end = self.tail(size)
        self._recent = deque([end])
        self._recent_bytes = len(end)

    def _remember(self, data: bytes) -> None:
        self._recent_bytes += len(data)
        last = self._recent[-1] if self._recent else None
        if last is None or len(last) + len(data) > SMALL_BYTES:
            self._recent.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._recent[-1] = bytearray(last + data)

    def _forget(self) -> None:
        while self._recent_bytes - len(self._recent[0]) >= self._tail_bytes:
            self._recent_bytes -= len(self._recent.popleft())
