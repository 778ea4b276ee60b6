"""How much of what an upstream says in passing reaches a client: a chatty server fills no conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from server.json_rpc import Json

MOST_PER_SECOND = 100
"""Log messages, and other notifications that belong to no request, of one session that are passed on (ours)."""

SECOND = 1.0


class Flood:
    """Counts what an upstream says, and tells once a second how much of it was left out.

    Args:
        alias: The upstream.
        tell: Passes a log message on to whoever hears the upstream.
    """

    def __init__(self, alias: str, tell: Callable[[Json], None]) -> None:
        self.left_out = 0
        """What nobody has been told of yet."""
        self._alias = alias
        self._tell = tell
        self._began = float("-inf")
        self._count = 0

    def admits(self) -> bool:
        """Whether one message more is passed on."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._began + SECOND:
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= MOST_PER_SECOND:
            return True
        if not self.left_out:
            loop.call_at(self._began + SECOND, self._tell_late)
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
