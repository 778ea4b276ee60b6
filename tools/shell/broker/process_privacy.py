"""Protects the memory, environment and descriptors of a process from other processes of the same user."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4  # from linux/prctl.h


def make_private() -> None:
    """On Linux, let only root debug this process, and read its `environ`, `fd` and `mem` in `/proc`.

    Forks of this process inherit this, but programs that they execute do not.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - needed only on Linux

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))
