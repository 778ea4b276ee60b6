"""The bounds of a call: the approval mode, limits on results, the handling of media, and the cancel signal."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from tools.contract.tool_errors import ToolError, ToolErrorType


class ApprovalMode(StrEnum):
    """Which calls may run without a question, from fewest to most."""

    PLAN = "plan"
    DEFAULT = "default"
    AUTO_EDIT = "auto-edit"
    YOLO = "yolo"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the result of one call. The result says so whenever something was truncated."""

    read_lines: int = 2_000  # lines of one read without a `limit` argument (2,000 in Gemini CLI)
    read_chars: int = 25_000  # characters of one read (25,000 in Qwen Code)
    line_chars: int = 2_000  # characters after which a line is truncated (2,000 in Gemini CLI)
    list_entries: int = 100  # entries of one listing, or files of one glob (100 in Qwen Code)
    grep_matches: int = 100  # matching lines of one search (100 in Gemini CLI)
    read_many_files: int = 100  # files in one result of `read_many_files`
    read_many_chars: int = 100_000  # characters in one result of `read_many_files`


class MediaHandling(StrEnum):
    """How images, sounds and other media are returned."""

    INLINE = "inline"
    RESOURCE_LINK = "resource_link"
    NOTICE = "notice"


MAX_COMMAND_TIMEOUT = 600_000  # the longest timeout of a command, in milliseconds (as in Qwen Code)


@dataclass(slots=True, eq=False)
class AbortSignal:
    """A flag that worker threads check between steps. Once set, it is never cleared (AbortSignal in Qwen Code)."""

    aborted: bool = False  # whether the work should stop

    def abort(self) -> None:
        self.aborted = True

    def raise_if_aborted(self) -> None:
        """Raise a `ToolError` with the code `cancelled` if the work should stop."""
        if self.aborted:
            raise ToolError(ToolErrorType.CANCELLED, "The call was cancelled before it finished.")


SEARCH_SECONDS = 30.0  # after this time, a search returns what it has found so far


class Deadline:
    """The time budget of one call, which begins when this object is created, and the signal that cancels the call."""

    __slots__ = ("_end", "seconds", "signal")

    def __init__(self, signal: AbortSignal, seconds: float) -> None:
        self.signal = signal
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def check(self) -> bool:
        """Return True if the budget is used up. Raises a `ToolError` if the call is cancelled."""
        self.signal.raise_if_aborted()
        return self.is_over


# Reports progress: progress, total or `None`, message
Progress = Callable[[float, float | None, str], Awaitable[None]]


async def no_progress(progress: float, total: float | None, message: str) -> None:
    """Ignore progress, for calls without a progress token."""
