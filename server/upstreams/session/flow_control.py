"""How much one upstream may cause: work in the background, and messages that are passed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from anyio.abc import TaskGroup

from server.json_rpc import Json

logger = logging.getLogger(__name__)

MOST_PER_SECOND = 100
"""Log messages, and other notifications that belong to no request, of one session that are passed on (ours)."""

MOST_TASKS = 256  # tasks of one session at once (ours)


class MessageLimit:
    """Counts what an upstream says, and tells once a second how much of it was left out."""

    def __init__(self, alias: str, tell: Callable[[Json], None]) -> None:
        self.left_out = 0  # what nobody has been told of yet
        self._alias = alias
        self._tell = tell
        self._began = float("-inf")
        self._count = 0

    def admits(self) -> bool:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._began + 1:
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= MOST_PER_SECOND:
            return True
        if not self.left_out:
            loop.call_at(self._began + 1, self._tell_late)
        self.left_out += 1
        return False

    def account(self) -> Json:
        """A log message that says how many were left out since the last one."""
        left_out, self.left_out = self.left_out, 0
        said = (
            f"The server {self._alias} sent more than {MOST_PER_SECOND} messages in a second; {left_out} are left out."
        )
        return {"level": "warning", "logger": "coretools-mcp", "data": said}

    def _tell_late(self) -> None:
        if self.left_out:
            self._tell(self.account())


class BoundedTasks:
    """Runs tasks in the background. What comes while there are too many is left out.

    Whoever asks on and on without reading the answers gets no more of them; whatever it says is read all the same.
    """

    def __init__(self, alias: str, tasks: TaskGroup) -> None:
        self._alias = alias
        self._tasks = tasks
        self._count = 0

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        if self._count >= MOST_TASKS:
            logger.debug("upstream %s says more than can be answered", self._alias)
            return

        async def run() -> None:
            try:
                await work(*arguments)
            finally:
                self._count -= 1

        self._count += 1
        self._tasks.start_soon(run)
