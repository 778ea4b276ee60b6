"""The log. A separate thread writes it to standard error, so that a slow reader delays nothing.

An unread pipe fills up after some kilobytes, and the next write blocks. Here, only the log's thread blocks; records
that do not fit into its queue are dropped and counted.
"""

from __future__ import annotations

import logging
import queue
import sys
from typing import Any

from server.administration.log_history import HISTORY
from tools.contract.display import visible, visible_line
from tools.machine.process_limits import start_thread

QUEUED_RECORDS = 1_000  # records waiting for standard error
FLUSH_SECONDS = 0.5  # time limit for writing the last records when the process exits
NOISY = ("mcp.client.stdio", "mcp.server.sse")  # these write a traceback for every malformed line from a peer
TELLING = ("httpx", "httpcore", "httpx2", "httpcore2", "hpack", "mcp.shared.jsonrpc_dispatcher")
"""Loggers that write addresses and headers, or errors that quote them. Addresses and headers can contain keys."""
TELLING_ALWAYS = ("mcp.client.streamable_http", "mcp.client.sse", "mcp.client.auth")
"""SDK loggers whose warnings and tracebacks also contain addresses and headers. Nothing is lost without them, because
the connection to the upstream reports its failures itself."""


class _QueueHandler(logging.Handler):
    def __init__(self, before: str) -> None:
        super().__init__()
        self._before = before
        self._lines: queue.Queue[str] = queue.Queue(QUEUED_RECORDS)
        self._dropped = 0
        start_thread(self._write)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        HISTORY.add(getattr(record, "upstream", ""), line)
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
            note = f"coretools-mcp: WARNING log records that were dropped: {dropped}\n" if dropped else ""
            try:
                sys.stderr.write(f"{self._before}{note}{line}\n")
                sys.stderr.flush()
            except (OSError, ValueError):
                return  # standard error no longer has a reader
            finally:
                self._lines.task_done()


class _OneLine(logging.Formatter):
    """Formats each record on one line, even if its text has line breaks; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return visible_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return visible(super().formatException(ei))


def start_log(level: str, before: str = "") -> None:
    """Write records of at least this level to standard error, each preceded by `before`, which may erase a spinner."""
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
    """Write the queued records, within a time limit."""
    for handler in logging.getLogger().handlers:
        handler.flush()
