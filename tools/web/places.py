"""Who may open something now: so many in all, and so many of one client, so that none of them holds the web."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

MAX_AT_ONCE = 16
"""Openings at the same time, so that their bodies together stay below 200 MB; others wait for their turn."""

MAX_OF_ONE = 4
"""Openings of one client at the same time."""


@dataclass(slots=True)
class _Share:
    """One client's places, and how many calls have or await one."""

    places: anyio.Semaphore
    calls: int = 0


class Places:
    """Hands out places in the order of arrival.

    Args:
        at_once: Places in all.
        of_one: Places of one client.
    """

    def __init__(self, at_once: int = MAX_AT_ONCE, of_one: int = MAX_OF_ONE) -> None:
        self._all = anyio.Semaphore(at_once)
        self._of_one = of_one
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def place(self, client: str) -> AsyncGenerator[None]:
        """Wait for a place, and have it until the end of the `with`.

        Args:
            client: Whose call it is. Those who cannot be told from others share the places of one client.
        """
        share = self._shares.setdefault(client, _Share(anyio.Semaphore(self._of_one)))
        share.calls += 1
        try:
            # Whoever has no place of its own left stands in nobody else's way.
            async with share.places, self._all:
                yield
        finally:
            share.calls -= 1
            if not share.calls:
                del self._shares[client]
