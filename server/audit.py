"""The audit log: each decision on each call as one JSON line, chained, secrets taken out.

It goes to the log, and to a file where the operator names one. The file is written by a thread of its own, so that a
slow or full disk holds no call up: what cannot be written is told in the log, and decisions stay what they are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from tools.contract.audit import Decided
from tools.contract.confirmation import Answer, Unavailable
from tools.secrets import HIDDEN, is_secret_name, redact

logger = logging.getLogger("audit")

MAX_VALUE_CHARS = 2_000
"""Of one argument; a file's content does not belong into an audit log."""

MAX_NAME_CHARS = 100
"""Of the name of an argument."""

MAX_ARGUMENTS = 20

MAX_REASON_CHARS = 4_000

QUEUED_RECORDS = 10_000
"""Records waiting for the disk; those beyond are dropped and counted."""

FLUSH_SECONDS = 2.0
"""How long the end of the process waits for the last records to be written."""

TAIL_BYTES = 1 << 19
"""Looked at for the last record. None is longer: twenty arguments of 2,000 characters, six bytes each at most."""

FIRST = "0" * 64
"""What the first record of a file is chained to."""


class AuditLog:
    """Keeps the record of decisions.

    Args:
        path: The file that records are appended to, or `None` for the log alone.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUED_RECORDS)
        self._writer: threading.Thread | None = None
        self._dropped = 0

    def note(self, decided: Decided) -> None:
        """Take a decision down."""
        if self._path is None and not logger.isEnabledFor(logging.INFO):
            return
        record = record_of(decided)
        logger.info("%s", json.dumps(record))
        if self._path is None:
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, args=(self._path,), name="audit", daemon=True)
            self._writer.start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            if not self._dropped:
                logger.warning("the disk of the audit log is too slow; decisions are missing in it")
            self._dropped += 1

    def close(self) -> None:
        """Write what is waiting, for a moment at most."""
        if self._writer is not None:
            with suppress(queue.Full):
                self._queue.put(None, timeout=FLUSH_SECONDS)
            self._writer.join(FLUSH_SECONDS)

    def _write(self, path: str) -> None:
        while (record := self._queue.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                record["dropped_before"] = dropped
            try:
                _append(path, record)
            except OSError as error:
                logger.error("the audit log cannot be written (%s); a decision is missing in it", error.errno)  # noqa: TRY400 - its text may hold paths


def record_of(decided: Decided) -> dict[str, Any]:
    """A decision as it is written, without the chain."""
    permission, answer = decided.permission, decided.answer
    record: dict[str, Any] = {
        "time": datetime.fromtimestamp(decided.time, UTC).isoformat(timespec="milliseconds"),
        "client": hashlib.sha256(decided.client.encode()).hexdigest()[:12] if decided.client else "anonymous",
        "tool": decided.tool,
        "does": redact(decided.description[:MAX_REASON_CHARS]),
        "arguments": _shown(decided.arguments),
        "verdict": permission.verdict.value,
        "reason": redact(permission.reason[:MAX_REASON_CHARS]),
    }
    match answer:
        case Answer():
            record |= {"answer": answer.decision.value, "by": answer.channel.value}
        case Unavailable():
            record |= {"answer": "client decides" if answer.client_decides else "nobody to ask"}
        case None:
            pass
    return record


def _shown(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, each cut, without what is a secret by its name or by its form."""
    shown = islice(arguments.items(), MAX_ARGUMENTS)
    return {
        redact(key[:MAX_NAME_CHARS]): HIDDEN if is_secret_name(key[:MAX_NAME_CHARS]) else _value(value)
        for key, value in shown
    }


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    shown = redact(text[: MAX_VALUE_CHARS * 2])[:MAX_VALUE_CHARS]
    return shown if len(text) <= MAX_VALUE_CHARS else f"{shown}... ({len(text)} characters)"


def _append(path: str, record: Mapping[str, Any]) -> None:
    """Append a record, chained to the one before it, whichever process wrote that."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        if sys.platform != "win32":
            import fcntl  # noqa: PLC0415 - only where there is such a lock

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        chained = {**record, "previous": _last_hash(descriptor)}
        body = json.dumps(chained)
        line = json.dumps({**chained, "hash": hashlib.sha256(body.encode()).hexdigest()}).encode() + b"\n"
        _write_whole(descriptor, line)
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, line: bytes) -> None:
    """Append a line as a whole or not at all."""
    size = os.fstat(descriptor).st_size
    try:
        while line:
            line = line[os.write(descriptor, line) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _last_hash(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    if not size:
        return FIRST
    os.lseek(descriptor, max(0, size - TAIL_BYTES), os.SEEK_SET)
    last = os.read(descriptor, TAIL_BYTES).rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return str(json.loads(last)["hash"])
    except (ValueError, KeyError, TypeError):
        return "broken"
