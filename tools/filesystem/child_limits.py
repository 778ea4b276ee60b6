"""Limits that a child process sets for itself, so that it stays small and short though nobody is left to kill it."""

from __future__ import annotations

import sys
from contextlib import suppress


def limit_this_process(memory: int, seconds: int) -> None:
    """Set them. Only POSIX systems can.

    Args:
        memory: Bytes of address space.
        seconds: How long it may run, and compute; one more is left to whoever kills it in time.
    """
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not everywhere
    import signal  # noqa: PLC0415 - only here

    signal.alarm(seconds + 1)
    limits = ((resource.RLIMIT_CPU, seconds + 1), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory))
    for what, most in limits:
        # macOS knows the limit of memory but does not take it.
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
