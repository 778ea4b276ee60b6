"""Progress of a call, told to its client in the order in which it was made, and never after the answer."""

from __future__ import annotations

import anyio
from mcp.server.session import ServerSession

TELL_SECONDS = 5.0
"""How long the answer waits for a client that does not take in the progress before it."""


class CallProgress:
    """Tells the client of one call how far it is.

    What a server behind us reports runs beside the call, so that the last of it may still be on its way when the
    result is there. Over HTTP nothing reaches the client once its request is answered.

    Args:
        session: Reaches the client during the call.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._on_its_way = 0
        self._arrived = anyio.Event()

    async def __call__(self, done: float, total: float | None, message: str) -> None:
        """Tell it."""
        self._on_its_way += 1
        try:
            await self._session.report_progress(done, total, message)
        finally:
            self._on_its_way -= 1
            if not self._on_its_way:
                self._arrived.set()
                self._arrived = anyio.Event()

    async def settle(self) -> None:
        """Wait until all is told that was begun."""
        with anyio.move_on_after(TELL_SECONDS):
            while self._on_its_way:
                await self._arrived.wait()
