"""What the replicas of one server share: keys with values, counters and messages, wherever the operator stores them.

If the store cannot be used, `StoreUnavailableError` is raised and the callers refuse: nothing is guessed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

ABSENT = ""  # the version of a missing key
MOST_MISSED = 1_000  # messages that wait for a slow subscriber


class StoreUnavailableError(ToolError):
    """The store cannot be used now; `why` has more for the operator."""

    def __init__(self, why: str) -> None:
        super().__init__(
            ToolErrorType.STORE_UNAVAILABLE,
            "The store that the replicas of this server share is unavailable, so it is unknown whether the user's "
            "answer has counted before. Nothing was done. Call again a little later: the user is then asked again. "
            "If this persists, tell the user that the operator must check store.url and the log.",
        )
        self.why = why


@dataclass(frozen=True, slots=True)
class Versioned:
    value: str
    version: str  # different at each write


class Store(Protocol):
    """Keys, counters and messages. Whatever is given `seconds` expires after them; `None` never expires.

    Every method may raise `StoreUnavailableError`, after about a second at most. Then it is unknown whether it took
    effect.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes can use it too."""
        ...

    @property
    def generation(self) -> str:
        """A name that changes when the store has lost its content, as last seen; empty if unknown."""
        ...

    async def start(self) -> None:
        """Learn the generation. Raises nothing: a store that is unavailable now may come back."""
        ...

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        """Take a key once. Returns whether it was free, and false if the generation has changed since.

        Otherwise a key that the store has lost would count a second time.
        """
        ...

    async def get(self, key: str) -> Versioned | None: ...

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        """Write a value, only over this version if one is given (`ABSENT` for a missing key).

        Returns:
            The new version; `None` if the key has another version.
        """
        ...

    async def delete(self, key: str, *, if_version: str | None = None) -> None: ...

    async def add(self, key: str, count: int, seconds: float) -> int:
        """Add to a counter, which expires that many seconds after its first use, and return the sum."""
        ...

    async def publish(self, channel: str, text: str) -> None: ...

    def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        """Receive messages published from now on, including one's own.

        `None` comes first, and after messages that may be lost.
        """
        ...

    async def aclose(self) -> None: ...


def new_version() -> str:
    return secrets.token_hex(8)


class Availability:
    """Whether a store can be used; changes of this are logged."""

    def __init__(self) -> None:
        self._told: set[str] = set()  # why it cannot be used; alternating reasons are logged once each

    def lost(self, why: str) -> StoreUnavailableError:
        if why not in self._told:
            self._told.add(why)
            logger.warning(
                "the store (store.url) cannot be used: %s; requests that need it are refused until it can", why
            )
        return StoreUnavailableError(why)

    def found(self) -> None:
        if self._told:
            self._told.clear()
            logger.warning("the store (store.url) can be used again")
