"""How long a provider that takes no more requests wants to be left alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil

MAX_DIGITS = 9
"""Of a number of seconds; more is no time that anybody waits for."""


_LONGEST_IN_SECONDS = 120
_LONGEST_IN_MINUTES = 7_200


def when_to_try_again(headers: Mapping[str, str]) -> str:
    """The same for a sentence: `in 30 seconds`, or what may be the reason.

    Args:
        headers: As `seconds_to_wait` takes them.
    """
    seconds = seconds_to_wait(headers)
    if seconds is None:
        return "later; perhaps all that its plan allows is used up"
    if seconds <= _LONGEST_IN_SECONDS:
        return f"in {seconds} seconds"
    if seconds <= _LONGEST_IN_MINUTES:
        return f"in {ceil(seconds / 60)} minutes"
    return f"in {ceil(seconds / 3_600):,} hours"


def seconds_to_wait(headers: Mapping[str, str]) -> int | None:
    """What an answer says about trying again, or `None` if it says nothing that can be understood.

    Args:
        headers: By their names in lower case: `Retry-After` (RFC 9110: seconds or a date), else `X-RateLimit-Reset`
            and `X-RateLimit-Remaining` (Brave: for each window, seconds to its end and requests left in it).
    """
    after = headers.get("retry-after", "").strip()
    if after:
        seconds = _whole(after)
        return _until(after) if seconds is None else seconds
    resets = [_whole(text) for text in headers.get("x-ratelimit-reset", "").split(",")]
    left = [_whole(text) for text in headers.get("x-ratelimit-remaining", "").split(",")]
    used_up = [reset for reset, remaining in zip(resets, left, strict=False) if reset is not None and remaining == 0]
    return max(used_up, default=None)


def _until(date: str) -> int | None:
    try:
        moment = parsedate_to_datetime(date)
        seconds = ceil((moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None
    return max(0, seconds) if seconds < 10**MAX_DIGITS else None


def _whole(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS else None
