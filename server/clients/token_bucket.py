"""A token bucket, which limits the rate of calls."""

from __future__ import annotations

_MINUTE = 60.0
_ROUNDING = 1e-6  # tolerance in seconds for rounding errors when intervals are added


class TokenBucket:
    """Allows `per_minute` calls per minute, possibly all at once; then one more every 60 / `per_minute` seconds."""

    __slots__ = ("_due", "_interval")

    def __init__(self, per_minute: int) -> None:
        self._interval = _MINUTE / per_minute
        self._due = float("-inf")  # the time at which all `per_minute` calls are available again

    def take(self, now: float) -> float:
        """Count a call at the monotonic time `now` and return 0, or the seconds until the next call is allowed."""
        due = max(self._due, now) + self._interval
        wait = due - now - _MINUTE
        if wait > _ROUNDING:
            return wait
        self._due = due
        return 0.0
