"""Our server, which gets stuck for ever when a signal says so.

python stuck_server.py SERVER-ARGUMENT...

SIGUSR1: the thread of the event loop waits for a lock that nobody gives back.
SIGUSR2: it is in a library that does not give the interpreter back, so no other thread goes on either.
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

TAKEN = threading.Lock()


def wait_for_a_lock(_number: int, _frame: object) -> None:
    TAKEN.acquire()


def stay_in_a_library(_number: int, _frame: object) -> None:
    library = ctypes.PyDLL(None)  # unlike `CDLL`, it is called with the lock of the interpreter held
    mutex = ctypes.create_string_buffer(256)
    for _ in range(2):  # the second time for ever; no signal ends that
        library.pthread_mutex_lock(mutex)


if __name__ == "__main__":
    TAKEN.acquire()
    signal.signal(signal.SIGUSR1, wait_for_a_lock)
    signal.signal(signal.SIGUSR2, stay_in_a_library)
    # Nobody wants to wait that long here.
    watchdog.STUCK_SECONDS = watchdog.LEAVE_SECONDS = 2.0
    confinement.make_private = lambda: None  # the test reads what it waits for
    raise SystemExit(cli.main())
