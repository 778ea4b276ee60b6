"""For programs of tests that root starts: they become a user without rights, or mount in a namespace of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
NOBODY = 65534
NEW_MOUNTS = 0x20000
"""`CLONE_NEWNS` of Linux, which Python 3.11 has no name for."""


def own_mounts() -> None:
    """Give this process a mount namespace; what it mounts is invisible to others and ends with it."""
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    assert unshare(NEW_MOUNTS) == 0, os.strerror(ctypes.get_errno())
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def become_nobody() -> None:
    """Give up root's rights. The checkout stays within reach, even under a home that other users cannot enter."""
    if sys.platform == "win32":
        return
    closed = [parent for parent in CHECKOUT.parents if not parent.stat().st_mode & 0o001]
    if closed:
        own_mounts()
        checkout = os.open(CHECKOUT, os.O_PATH)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", closed[-1]], check=True)
        umask = os.umask(0o022)
        CHECKOUT.mkdir(parents=True)
        os.umask(umask)
        source = f"/proc/{os.getpid()}/fd/{checkout}"
        subprocess.run(["mount", "--no-canonicalize", "--rbind", source, CHECKOUT], check=True)
        os.close(checkout)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
