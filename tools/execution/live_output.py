"""Tells a client what a command is printing while it runs: now and then, and only when there is something new."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tools.execution.output import Output
from tools.execution.terminal_text import from_whole_character, plain_text, whole_characters

if TYPE_CHECKING:
    from tools.contract.context import Progress

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
"""Between two reports (Gemini CLI's number)."""

REPORT_BYTES = 4096
REPORT_CHARS = 1_000
"""How much of the end of the output is looked at and told."""

FAREWELL_SECONDS = 0.5
"""How long a report that is on its way may delay the result."""


class LiveOutput:
    """Reports on one command. A client that takes nothing slows nothing.

    Args:
        output: What is printed.
        progress: Tells the client: bytes so far, no total, and the last lines.
    """

    def __init__(self, output: Output, progress: Progress) -> None:
        self._output = output
        self._progress = progress
        self._told = 0
        self._told_at = float("-inf")
        self._telling: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Report if there is something new and it is time. To be called every now and then."""
        now = time.monotonic()
        is_busy = self._telling is not None and not self._telling.done()
        if self._output.total == self._told or now - self._told_at < INTERVAL_SECONDS or is_busy:
            return
        self._told, self._told_at = self._output.total, now
        self._telling = asyncio.create_task(self._tell(self._told, newest_text(self._output)))

    async def stop(self) -> None:
        """Report no more."""
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=FAREWELL_SECONDS)
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    async def _tell(self, count: int, text: str) -> None:
        try:
            await self._progress(count, None, text)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the client's
            # The client may have gone; the command shall not fail by that.
            logger.info("progress could not be told: %s", type(error).__name__)


def newest_text(output: Output) -> str:
    """The end of the output, as lines that are whole where they are not too long."""
    if output.is_binary:
        return f"(binary output, {output.total:,} bytes so far)"
    text = plain_text(whole_characters(from_whole_character(output.tail(REPORT_BYTES)))).strip("\n")
    if len(text) <= REPORT_CHARS and output.total <= REPORT_BYTES:
        return text
    _, ending, rest = text[-REPORT_CHARS:].partition("\n")
    return rest if ending else text[-REPORT_CHARS:]
