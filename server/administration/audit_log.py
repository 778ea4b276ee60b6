"""The audit log: one line of JSON for each decision about a call and each answer to a question.

Likely secrets are removed. The lines go to the log, and to a file if the operator names one. A separate thread writes
the file, so a slow or full disk delays no call. A failed write is logged and does not change a decision.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

from server.clients.client_request import principal_in
from server.settings.settings_files import real_path
from tools.call.consent import AuditEntry
from tools.contract.confirmation import Answer, Unavailable
from tools.contract.display import visible_line
from tools.contract.tool_errors import ExhaustedError
from tools.machine.process_limits import start_thread
from tools.text.secrets import HIDDEN, argument_names, redact, without_secrets

logger = logging.getLogger("audit")

MAX_VALUE_CHARS = 2_000  # maximum length of an argument or rule; an audit log should not contain whole files
MAX_NAME_CHARS = 100  # maximum length of an argument's name
MAX_ARGUMENTS = 20
MAX_REASON_CHARS = 4_000
QUEUED_RECORDS = 10_000  # maximum number of records waiting to be written; further ones are dropped and counted
RECENT_RECORDS = 200  # number of records kept for the dashboard
FLUSH_SECONDS = 2.0  # time limit for writing the last records when the process exits


class AuditLog:
    """Records decisions in the log and in the file `path`."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self.recent = deque[Callable[[], dict[str, Any]]](maxlen=RECENT_RECORDS)
        """Functions that return the latest records as JSON, newest last."""
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUED_RECORDS)
        self._has_writer = False
        self._is_written = threading.Event()
        self._dropped = 0

    def warn_of_roots(self, roots: Iterable[str]) -> None:
        if self.path is None:
            return
        path = real_path(self.path)
        for root in roots:
            if path.startswith(os.path.join(real_path(root), "")):
                logger.warning(
                    "log.audit is in the workspace folder %s, where a call can change or remove it if a person agrees; "
                    "choose a file outside all workspace folders",
                    root,
                )
                return

    def note(self, entry: AuditEntry) -> None:
        recent_entry = replace(entry, arguments={}, description=entry.description[: 2 * MAX_REASON_CHARS])
        self.recent.append(partial(record_of, recent_entry))
        if self.path is None and not logger.isEnabledFor(logging.INFO):
            return
        record = record_of(entry)
        logger.info("%s", json.dumps(record))
        if self.path is None:
            return
        if not self._has_writer:
            try:
                start_thread(partial(self._write, self.path))
                self._has_writer = True
            except ExhaustedError:
                message = "no thread could be started for the audit log; the server will try again at the next decision"
                logger.warning(message)
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            if not self._dropped:
                logger.warning("the disk is too slow for the audit log; some decisions are missing from the log")
            self._dropped += 1

    def close(self) -> None:
        if self._has_writer:
            with suppress(queue.Full):
                self._queue.put(None, timeout=FLUSH_SECONDS)
            if not self._is_written.wait(FLUSH_SECONDS) or self._dropped:
                missing = self._queue.qsize() + self._dropped
                logger.warning("the audit log could not be completed; decisions missing from it: %d", missing)

    def _write(self, path: str) -> None:
        try:
            while (record := self._queue.get()) is not None:
                dropped_count, self._dropped = self._dropped, 0
                if dropped_count:
                    record["dropped_before"] = dropped_count
                try:
                    _append(path, json.dumps(record).encode() + b"\n")
                except (OSError, MemoryError) as error:
                    self._dropped += dropped_count + 1  # the next line in the file says how many are missing before it
                    number = getattr(error, "errno", errno.ENOMEM)
                    logger.error("the audit log could not be written (errno %s); one decision is missing", number)  # noqa: TRY400 - a traceback may contain paths
        finally:
            self._is_written.set()


def _append(path: str, line: bytes) -> None:
    """Append a line. If only a part of it fits on the disk, remove that part, unless another line already follows.

    With O_APPEND, the bytes of a single write are never mixed with those of other writes. No lock is used: a command
    that can read the file could hold the lock forever. The file is not kept open, so it can be rotated by renaming it.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        byte_count = os.write(descriptor, line)
        if byte_count < len(line):
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            if os.fstat(descriptor).st_size == end:  # no other line has been appended in the meantime
                os.ftruncate(descriptor, end - byte_count)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _truncated(text: str, max_chars: int) -> str:
    """Remove secrets from a text, then truncate it: half a secret might not be recognised."""
    return redact(text[: 2 * max_chars])[:max_chars]


def record_of(entry: AuditEntry) -> dict[str, Any]:
    permission = entry.permission
    # Each argument is truncated, and secrets recognised by name or form are removed.
    names = argument_names(entry.arguments)
    arguments: dict[str, Any] = {}
    for key, value in islice(entry.arguments.items(), MAX_ARGUMENTS):
        logged_value = without_secrets(value, names.get(key, key), max_chars=MAX_VALUE_CHARS * 2)
        if logged_value is not None and not isinstance(logged_value, bool | int | float):
            is_hidden = logged_value == HIDDEN
            logged_value = logged_value if isinstance(logged_value, str) else json.dumps(logged_value, default=str)
            if isinstance(value, str) and len(value) > MAX_VALUE_CHARS and not is_hidden:
                logged_value = f"{logged_value[:MAX_VALUE_CHARS]}... ({len(value)} characters)"
            elif len(logged_value) > MAX_VALUE_CHARS:
                logged_value = f"{logged_value[:MAX_VALUE_CHARS]}..."
        arguments[without_secrets(key, max_chars=MAX_NAME_CHARS)] = logged_value
    record: dict[str, Any] = {
        "time": datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="milliseconds"),
        "client": hashlib.sha256(entry.client.encode()).hexdigest()[:12] if entry.client else "anonymous",
        "tool": entry.tool,
        "does": _truncated(entry.description, MAX_REASON_CHARS),
        "arguments": arguments,
        "verdict": permission.verdict.value,
        "reason": _truncated(permission.reason, MAX_REASON_CHARS),
        **({"view": dict(permission.view.facts)} if permission.view is not None else {}),
    }
    if principal := principal_in(entry.client):
        record["principal"] = visible_line(principal)
    if isinstance(entry.answer, Answer):
        record |= {"answer": entry.answer.decision.value, "by": entry.answer.channel.value}
    elif isinstance(entry.answer, Unavailable):
        record["answer"] = "client decides" if entry.answer.client_decides else "nobody to ask"
    if entry.lasting is not None:
        record["rules"] = [_truncated(rule, MAX_VALUE_CHARS) for rule in entry.lasting.rules]
        record["scope"] = entry.lasting.scope.value
    return record
