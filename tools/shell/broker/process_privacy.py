"""Protects the memory, environment and descriptors of a process from other processes of the same user."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4  # from linux/prctl.h


def make_private() -> None:
    """Let Linux refuse `/proc/PID/environ`, `fd`, `mem` and debuggers to everybody but root.

    Forks of this process inherit this; programs that they execute do not.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - only where it is used

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))
