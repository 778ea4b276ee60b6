"""The store that replicas share: keys with values, counters and messages.

A server without replicas has no store, and only records in memory which keys it has used (`LocalUses`). The methods of
an unavailable store raise `StoreUnavailableError`. Callers then refuse what they cannot decide without the store.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

ABSENT = ""  # the version of a missing key


class StoreUnavailableError(ToolError):
    """The store is unavailable; `reason` has details for the operator."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            ToolErrorType.STORE_UNAVAILABLE,
            "The store that the replicas of this server share is unavailable, so it is unknown whether the user's "
            "answer was already used. Nothing was done. Call again a little later, and the user will be asked again. "
            "If this persists, tell the user that the operator must check store.url and the log.",
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Versioned:
    value: str
    version: str  # different after each write


class OneTimeUses(Protocol):
    """A record of keys that can each be used once."""

    generation: str  # the last known generation, which changes when the record is lost; empty if unknown

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        """Claim a key. Returns whether it was free and `generation` is the current one.

        When the record is lost, the generation changes, because used keys would then seem to be free.
        """
        ...


class Store(OneTimeUses, Protocol):
    """Keys, counters and messages of several processes. `seconds` is the time until expiry; `None` means never.

    Any method except `start` may raise a `StoreUnavailableError`, after a few seconds at most. Whether the method took
    effect is then unknown.
    """

    async def start(self) -> None:
        """Fetch the generation. This never raises, because an unavailable store may become available again."""
        ...

    async def get(self, key: str) -> Versioned | None: ...

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        """Write a value and return its new version; return `None` if the current version is not `if_version`.

        Without `if_version`, any version is overwritten. `ABSENT` means that the key must be missing.
        """
        ...

    async def delete(self, key: str, *, if_version: str | None = None) -> None: ...

    async def add(self, key: str, count: int, seconds: float) -> int:
        """Add to a counter that expires `seconds` after its first use, and return the sum."""
        ...

    async def publish(self, channel: str, text: str) -> None: ...

    def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        """Yield the messages from now on, including this process's own.

        `None` comes first, and again whenever messages may have been lost.
        """
        ...

    async def aclose(self) -> None: ...


def new_version() -> str:
    return secrets.token_hex(8)


class LocalUses:
    """The keys used in this process. `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation = new_version()
        self._clock = clock
        self._used: dict[str, float] = {}  # when each key is free again; the earliest use comes first

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        now = self._clock()
        while self._used and self._used[first := next(iter(self._used))] <= now:
            del self._used[first]
        is_free = generation == self.generation and self._used.get(key, now) <= now
        if is_free:
            self._used[key] = now + seconds
        return is_free


class Availability:
    """Tracks whether a store is available, and logs changes."""

    def __init__(self) -> None:
        # The reasons already logged; each of several alternating reasons is logged once
        self._logged_reasons = set[str]()

    def report_failure(self, reason: str) -> StoreUnavailableError:
        if reason not in self._logged_reasons:
            self._logged_reasons.add(reason)
            logger.warning(
                "the store (store.url) cannot be used: %s; until it can, requests that need it are refused", reason
            )
        return StoreUnavailableError(reason)

    def report_success(self) -> None:
        if self._logged_reasons:
            self._logged_reasons.clear()
            logger.warning("the store (store.url) can be used again")
