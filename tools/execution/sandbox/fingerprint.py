"""What a file or folder is, told so that a change shows, whoever made it.

Files are told by their number and the time of their last change, which the system sets and nobody can set back.
"""

from __future__ import annotations

import os
import stat

from tools.execution.sandbox.placeholders import is_placeholder

ENTRIES = 50
"""Entries of a folder that count, by name: what is in those below it does not."""

Fingerprint = tuple[object, ...]


def fingerprint(path: str) -> Fingerprint | None:
    """What is at a path, without following a link; `None` where there is nothing, or a name that is kept free."""
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return _of_file(status)
        if is_placeholder(path):
            return None
        names = sorted(os.listdir(path))[:ENTRIES]
    except OSError:
        return None
    return (status.st_dev, status.st_ino, *((name, _of_entry(os.path.join(path, name))) for name in names))


def _of_entry(path: str) -> Fingerprint | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return _of_file(status)
    return None if is_placeholder(path) else (status.st_dev, status.st_ino)


def _of_file(status: os.stat_result) -> Fingerprint:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns)
