"""Messages of an upstream that have come in, for the session that takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from server.json_rpc import Message
from server.transports.lines import INBOX_MESSAGES


class Inbox:
    """What has come and is not taken yet.

    Args:
        on_room: Called when there is room again for what comes.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._messages: deque[Message] = deque()
        self._listener: Callable[[Message], None] | None = None
        self._closed = asyncio.Event()
        self._on_room = on_room

    @property
    def is_full(self) -> bool:
        return len(self._messages) >= INBOX_MESSAGES

    def put(self, message: Message) -> None:
        """Take in a message; whoever listens has it at once."""
        if self._listener is None:
            self._messages.append(message)
            return
        self._listener(message)
        self._on_room()

    async def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand each message over as it comes, without a turn of the event loop between; returns at the end.

        Args:
            listener: Takes a message, and is quick.
        """
        while self._messages:
            listener(self._messages.popleft())
        self._listener = listener
        self._on_room()
        try:
            await self._closed.wait()
        finally:
            self._listener = None

    def close(self) -> None:
        """End of the stream, after what is waiting."""
        self._closed.set()
