"""Work that an upstream causes by what it says, and that may have to wait for a slow reader: a limited amount of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from anyio.abc import TaskGroup

logger = logging.getLogger(__name__)

MOST = 256
"""Pieces of work of one session at once (ours)."""


class FewAtOnce:
    """Runs work in the background. What comes while there is too much of it is left out.

    Whoever asks on and on without reading the answers gets no more of them; whatever it says is read all the same.

    Args:
        alias: The upstream.
        tasks: Runs the work.
    """

    def __init__(self, alias: str, tasks: TaskGroup) -> None:
        self._alias = alias
        self._tasks = tasks
        self._count = 0

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Begin a piece of work, if there is room for it."""
        if self._count >= MOST:
            logger.debug("upstream %s says more than can be answered", self._alias)
            return
        self._count += 1
        self._tasks.start_soon(self._do, work, arguments)

    async def _do(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]) -> None:
        try:
            await work(*arguments)
        finally:
            self._count -= 1
