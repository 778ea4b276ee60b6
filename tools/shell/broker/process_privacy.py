"""Keeping the memory, the environment and the descriptors of a process from others of the same user."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4  # from linux/prctl.h


def make_private() -> None:
    """Have Linux refuse `/proc/PID/environ`, `fd`, `mem` and debuggers to all but root.

    Forks of this process keep it; programs that they run begin without it.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - only where it is used

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))
