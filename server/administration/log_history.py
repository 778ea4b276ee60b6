"""The latest log lines, for people who inspect a running server.

A record about one upstream has the upstream's alias in the `upstream` attribute, which a `LoggerAdapter` sets.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque

HISTORY_LINES = 500  # lines kept per upstream, and for the server itself
HISTORY_CHARS = 2_000  # longer lines are truncated


class LogHistory:
    """The latest log lines, grouped by the upstream that they are about. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0  # number of lines so far
        # The key is the alias of the upstream that the lines are about, or empty for lines about no upstream. The
        # settings limit the number of upstreams, and therefore of keys.
        self._lines = defaultdict[str, deque[tuple[int, str]]](lambda: deque(maxlen=HISTORY_LINES))

    def add(self, source: str, line: str) -> None:
        """Add a line about the upstream with the alias `source`; empty if the line is about no upstream."""
        with self._lock:
            self.count += 1
            self._lines[source].append((self.count, line[:HISTORY_CHARS]))

    def since(self, number: int, alias: str | None) -> tuple[int, list[str]]:
        """Return the number of the last line and the lines after `number`, only those about `alias` if it is given."""
        with self._lock:
            sources = self._lines.values() if alias is None else [self._lines.get(alias, deque[tuple[int, str]]())]
            found = sorted(entry for lines in sources for entry in lines if entry[0] > number)
        return (found[-1][0] if found else number), [line for _, line in found]


HISTORY = LogHistory()
