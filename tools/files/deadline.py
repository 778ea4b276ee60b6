"""How long a call may take, and whether it was cancelled."""

from __future__ import annotations

import time

from tools.contract.limits import AbortSignal

SEARCH_SECONDS = 30.0
"""How long one search may take before it returns what it has."""


class Deadline:
    """The time budget of one call, and its cancellation.

    Args:
        signal: Set when the call is cancelled.
        seconds: The budget, from now on.
    """

    __slots__ = ("_end", "seconds", "signal")

    def __init__(self, signal: AbortSignal, seconds: float) -> None:
        self.signal = signal
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds of the budget that are not used up."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> bool:
        """Whether the budget is used up.

        Raises:
            ToolError: `cancelled`.
        """
        self.signal.raise_if_aborted()
        return self.is_over
