"""Messages of a stdio upstream that have come in, for the session that takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage

from server.transports.lines import INBOX_MESSAGES

Item = SessionMessage | Exception


class Inbox:
    """What has come and is not taken yet: the session's read stream.

    Args:
        on_room: Called when there is room again for what comes.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._items: deque[Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[Item], None] | None = None
        self._closed = asyncio.Event()
        self._is_closed = False
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        return len(self._items) >= INBOX_MESSAGES

    def put(self, item: Item) -> None:
        """Take in a message; whoever listens has it at once."""
        if self._listener is not None:
            self._listener(item)
            self._on_room()
            return
        self._items.append(item)
        self._wake()

    async def listen(self, listener: Callable[[Item], None]) -> None:
        """Hand each message over as it comes, without a turn of the event loop between; returns at the end.

        Args:
            listener: Takes a message, and is quick.
        """
        while self._items:
            listener(self._items.popleft())
        self._listener = listener
        self._on_room()
        try:
            await self._closed.wait()
        finally:
            self._listener = None

    def close(self) -> None:
        """End of the stream, after what is waiting."""
        self._is_closed = True
        self._closed.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Item:
        while not self._items:
            if self._is_closed:
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        item = self._items.popleft()
        if not self._items:
            self._on_room()
        return item

    async def aclose(self) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()
