"""What the replicas of one server share: keys with values, counters and messages, wherever the operator keeps them.

A store that cannot be used raises `StoreUnavailableError`, and its callers refuse: nothing is guessed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

ABSENT = ""  # the version of a key that is not there
MOST_MISSED = 1_000  # messages that wait for a subscriber who does not read


class StoreUnavailableError(ToolError):
    """The store cannot be used now; `why` tells the operator more."""

    def __init__(self, why: str) -> None:
        super().__init__(
            ToolErrorType.STORE_UNAVAILABLE,
            "The store that the replicas of this server share cannot be used now, so it is not known whether the "
            "user's answer has counted before. Nothing was done. Call again a little later: the user is then asked "
            "again. If it stays so, tell the user that the operator has to look at store.url and the log.",
        )
        self.why = why


@dataclass(frozen=True, slots=True)
class Versioned:
    value: str
    version: str  # another one each time it is written


class Store(Protocol):
    """Keys, counters and messages. Whatever takes `seconds` is gone after them, with `None` never.

    Any of it may raise `StoreUnavailableError`, after about a second at most. Whether it was done is not known then.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes can use it too."""
        ...

    @property
    def generation(self) -> str:
        """What differs once the store has forgotten everything, as it was known last; empty where it is not known."""
        ...

    async def start(self) -> None:
        """Learn the generation. Raises nothing: a store that is away now may come back."""
        ...

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        """Take a key that nobody has taken since; not where the generation is another one by now.

        What a store has forgotten would else count a second time.
        """
        ...

    async def get(self, key: str) -> Versioned | None: ...

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        """Write a value; only over this version, if one is given (`ABSENT` for a key that is not there).

        Returns:
            The new version, `None` where another one is there.
        """
        ...

    async def delete(self, key: str, *, if_version: str | None = None) -> None: ...

    async def add(self, key: str, count: int, seconds: float) -> int:
        """Add to a counter, which is gone so many seconds after its first one, and return the sum."""
        ...

    async def publish(self, channel: str, text: str) -> None: ...

    def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        """What is published from now on, one's own included; `None` first, and where some may have been missed."""
        ...

    async def aclose(self) -> None: ...


def new_version() -> str:
    return secrets.token_hex(8)


class Availability:
    """Whether a store can be used; the log is told when that changes."""

    def __init__(self) -> None:
        self._told: set[str] = set()  # why it cannot be used; several reasons may take turns

    def lost(self, why: str) -> StoreUnavailableError:
        if why not in self._told:
            self._told.add(why)
            logger.warning("the store (store.url) cannot be used: %s; what needs it is refused until it can", why)
        return StoreUnavailableError(why)

    def found(self) -> None:
        if self._told:
            self._told.clear()
            logger.warning("the store (store.url) can be used again")
