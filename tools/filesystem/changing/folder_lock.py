"""One writer at a time makes and renames files in a folder: first among our threads, then among processes."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from tools.filesystem.descriptors import Folder

BUSY_SECONDS = 5.0
"""How long a write waits for its turn in a folder. A turn makes or renames one file, in less than a millisecond, and
at most some tens of our threads wait for one; only a process that was stopped within its turn takes so long."""

POLL_SECONDS = 0.001

FolderId = tuple[int, int]
"""Device and inode: which folder it is, whatever path leads to it."""

_turns: WeakValueDictionary[FolderId, threading.Lock] = WeakValueDictionary()
"""A lock that nobody holds or waits for is gone by itself."""

_turns_guard = threading.Lock()


def folder_id(descriptor: int) -> FolderId:
    """Which folder a descriptor is open on."""
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


@contextmanager
def alone_in(folder: Folder) -> Generator[None]:
    """Keep other threads and other processes of this server from making and renaming files in a folder, for a moment.

    Our own threads queue up before one of them asks for the lock that processes see, so they do not take it from each
    other by chance. Where the file system has no locks, other processes are not kept away.

    Raises:
        OSError: `EBUSY`: others have kept it for `BUSY_SECONDS`.
    """
    if folder.descriptor is None:
        yield
        return
    end = time.monotonic() + BUSY_SECONDS
    turn = _turn(folder_id(folder.descriptor))
    if not turn.acquire(timeout=BUSY_SECONDS):
        raise _busy()
    try:
        locked = _lock_until(end, folder.descriptor)
        try:
            yield
        finally:
            if locked:
                _unlock(folder.descriptor)
    finally:
        turn.release()


def _turn(folder: FolderId) -> threading.Lock:
    with _turns_guard:
        turn = _turns.get(folder)
        if turn is None:
            turn = _turns[folder] = threading.Lock()
        return turn


def _lock_until(end: float, descriptor: int) -> bool:
    """Whether there is a lock, which is ours now."""
    locked = try_lock(descriptor)
    while locked is False:
        if time.monotonic() > end:
            raise _busy()
        time.sleep(POLL_SECONDS)
        locked = try_lock(descriptor)
    return locked is True


def _busy() -> OSError:
    return OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def try_lock(descriptor: int) -> bool | None:
    """Whether what is open is ours now; `None` where there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - not on every system

        fcntl.flock(descriptor, fcntl.LOCK_UN)
