"""A limit on how often something may happen."""

from __future__ import annotations

_MINUTE = 60.0
_ROUNDING = 1e-6  # tolerance in seconds for sums of small intervals


class Rate:
    """A number of calls per minute. All may come at once; each becomes free again after its share of the minute."""

    __slots__ = ("_due", "_interval")

    def __init__(self, per_minute: int) -> None:
        self._interval = _MINUTE / per_minute
        self._due = float("-inf")  # when all of them are free again

    def take(self, now: float) -> float:
        """Count a call and return 0; or count nothing, and return the seconds until the next free one.

        Args:
            now: In seconds of a monotonic clock.
        """
        due = max(self._due, now) + self._interval
        wait = due - now - _MINUTE
        if wait > _ROUNDING:
            return wait
        self._due = due
        return 0.0
