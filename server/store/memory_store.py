"""The in-memory store of a server without replicas."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from server.store.shared_store import ABSENT, MAX_MISSED, Versioned, new_version

LEAST_SWEPT = 256  # expired keys are removed only if there are at least this many keys


@dataclass(slots=True)
class _MemoryRow:
    held: Versioned
    expires: float  # when the row expires, by the store's clock


class MemoryStore:
    """A store in memory. `clock` returns seconds and never goes back."""

    is_shared = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation = new_version()
        self._clock = clock
        self._rows: dict[str, _MemoryRow] = {}
        self._next_sweep = LEAST_SWEPT
        self._subscribers: dict[str, set[MemoryObjectSendStream[str]]] = {}

    async def start(self) -> None:
        pass

    async def take_once(self, key: str, seconds: float, generation: str) -> bool:
        return generation == self.generation and await self.put(key, "", seconds, if_version=ABSENT) is not None

    async def get(self, key: str) -> Versioned | None:
        row = self._rows.get(key)
        return row.held if row is not None and row.expires > self._clock() else None

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        if not await self._is_at(key, if_version):
            return None
        now = self._clock()
        if len(self._rows) >= self._next_sweep:
            self._rows = {name: row for name, row in self._rows.items() if row.expires > now}
            self._next_sweep = max(LEAST_SWEPT, 2 * len(self._rows))
        version = new_version()
        self._rows[key] = _MemoryRow(Versioned(value, version), float("inf") if seconds is None else now + seconds)
        return version

    async def delete(self, key: str, *, if_version: str | None = None) -> None:
        if await self._is_at(key, if_version):
            self._rows.pop(key, None)

    async def add(self, key: str, count: int, seconds: float) -> int:
        held = await self.get(key)
        total = count if held is None else int(held.value) + count
        left = seconds if held is None else self._rows[key].expires - self._clock()
        await self.put(key, str(total), left)
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
            send, receive = anyio.create_memory_object_stream[str](MAX_MISSED)
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
        held = await self.get(key)
        return version == (ABSENT if held is None else held.version)
