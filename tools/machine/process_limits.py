"""What this process asks of the system for itself: descriptors, threads that nobody waits for, and little memory."""

from __future__ import annotations

import _thread
import errno
import sys
from collections.abc import Callable
from contextlib import suppress

from tools.contract.tool_errors import exhaustion_of

_MOST_OPEN_FILES = 16_384  # open files that a server asks the system to allow
_usual_open_files: list[int] = []  # what the system allowed before


def allow_open_files() -> int:
    """Have room for the descriptors of many clients and commands, and tell for how many; 1,024 are usual unasked."""
    if sys.platform == "win32":
        return _MOST_OPEN_FILES
    import resource  # noqa: PLC0415 - not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MOST_OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY:
        return _MOST_OPEN_FILES
    if soft >= wanted:
        return min(soft, _MOST_OPEN_FILES)
    _usual_open_files[:] = [soft]
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def usual_open_files() -> int:
    """How many files programs may have open: as many as if the server had not asked for more. Not on Windows."""
    if sys.platform == "win32":
        return _MOST_OPEN_FILES
    import resource  # noqa: PLC0415 - not on every system

    return _usual_open_files[0] if _usual_open_files else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def start_thread(work: Callable[[], None]) -> None:
    """Start a thread that the end of the process does not wait for.

    `threading.Thread.start` waits until the new thread has said that it lives. One that finds no memory for that never
    does, and what started it, be it the event loop, waits for ever. Here nobody is waited for.

    Raises:
        ExhaustedError: The system gives none.
    """
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError) as error:
        raise exhaustion_of(OSError(errno.EAGAIN, "")) or error from None


def share_arenas() -> None:
    """Where the address space is limited, let threads share their memory; called before there are threads.

    The C library would set 64 MB of it aside for each of them: eight threads, and half a gigabyte is used up.
    """
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - not on every system

    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import ctypes  # noqa: PLC0415 - it takes a while

    with suppress(OSError, AttributeError):  # other C libraries have no such thing
        ctypes.CDLL(None).mallopt(-8, 2)  # glibc's `M_ARENA_MAX`: all threads take their memory from two places
