"""What bounds a call: the approval mode, the limits of results, what becomes of media, and the signal that ends it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from tools.contract.tool_errors import ToolError, ToolErrorType


class ApprovalMode(StrEnum):
    """How much may happen without a question, from least to most."""

    PLAN = "plan"
    DEFAULT = "default"
    AUTO_EDIT = "auto-edit"
    YOLO = "yolo"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one call may return. Every cut is announced in the result."""

    read_lines: int = 2_000  # lines of one read without an explicit limit (Gemini CLI's 2,000)
    read_chars: int = 25_000  # characters of one read (Qwen Code's 25,000)
    line_chars: int = 2_000  # characters of one line before it is cut (Gemini CLI's 2,000)
    list_entries: int = 100  # entries of one listing, and files of one glob (Qwen Code's 100)
    grep_matches: int = 100  # matching lines of one search (Gemini CLI's 100)
    read_many_files: int = 100  # files of one `read_many_files`
    read_many_chars: int = 100_000  # characters of one `read_many_files`


class MediaHandling(StrEnum):
    """What becomes of images, sounds and other media in results."""

    INLINE = "inline"
    RESOURCE_LINK = "resource_link"
    NOTICE = "notice"


MAX_COMMAND_TIMEOUT = 600_000  # the longest time a command may be given, in milliseconds (Qwen Code's number)


@dataclass(slots=True, eq=False)
class AbortSignal:
    """A flag that worker threads look at between steps; set once, never cleared (Qwen Code's AbortSignal)."""

    aborted: bool = False  # somebody asked the work to stop

    def abort(self) -> None:
        """Ask the work to stop."""
        self.aborted = True

    def raise_if_aborted(self) -> None:
        """Stop here if asked to: a `ToolError` with the code `cancelled`."""
        if self.aborted:
            raise ToolError(ToolErrorType.CANCELLED, "The call was cancelled before it was finished.")


SEARCH_SECONDS = 30.0  # how long one search may take before it returns what it has


class Deadline:
    """The time budget of one call, in seconds from now on, and its cancellation."""

    __slots__ = ("_end", "seconds", "signal")

    def __init__(self, signal: AbortSignal, seconds: float) -> None:
        self.signal = signal
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self._end

    def check(self) -> bool:
        """Whether the budget is used up; a `ToolError` if the call is cancelled."""
        self.signal.raise_if_aborted()
        return self.is_over


# Tells how far something is: done, total or `None`, message
Progress = Callable[[float, float | None, str], Awaitable[None]]


async def no_progress(done: float, total: float | None, message: str) -> None:
    """Tell nobody: no progress was asked for."""
