"""Turns of the event loop: who has much to do lets everybody else go on in between."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

import anyio.lowlevel

TURN_SECONDS = 0.002
"""How long may be worked in a row: what else is served takes some turns, and waits as long in each."""

Item = TypeVar("Item")


class Turn:
    """Work in a row, which began with this."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def give(self) -> None:
        """When it has taken long enough, what else is served has its turn."""
        if time.perf_counter() - self._began > TURN_SECONDS:
            await anyio.lowlevel.checkpoint()
            self._began = time.perf_counter()


async def in_turns(items: Iterable[Item]) -> AsyncGenerator[Item]:
    """The items one after another, in turns with what else is served."""
    turn = Turn()
    for item in items:
        yield item
        await turn.give()
