"""Starts a server with a different umask and, if root starts it, as a user without rights.

python unprivileged_server.py UMASK SERVER-ARGUMENT...

This user may not be able to read the interpreter and the checkout, so everything is imported before. The system's
interpreter then runs the server's Python programs.
"""

from __future__ import annotations

import ctypes
import difflib
import importlib
import os
import pkgutil
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server.cli import main as serve
from tests.other_user import become_nobody

PR_SET_DUMPABLE = 4
SYSTEM_PYTHON = "/usr/bin/python3"
PROGRAMS = frozenset(("html_and_pdf_worker", "worker"))
"""Modules that are separate programs."""

USED_LATER = (ctypes, difflib, resource)


def import_everything() -> None:
    for package in ("server", "tools"):
        top = importlib.import_module(package)
        for module in pkgutil.walk_packages(top.__path__, f"{package}."):
            if module.name.rpartition(".")[2] not in PROGRAMS:
                importlib.import_module(module.name)


def main() -> None:
    import_everything()
    os.umask(int(sys.argv[1], 8))
    if os.geteuid() == 0:
        become_nobody()
        # After a change of user, the kernel hides a process from that user. A server started by the user is not hidden.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, ctypes.c_ulong(1))
        if not os.access(sys.executable, os.X_OK):
            sys.executable = SYSTEM_PYTHON
    sys.argv[1:] = sys.argv[2:]
    serve()


if __name__ == "__main__":
    main()
