"""Clients that listen for changes (2026-07-28): what reaches all of them, and what reaches one stream alone."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio.lowlevel
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ServerEvent

_STREAM: ContextVar[object | None] = ContextVar("stream", default=None)


class ListenBus(InMemorySubscriptionBus):
    """The SDK's bus tells every stream that listens to a URI; of some changes only one client may hear."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[int, Callable[[ServerEvent], None]] = {}

    @contextmanager
    def stream(self, whose: object) -> Generator[None]:
        """What subscribes meanwhile in this task is the stream of somebody.

        Args:
            whose: Stands for it, by its identity.
        """
        token = _STREAM.set(whose)
        try:
            yield
        finally:
            _STREAM.reset(token)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Tell a stream from now on."""
        end, whose = super().subscribe(listener), id(_STREAM.get())
        self._streams[whose] = listener

        def unsubscribe() -> None:
            end()
            self._streams.pop(whose, None)

        return unsubscribe

    async def publish_to(self, whose: object, event: ServerEvent) -> None:
        """Tell one stream, if it is still there and wants to hear of that."""
        if (listener := self._streams.get(id(whose))) is not None:
            listener(event)
            # As in `publish`: what was told can be sent before more is.
            await anyio.lowlevel.checkpoint()
