"""The log. A separate thread writes it to standard error, so a slow reader delays nothing.

An unread pipe eventually fills up, and the next write blocks. Here, only the log's thread blocks. Records that do not
fit into its queue are dropped and counted.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tools.contract.display import visible, visible_line
from tools.machine.process_limits import start_thread

QUEUED_RECORDS = 1_000  # maximum number of records waiting to be written
FLUSH_SECONDS = 0.5  # time limit for writing the last records when the process exits or the log is held
HISTORY_LINES = 500  # maximum number of lines kept per upstream, and for the server itself
HISTORY_CHARS = 2_000  # longer lines are truncated
NOISY = ("mcp.client.stdio", "mcp.server.sse")  # these write a traceback for every malformed line from a peer
REVEALING = ("httpx", "httpcore", "httpx2", "httpcore2", "hpack", "mcp.shared.jsonrpc_dispatcher")
"""Loggers that write addresses and headers, or errors that quote them. Addresses and headers can contain keys."""
ALWAYS_REVEALING = ("mcp.client.streamable_http", "mcp.client.sse", "mcp.client.auth")
"""SDK loggers whose warnings and tracebacks also contain addresses and headers. Nothing is lost without them, because
the connection to the upstream reports its failures itself."""


class LogHistory:
    """The latest log lines, for people who inspect a running server. Thread-safe.

    A record about one upstream has the upstream's alias in the `upstream` attribute, which a `LoggerAdapter` sets.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0  # number of lines so far
        # The key is the alias of the upstream that the lines are about, or empty for lines about no upstream. The
        # settings limit the number of upstreams, and therefore of keys.
        self._lines = defaultdict[str, deque[tuple[int, str]]](lambda: deque(maxlen=HISTORY_LINES))

    def add(self, source: str, line: str) -> None:
        """Add a line about the upstream with the alias `source`, or about no upstream if `source` is empty."""
        if len(line) > HISTORY_CHARS:
            # Secrets are removed when the history is shown, but a truncated secret might not be recognised then.
            from tools.text.secrets import redact  # noqa: PLC0415 - needed only for long lines

            line = redact(line[: 2 * HISTORY_CHARS])[:HISTORY_CHARS]
        with self._lock:
            self.count += 1
            self._lines[source].append((self.count, line))

    def since(self, number: int, alias: str | None) -> tuple[int, list[str]]:
        """Return the number of the last line, and the lines after line `number`: those about one upstream, or all."""
        with self._lock:
            sources = self._lines.values() if alias is None else [self._lines.get(alias, deque[tuple[int, str]]())]
            entries = sorted(entry for lines in sources for entry in lines if entry[0] > number)
        return (entries[-1][0] if entries else number), [line for _, line in entries]


HISTORY = LogHistory()
_MAY_WRITE = threading.Event()  # cleared while the log is held
_MAY_WRITE.set()
_WRITING = threading.Lock()  # locked while a record is written, and while the log is held


class _QueueHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
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
            _MAY_WRITE.wait()  # the lock alone is not enough, because this thread would take it again at once
            dropped_count, self._dropped = self._dropped, 0
            note = f"coretools-mcp: WARNING log records that were dropped: {dropped_count}\n" if dropped_count else ""
            try:
                with _WRITING:
                    sys.stderr.write(f"{note}{line}\n")
                    sys.stderr.flush()
            except (OSError, ValueError):
                pass  # standard error has no reader or no space now, but the next record may succeed
            finally:
                self._lines.task_done()


class _OneLine(logging.Formatter):
    """Formats each record on one line, even if its text has line breaks; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return visible_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return visible(super().formatException(ei))


def start_log(level: str) -> None:
    """Write records of at least this level to standard error."""
    handler = _QueueHandler()
    handler.setFormatter(_OneLine("coretools-mcp: %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in REVEALING:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ALWAYS_REVEALING:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if level != "debug":
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def held_log() -> Generator[None]:
    """Hold back all records until this context exits, for example while a person is asked a question."""
    _MAY_WRITE.clear()
    # Wait until the current record is written, but only briefly, because the reader of standard error may be stuck.
    is_held = _WRITING.acquire(timeout=FLUSH_SECONDS)
    try:
        yield
    finally:
        if is_held:
            _WRITING.release()
        _MAY_WRITE.set()


def flush_log() -> None:
    """Wait until the queued records have been written, but not longer than `FLUSH_SECONDS`."""
    for handler in logging.getLogger().handlers:
        handler.flush()
