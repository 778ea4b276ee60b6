"""Long work on the event loop, done in pieces: between two of them everybody else has a turn."""

from __future__ import annotations

import time

import anyio.lowlevel

PIECE_SECONDS = 0.002
"""How long a piece may be; what else is served takes some turns, and waits for a piece in each."""


class Pieces:
    """One stretch of work, from when this is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def rest(self) -> None:
        """Called after each small step: let the others have their turn if this piece was long enough."""
        if time.perf_counter() - self._began > PIECE_SECONDS:
            await anyio.lowlevel.checkpoint()
            self._began = time.perf_counter()
