"""A limit on the messages of an upstream per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class RateWindow:
    """Admits up to `limit` messages per second, and passes the number of further messages to `report`.

    `report` is called when the next message arrives after that second, or by `close`.
    """

    limit: int
    report: Callable[[int], None]
    _began: float = float("-inf")
    _count: int = 0

    @property
    def is_full(self) -> bool:
        return self._count >= self.limit and time.monotonic() < self._began + 1

    def admits(self) -> bool:
        if time.monotonic() >= self._began + 1:
            self.close()
            self._began = time.monotonic()
        self._count += 1
        return self._count <= self.limit

    def close(self) -> None:
        count, self._count = self._count, 0
        if count > self.limit:
            self.report(count - self.limit)
