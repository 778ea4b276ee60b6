"""Starts a server that hangs for ever after a signal.

python stuck_server.py SERVER-ARGUMENT...

SIGUSR1: the thread of the event loop waits for a lock that is never released.
SIGUSR2: this thread hangs in a library without releasing the interpreter's lock, so no other thread continues either.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server import cli
from server.administration import watchdog
from tools.shell.broker import confinement

HELD_LOCK = threading.Lock()


def wait_for_lock(_number: int, _frame: object) -> None:
    HELD_LOCK.acquire()


def hang_in_library(_number: int, _frame: object) -> None:
    library = ctypes.PyDLL(None)  # unlike `CDLL`, `PyDLL` keeps the interpreter's lock during calls
    mutex = ctypes.create_string_buffer(256)
    for _ in range(2):  # the second call waits for ever, and signals do not interrupt it
        library.pthread_mutex_lock(mutex)


if __name__ == "__main__":
    HELD_LOCK.acquire()
    signal.signal(signal.SIGUSR1, wait_for_lock)
    signal.signal(signal.SIGUSR2, hang_in_library)
    # The defaults are too long for a test.
    watchdog.STUCK_SECONDS = watchdog.LEAVE_SECONDS = 2.0
    confinement.make_private = lambda: None  # so that the test can read what the server waits for
    raise SystemExit(cli.main())
