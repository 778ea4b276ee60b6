"""Limits of this process: open files, detached threads, and memory per thread."""

from __future__ import annotations

import _thread
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from tools.contract.tool_errors import exhaustion_of

_MAX_OPEN_FILES = 16_384  # highest limit on open files that this server requests
_usual_open_files: list[int] = []  # the limit on open files before it was raised; empty if not raised


def allow_open_files() -> int:
    """Raise the limit on open files, usually 1,024, to allow many clients and commands.

    Returns the limit in force, but at most `_MAX_OPEN_FILES`.
    """
    if sys.platform == "win32":
        return _MAX_OPEN_FILES
    import resource  # noqa: PLC0415 - POSIX only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY:
        return _MAX_OPEN_FILES
    if soft >= target:
        return min(soft, _MAX_OPEN_FILES)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # a sandbox forbids it, or macOS has another, lower limit
        return soft
    _usual_open_files[:] = [soft]
    return target


def usual_open_files() -> int:
    """Return the limit on open files as it was before the server raised it. On Windows, this is a constant."""
    if sys.platform == "win32":
        return _MAX_OPEN_FILES
    import resource  # noqa: PLC0415 - POSIX only

    return _usual_open_files[0] if _usual_open_files else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def start_thread(work: Callable[[], None]) -> None:
    """Start a thread that does not delay the exit of the process. Raises an `ExhaustedError` if that is impossible.

    `threading.Thread.start` waits until the new thread reports that it is running. If there is no memory for the
    report, the report never comes, and the caller (even the event loop) waits forever. This function does not wait.
    """
    share_arenas()
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError) as error:
        raise exhaustion_of(OSError(errno.EAGAIN, "")) or error from None


@cache
def share_arenas() -> None:
    """Let all threads share two memory arenas, unless the environment tunes the allocator.

    Must be called before threads start. By default, glibc gives each thread its own arena. After 500 mixed calls, a
    server then held 2 to 9 MB more if 8 calls ran at a time, and 20 to 41 MB more with 32.
    """
    settings = os.environ.get("MALLOC_ARENA_MAX", "") + os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or settings:
        return
    with suppress(OSError, AttributeError, ImportError, MemoryError):  # other C libraries have no such function
        import ctypes  # noqa: PLC0415 - not needed at startup

        ctypes.CDLL(None).mallopt(-8, 2)  # glibc's `M_ARENA_MAX`: all threads share two arenas
