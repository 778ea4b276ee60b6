"""Turns of programs for which there is too little at the moment: descriptors, processes, memory.

What other programs hold comes back when they end. So a start for which there is too little is repeated then, as long as
its call has time, and refused at once only where nothing could change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TypeVar

import anyio

from tools.contract.exhaustion import ExhaustedError

AGAIN_SECONDS = 0.25
"""How often a start is repeated though no program of ours has ended: others of the same user may have."""

ALONE_SECONDS = 2.0
"""How long after the end of the last program of ours: some of what it held is given back a little later."""

StartedT = TypeVar("StartedT")


class Turns:
    """Counts the programs at work, and lets starts for which there is too little wait in the order of arrival."""

    def __init__(self) -> None:
        self._at_work = 0
        self._last_end = float("-inf")
        self._line = anyio.Lock()
        self._change = anyio.Event()

    async def take(self, start: Callable[[], Awaitable[StartedT]], deadline: float) -> StartedT:
        """Start a program as soon as there is enough for it. It is at work until `end` is called.

        Args:
            start: Starts it, or leaves nothing of it.
            deadline: The monotonic time after which it is not waited for any more.

        Raises:
            ExhaustedError: There was too little for it all the time.
        """
        try:
            return await self._attempt(start)
        except ExhaustedError as error:
            lack = error
        with anyio.move_on_after(deadline - monotonic()):
            # One at a time: those that start at once take from each other what one of them needs.
            async with self._line:
                is_alone = False
                while not is_alone:
                    if self._at_work or monotonic() < self._last_end + ALONE_SECONDS:
                        with anyio.move_on_after(AGAIN_SECONDS):
                            await self._change.wait()
                    is_alone = not self._at_work and monotonic() >= self._last_end + ALONE_SECONDS
                    with suppress(ExhaustedError):
                        return await self._attempt(start)
        raise lack

    def end(self) -> None:
        """A program is not at work any more, and has given back what it held."""
        self._last_end = monotonic()
        self._leave()

    async def _attempt(self, start: Callable[[], Awaitable[StartedT]]) -> StartedT:
        self._at_work += 1
        try:
            started = await start()
        except BaseException:
            self._leave()
            raise
        # What only a start needs is free again.
        self._note_change()
        return started

    def _leave(self) -> None:
        self._at_work -= 1
        self._note_change()

    def _note_change(self) -> None:
        self._change.set()
        self._change = anyio.Event()
