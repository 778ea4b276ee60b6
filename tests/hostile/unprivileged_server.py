"""Our server with another umask and, where it is started by root, as a user without rights.

python unprivileged_server.py UMASK SERVER-ARGUMENT...

The interpreter and the checkout may lie where that user may not look, so everything is imported before. For programs
that are run by the interpreter there is then the one of the system.
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
"""Modules that are programs of their own."""

USED_LATER = (ctypes, difflib, resource)


def import_everything() -> None:
    for package in ("server", "tools"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if module.name.rpartition(".")[2] not in PROGRAMS:
                importlib.import_module(module.name)


def main() -> None:
    import_everything()
    os.umask(int(sys.argv[1], 8))
    if os.geteuid() == 0:
        become_nobody()
        # Anyone who changes the user is hidden from it; a server that this user has started is not, by itself.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, ctypes.c_ulong(1))
        if not os.access(sys.executable, os.X_OK):
            sys.executable = SYSTEM_PYTHON
    sys.argv[1:] = sys.argv[2:]
    serve()


if __name__ == "__main__":
    main()
