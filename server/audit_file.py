"""The file of the audit log: one JSON line after another, each chained to the one before it.

A chain without a key shows that a line was changed, or taken out of the middle, by somebody who did not write the rest
anew. It does not show that lines at the end are missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

TAIL_BYTES = 1 << 19
"""Looked at for the last record. None is longer: twenty arguments and a few rules of 2,000 characters, six bytes each
at most."""

FIRST = "0" * 64
"""What the first record of a file is chained to."""


@dataclass(frozen=True, slots=True)
class Written:
    """How a file was left by the last record of this process.

    Args:
        file: Which file it was, as the system numbers it.
        size: Its length in bytes.
        hash: That of the record.
        was_shortened: Whether what this process had written before was not there any more.
    """

    file: tuple[int, int]
    size: int
    hash: str
    was_shortened: bool = False


def append(path: str, record: Mapping[str, Any], last: Written | None = None) -> Written:
    """Append a record, chained to the one before it, whichever process wrote that.

    Where the file was emptied, shortened or replaced since, the record is chained to what this process knows, so that
    the chain shows that something is missing.

    Args:
        path: The file.
        record: What is appended.
        last: What the call before returned.

    Raises:
        OSError: It cannot be written; nothing of it is there.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        if sys.platform != "win32":
            import fcntl  # noqa: PLC0415 - only where there is such a lock

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        state = os.fstat(descriptor)
        file = (state.st_dev, state.st_ino)
        was_shortened = last is not None and (file != last.file or state.st_size < last.size)
        previous = last.hash if last is not None and was_shortened else _last_hash(descriptor)
        chained = {**record, "previous": previous}
        digest = hashlib.sha256(json.dumps(chained).encode()).hexdigest()
        line = json.dumps({**chained, "hash": digest}).encode() + b"\n"
        _write_whole(descriptor, line)
        return Written(file, state.st_size + len(line), digest, was_shortened)
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
