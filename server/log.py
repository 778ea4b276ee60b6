"""The log: standard error, from a thread of its own, so that a reader who does not read holds nothing up.

A pipe that nobody empties fills after some kilobytes, and the next write waits. Here it is the log's thread that
waits; what does not fit into its queue is dropped and counted.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections import defaultdict, deque
from typing import Any

from tools.contract.display import visible, visible_line
from tools.contract.process_limits import start_thread

QUEUED_RECORDS = 1_000  # records waiting for standard error
FLUSH_SECONDS = 0.5  # how long the end of the process waits for the last records to be written
HISTORY_LINES = 500  # the latest lines of the log that are remembered, of each server behind us and of our own (ours)
HISTORY_CHARS = 2_000  # of a longer line only the beginning is
NOISY = ("mcp.client.stdio", "mcp.server.sse")  # they write a traceback for every line a peer gets wrong
TELLING = ("httpx", "httpcore", "httpx2", "httpcore2", "hpack", "mcp.shared.jsonrpc_dispatcher")
"""Loggers that write addresses and headers, or errors that hold them: keys stand in both."""
TELLING_ALWAYS = ("mcp.client.streamable_http", "mcp.client.sse", "mcp.client.auth")
"""Loggers of the SDK that do so in warnings and tracebacks too. What fails is told by the upstream's own connection."""


class LogHistory:
    """The latest lines of the log, for a person who looks at a server that is running. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0  # of all lines so far
        # By the alias of a server, empty for what is about none: there are as many as the settings have.
        self._lines = defaultdict[str, deque[tuple[int, str]]](lambda: deque(maxlen=HISTORY_LINES))

    def add(self, source: str, line: str) -> None:
        """Remember a line about one server behind us, by its alias, or about none of them."""
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
_ABOUT = "upstream %s"  # how our own texts name the server that a record is about


def _source_of(record: logging.LogRecord) -> str:
    text, arguments = str(record.msg), record.args
    at = text.find(_ABOUT)
    if at < 0 or not isinstance(arguments, tuple):
        return ""
    place = text.count("%", 0, at)
    return str(arguments[place]) if place < len(arguments) else ""


class _QueueHandler(logging.Handler):
    def __init__(self, before: str) -> None:
        super().__init__()
        self._before = before
        self._lines: queue.Queue[str] = queue.Queue(QUEUED_RECORDS)
        self._dropped = 0
        start_thread(self._write)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        HISTORY.add(_source_of(record), line)
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def flush(self) -> None:
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_SECONDS)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            dropped, self._dropped = self._dropped, 0
            note = f"coretools-mcp: WARNING {dropped} records of the log were dropped\n" if dropped else ""
            try:
                sys.stderr.write(f"{self._before}{note}{line}\n")
                sys.stderr.flush()
            except (OSError, ValueError):
                return  # nobody reads it any more
            finally:
                self._lines.task_done()


class _OneLine(logging.Formatter):
    """Shows each record on one line, whatever names and texts of others stand in it; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return visible_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return visible(super().formatException(ei))


def start_log(level: str, before: str = "") -> None:
    """Write records of at least this level to standard error, each after what erases a line there, if need be."""
    handler = _QueueHandler(before)
    handler.setFormatter(_OneLine("coretools-mcp: %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in TELLING:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in TELLING_ALWAYS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if level != "debug":
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def flush_log() -> None:
    """Write what is waiting, for a moment at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()
