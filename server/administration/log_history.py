"""The latest lines of the log, for a person who looks at a server that is running.

A record about one server behind this one says so by its attribute `upstream`, which a `LoggerAdapter` gives it.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque

HISTORY_LINES = 500  # lines that are remembered, of each server behind this one and of our own
HISTORY_CHARS = 2_000  # of a longer line only the beginning is


class LogHistory:
    """Lines by what they are about. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0  # of all lines so far
        # By the alias of a server, empty for what is about none: there are as many as the settings have.
        self._lines = defaultdict[str, deque[tuple[int, str]]](lambda: deque(maxlen=HISTORY_LINES))

    def add(self, source: str, line: str) -> None:
        """Remember a line about one server behind this one, by its alias, or about none of them."""
        with self._lock:
            self.count += 1
            self._lines[source].append((self.count, line[:HISTORY_CHARS]))

    def since(self, number: int, alias: str | None) -> tuple[int, list[str]]:
        """The lines behind that number, of one server behind us or, with `None`, of all; and the number of the last."""
        with self._lock:
            sources = self._lines.values() if alias is None else [self._lines.get(alias, deque[tuple[int, str]]())]
            found = sorted(entry for lines in sources for entry in lines if entry[0] > number)
        return (found[-1][0] if found else number), [line for _, line in found]


HISTORY = LogHistory()
