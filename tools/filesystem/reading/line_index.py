"""Where the lines of a file begin: line endings counted once, in steps, and remembered for the next window."""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.ledger import FileIdentity

BLOCK = 1 << 20
"""Bytes read and counted at a time."""

SOUGHT_BYTES = 1 << 29
"""How much one call reads on its way to a line or to its end (half a second); what was counted is remembered."""

STEP = 1 << 16
"""Bytes between two counts that are remembered: what is split into lines to find the beginning of one."""

MAX_INDEXES = 64
"""Files whose line counts are remembered, 128 bytes for each MB of a file."""

SETTLED_NS = 100_000_000
"""A file changed more recently than this may change again without its times showing it, so it is not remembered."""


class Source(Protocol):
    """Bytes that can be read anywhere. Lines end with one byte."""

    size: int

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end."""
        ...


@dataclass(frozen=True, slots=True)
class LineIndex:
    """How many line endings there are up to the end of each step, from the beginning on.

    Args:
        counts: Running totals; never changed.
        is_complete: Whether the last step is the last one of the file.
        ends_open: Whether the file ends without a line ending, in a line of its own.
    """

    counts: array[int] = field(default_factory=lambda: array("Q"))
    is_complete: bool = False
    ends_open: bool = False

    @property
    def counted(self) -> int:
        """Line endings counted so far."""
        return self.counts[-1] if self.counts else 0

    @property
    def total(self) -> int | None:
        """Lines in the file, where it was counted to its end."""
        return self.counted + self.ends_open if self.is_complete else None


_indexes: OrderedDict[FileIdentity, LineIndex] = OrderedDict()
_indexes_guard = threading.Lock()


def remembered(identity: FileIdentity | None) -> LineIndex:
    """What was counted before of a file; nothing of one that has no identity."""
    if identity is None:
        return LineIndex()
    with _indexes_guard:
        return _indexes.get(identity, LineIndex())


def remember(identity: FileIdentity | None, index: LineIndex) -> None:
    """Keep what was counted, unless the file may be changing at this moment."""
    if identity is None or time.time_ns() - max(identity.mtime_ns, identity.ctime_ns) < SETTLED_NS:
        return
    with _indexes_guard:
        if len(_indexes.get(identity, LineIndex()).counts) > len(index.counts):
            return
        _indexes[identity] = index
        _indexes.move_to_end(identity)
        if len(_indexes) > MAX_INDEXES:
            _indexes.popitem(last=False)


def extend(index: LineIndex, source: Source, separator: bytes, endings: int | None, signal: AbortSignal) -> LineIndex:
    """Count on until `endings` line endings are known, or to the end of the file, or for `SOUGHT_BYTES`."""
    if index.is_complete or (endings is not None and index.counted >= endings):
        return index
    counts = index.counts[:]
    counted = index.counted
    last = b""
    most = len(counts) + SOUGHT_BYTES // STEP
    is_complete = len(counts) * STEP >= source.size
    while not is_complete and len(counts) < most and (endings is None or counted < endings):
        signal.raise_if_aborted()
        block = source.read_at(len(counts) * STEP, BLOCK)
        for start in range(0, len(block), STEP):
            counted += block.count(separator, start, start + STEP)
            counts.append(counted)
        last = block[-1:]
        # A file that was cut short meanwhile ends earlier than its size said.
        is_complete = len(block) < BLOCK or len(counts) * STEP >= source.size
    if is_complete and not last and source.size:
        last = source.read_at(source.size - 1, 1)
    return LineIndex(counts, is_complete, is_complete and last not in (b"", separator))


def position_of(index: LineIndex, source: Source, separator: bytes, line: int) -> int | None:
    """Where a line begins, or `None` past the end.

    Raises:
        ToolError: `file_too_large`, if it was not reached.
    """
    if line == 0:
        return 0
    if index.counted < line:
        if index.is_complete:
            return None
        raise too_far(f"line {line + 1:,}", "the beginning", f"{index.counted:,} lines before it were counted so far")
    number = bisect_left(index.counts, line)
    before = index.counts[number - 1] if number else 0
    step = source.read_at(number * STEP, STEP)
    rest = step.split(separator, line - before)[-1]
    return number * STEP + len(step) - len(rest)


def too_far(what: str, side: str, known: str) -> ToolError:
    """The refusal of what lies further away than one call looks for lines.

    Args:
        what: What was wanted.
        side: From where it was looked for.
        known: What was found out on the way, as a part of a sentence.
    """
    return ToolError(
        ToolErrorType.FILE_TOO_LARGE,
        f"Nothing was read: {what} lies more than {SOUGHT_BYTES:,} bytes from {side} of the file, which is as far as "
        f"one call looks for lines; {known}. Use grep_search, or an offset near the beginning or (negative) the end; "
        "a file that does not change is counted on from there when the call is repeated.",
    )
