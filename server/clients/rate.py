"""How often something may happen."""

from __future__ import annotations

_MINUTE = 60.0
_ROUNDING = 1e-6  # seconds that sums of small intervals may be off


class Rate:
    """So many calls in a minute: all of them at once, if need be, and each comes back after its share of the minute."""

    __slots__ = ("_due", "_interval")

    def __init__(self, per_minute: int) -> None:
        self._interval = _MINUTE / per_minute
        self._due = float("-inf")  # when all would have come back

    def take(self, now: float) -> float:
        """Count a call that is made now, and return 0; or count none, and return in how many seconds there is one.

        Args:
            now: In seconds of a clock that only goes on.
        """
        due = max(self._due, now) + self._interval
        wait = due - now - _MINUTE
        if wait > _ROUNDING:
            return wait
        self._due = due
        return 0.0
