"""The interface of the store that replicas share: keys with values, counters and messages.

If the store is unavailable, it raises `StoreUnavailableError`, and callers refuse the request instead of guessing.
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
MAX_MISSED = 1_000  # messages queued for a slow subscriber


class StoreUnavailableError(ToolError):
    """The store is unavailable; `why` has details for the operator."""

    def __init__(self, why: str) -> None:
        super().__init__(
            ToolErrorType.STORE_UNAVAILABLE,
            "The store that the replicas of this server share is unavailable, so it is unknown whether the user's "
            "answer was already used. Nothing was done. Call again a little later, and the user will be asked again. "
            "If this persists, tell the user that the operator must check store.url and the log.",
        )
        self.why = why


@dataclass(frozen=True, slots=True)
class Versioned:
    value: str
    version: str  # different after each write


class Store(Protocol):
    """Keys, counters and messages. `seconds` is the time until expiry; `None` means never.

    Every method may raise `StoreUnavailableError`, after at most about a second. In that case, it is unknown whether
    the operation took effect.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes can use the store too."""
        ...

    @property
    def generation(self) -> str:
        """The last known generation, which changes when the store loses its content; empty if unknown."""
        ...

    async def start(self) -> None:
        """Fetch the generation. This never raises, because an unavailable store may become available again."""
        ...

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        """Claim a key. Returns whether the key was free and the generation is unchanged.

        The generation is compared because a key that the store has lost could otherwise be claimed twice.
        """
        ...

    async def get(self, key: str) -> Versioned | None: ...

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        """Write a value; if a version is given, only over that version (`ABSENT` for a missing key).

        Returns:
            The new version; `None` if the key's version differs.
        """
        ...

    async def delete(self, key: str, *, if_version: str | None = None) -> None: ...

    async def add(self, key: str, count: int, seconds: float) -> int:
        """Add to a counter that expires `seconds` after its first use, and return the sum."""
        ...

    async def publish(self, channel: str, text: str) -> None: ...

    def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        """Receive messages published from now on, including this process's own.

        `None` is yielded first, and whenever messages may have been lost.
        """
        ...

    async def aclose(self) -> None: ...


def new_version() -> str:
    return secrets.token_hex(8)


class Availability:
    """Tracks whether a store is available, and logs changes."""

    def __init__(self) -> None:
        self._told: set[str] = set()  # reasons already logged; each of several alternating reasons is logged once

    def lost(self, why: str) -> StoreUnavailableError:
        if why not in self._told:
            self._told.add(why)
            logger.warning(
                "the store (store.url) cannot be used: %s; until it can, requests that need it are refused", why
            )
        return StoreUnavailableError(why)

    def found(self) -> None:
        if self._told:
            self._told.clear()
            logger.warning("the store (store.url) can be used again")
