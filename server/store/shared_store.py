"""The store that replicas share: keys with values, counters and messages. A server without replicas keeps it in memory.

If the store is unavailable, it raises `StoreUnavailableError`, and callers refuse the request instead of guessing.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from tools.contract.tool_errors import ToolError, ToolErrorType

logger = logging.getLogger(__name__)

ABSENT = ""  # the version of a missing key
MAX_QUEUED = 1_000  # maximum number of messages queued for a slow subscriber
MIN_SWEEP_KEYS = 256  # the store in memory removes expired keys only if it has at least this many keys


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


class Store(Protocol):
    """Keys, counters and messages. `seconds` is the time until expiry; `None` means never.

    Any method may raise a `StoreUnavailableError`, after a few seconds at most. Whether it took effect is then unknown.
    """

    is_shared: bool  # whether other processes can use the store too
    generation: str  # the last known generation, which changes when the store loses its content; empty if unknown

    async def start(self) -> None:
        """Fetch the generation. This never raises, because an unavailable store may become available again."""
        ...

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        """Claim a key. Returns whether it was free in this generation: a store that loses its keys would free them."""
        ...

    async def get(self, key: str) -> Versioned | None: ...

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        """Write a value; with `if_version`, only over that version (`ABSENT`: none). Returns the new one, or `None`."""
        ...

    async def delete(self, key: str, *, if_version: str | None = None) -> None: ...

    async def add(self, key: str, count: int, seconds: float) -> int:
        """Add to a counter that expires `seconds` after its first use, and return the sum."""
        ...

    async def publish(self, channel: str, text: str) -> None: ...

    def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        """Receive messages from now on, including one's own; and `None` first, and whenever messages may be lost."""
        ...

    async def aclose(self) -> None: ...


def new_version() -> str:
    return secrets.token_hex(8)


class MemoryStore:
    """A store in memory. `clock` returns seconds and never goes back."""

    is_shared = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation = new_version()
        self._clock = clock
        self._rows: dict[str, tuple[Versioned, float]] = {}  # the values, and when they expire
        self._next_sweep = MIN_SWEEP_KEYS
        self._subscribers: dict[str, set[MemoryObjectSendStream[str]]] = {}

    async def start(self) -> None:
        pass

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        return generation == self.generation and await self.put(key, "", seconds, if_version=ABSENT) is not None

    async def get(self, key: str) -> Versioned | None:
        entry, expires = self._rows.get(key, (None, 0.0))
        return entry if entry is not None and expires > self._clock() else None

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        if not await self._is_at(key, if_version):
            return None
        now = self._clock()
        if len(self._rows) >= self._next_sweep:
            self._rows = {name: row for name, row in self._rows.items() if row[1] > now}
            self._next_sweep = max(MIN_SWEEP_KEYS, 2 * len(self._rows))
        version = new_version()
        self._rows[key] = Versioned(value, version), float("inf") if seconds is None else now + seconds
        return version

    async def delete(self, key: str, *, if_version: str | None = None) -> None:
        if await self._is_at(key, if_version):
            self._rows.pop(key, None)

    async def add(self, key: str, count: int, seconds: float) -> int:
        entry = await self.get(key)
        total = count if entry is None else int(entry.value) + count
        seconds_left = seconds if entry is None else self._rows[key][1] - self._clock()
        await self.put(key, str(total), seconds_left)
        return total

    async def publish(self, channel: str, text: str) -> None:
        for stream in tuple(self._subscribers.get(channel, ())):
            try:
                stream.send_nowait(text)
            except anyio.WouldBlock:
                self._subscribers[channel].discard(stream)
                stream.close()  # tells the subscriber that it missed messages

    async def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        while True:
            send, receive = anyio.create_memory_object_stream[str](MAX_QUEUED)
            subscribers = self._subscribers.setdefault(channel, set())
            subscribers.add(send)
            try:
                with send, receive:
                    yield None
                    async for text in receive:
                        yield text
            finally:
                subscribers.discard(send)

    async def aclose(self) -> None:
        self._rows.clear()

    async def _is_at(self, key: str, version: str | None) -> bool:
        if version is None:
            return True
        entry = await self.get(key)
        return version == (ABSENT if entry is None else entry.version)


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
