"""Lets programs that root starts become an unprivileged user, or mount file systems in their own namespace."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
NOBODY = 65534
NEW_MOUNTS = 0x20000
"""Linux's `CLONE_NEWNS`, which Python 3.11 does not define."""


def own_mounts() -> None:
    """Give this process a mount namespace. Its mounts are invisible to other processes, and end with it."""
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    assert unshare(NEW_MOUNTS) == 0, os.strerror(ctypes.get_errno())
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def become_nobody() -> None:
    """Give up root's rights. The checkout stays accessible, even below a home that other users cannot enter."""
    if sys.platform == "win32":
        return
    closed_folders = [parent for parent in CHECKOUT.parents if not parent.stat().st_mode & 0o001]
    if closed_folders:
        own_mounts()
        checkout = os.open(CHECKOUT, os.O_PATH)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", closed_folders[-1]], check=True)
        umask = os.umask(0o022)
        CHECKOUT.mkdir(parents=True)
        os.umask(umask)
        source = f"/proc/{os.getpid()}/fd/{checkout}"
        subprocess.run(["mount", "--no-canonicalize", "--rbind", source, CHECKOUT], check=True)
        os.close(checkout)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
