"""What an upstream writes on standard error: lines of our log, so many of them that they cannot drown it.

It is read in any case, so that an upstream that writes much never waits for somebody who reads our log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from server.transports.lines import LineSplitter
from tools.execution.terminal_text import plain_text

logger = logging.getLogger(__name__)
# It tells people what they would see if they ran the upstream themselves, which no level of ours leaves out.
logger.setLevel(logging.INFO)

READ_BYTES = 1 << 16
"""Read at once: what a pipe holds at first."""

LINE_BYTES = 1 << 14
"""Of a longer line only the beginning is looked at."""

LINE_CHARS = 2_000
"""Of a longer line only the beginning is shown."""

LINES_IN_A_ROW = 200
"""So many lines are shown of each second, which is more than a traceback; the others are counted."""

SECONDS = 1.0

PAUSE_SECONDS = 0.01
"""Between two pieces of what is not shown any more, so that a flood takes no more than some megabytes a second."""


class Remarks:
    """Writes lines about one upstream to our log, a limited number of them each second.

    Args:
        alias: Its name in our configuration.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._begun = -SECONDS
        self._shown = 0
        self._left_out = 0

    @property
    def is_full(self) -> bool:
        """Whether the next line would not be shown."""
        return self._shown >= LINES_IN_A_ROW and time.monotonic() < self._begun + SECONDS

    def add(self, line: bytes, what: str = "") -> None:
        """Write a line, or count it.

        Args:
            line: As the upstream wrote it.
            what: Stands before it.
        """
        if self.is_full:
            self._left_out += 1
            return
        if time.monotonic() >= self._begun + SECONDS:
            self.close()
            self._begun, self._shown = time.monotonic(), 0
        self._shown += 1
        text = plain_text(line[:LINE_BYTES])
        cut = f"{text[:LINE_CHARS]} [...]" if len(text) > LINE_CHARS or len(line) > LINE_BYTES else text
        logger.info("upstream %s: %s%s", self._alias, what, " ".join(cut.split("\n")))

    def close(self) -> None:
        """Say how many lines were left out since this was said last."""
        if self._left_out:
            logger.info("upstream %s: %d more lines are not shown", self._alias, self._left_out)
            self._left_out = 0


class ErrorReader:
    """Reads the standard error of an upstream, from now on until its end.

    Args:
        descriptor: Non-blocking; it is not closed here.
        remarks: Gets the lines.
    """

    def __init__(self, descriptor: int, remarks: Remarks) -> None:
        self._descriptor = descriptor
        self._remarks = remarks
        self._splitter = LineSplitter(LINE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._is_ended = False
        self._loop.add_reader(descriptor, self._on_readable)

    def stop(self) -> None:
        """Read no more than what is there already."""
        if not self._is_ended and self._read_piece():
            self._end()
        if self._pause is not None:
            self._pause.cancel()

    def _on_readable(self) -> None:
        if self._read_piece() and self._remarks.is_full:
            self._loop.remove_reader(self._descriptor)
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._descriptor, self._on_readable)

    def _read_piece(self) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        self._take(data)
        return True

    def _end(self) -> None:
        self._is_ended = True
        self._loop.remove_reader(self._descriptor)
        self._take(b"\n")  # the last line may lack its end

    def _take(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            self._remarks.add(line)
        for ends in self._splitter.take_oversized():
            self._remarks.add(ends)
