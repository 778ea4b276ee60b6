"""Runs in the sandbox, once: tries what must not work. Standard library only, started by path.

python probe_program.py ROOT MARKER ABSTRACT-SOCKET PID-NAMESPACE VIEW

Exit code 0: nothing worked that must not. Otherwise the code says what did (`bubblewrap.py` beside this).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

FIRST_CODE = 100  # codes of bubblewrap itself are smaller


def write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def connect(address: str) -> None:
    if sys.platform != "linux":
        raise OSError
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


def reach_a_network() -> None:
    # Sends nothing: it only asks for a route to an address of the documentation (RFC 5737).
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("192.0.2.1", 9))


def stay_in_the_namespace(outside: str) -> None:
    if os.readlink("/proc/self/ns/pid") != outside:
        raise OSError


def have_another_workspace(root: str, view: str) -> None:
    is_writable = True
    try:
        write(os.path.join(root, "written"))
    except OSError:
        is_writable = False
    if is_writable is (view == "working"):
        raise OSError


def main() -> int:
    root, marker, abstract, namespace, view = sys.argv[1:]
    attempts: list[Callable[[], object]] = [
        lambda: have_another_workspace(root, view),
        lambda: write(marker),
        lambda: write(os.path.join(root, ".git", "hooks", "pre-commit")),
        lambda: os.mkdir(os.path.join(root, ".vscode", "tasks")),
        lambda: connect(os.path.join(root, "socket")),
        lambda: connect("\0" + abstract),
        lambda: stay_in_the_namespace(namespace),
        lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        reach_a_network,
    ]
    for at, attempt in enumerate(attempts):
        try:
            worked = attempt() is not False
        except OSError:
            continue
        if worked:
            return FIRST_CODE + at
    return 0


if __name__ == "__main__":
    sys.exit(main())
