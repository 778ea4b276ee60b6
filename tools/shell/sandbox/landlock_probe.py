"""Runs confined by Landlock, once: tries what must not work. Standard library only, started by path.

python landlock_probe.py READABLE-FOLDER WRITABLE-FOLDER FILE-OUTSIDE PROCESS-OUTSIDE

Exit code 0: nothing worked that must not. `WORKED`: something did; it prints what.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

WORKED = 100


def use(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def do_without_own_folder(file: str, own: str) -> None:
    try:
        with open(file, "rb") as read, open(os.path.join(own, "made"), "wb") as made:
            made.write(read.read())
        os.unlink(os.path.join(own, "made"))
    except OSError:
        return
    raise OSError


def keep_capabilities() -> None:
    with open("/proc/self/status", encoding="utf-8") as status:
        # The bounding set stays that of a user without rights, who can get nothing of it.
        held = [line.split()[1] for line in status if line.startswith(("CapInh", "CapPrm", "CapEff", "CapAmb"))]
        if not any(int(each, 16) for each in held):
            raise OSError


def main() -> int:
    if sys.platform == "win32":
        raise NotImplementedError
    root, own, outside, pid = sys.argv[1:]
    file = os.path.join(root, "file")
    attempts: list[tuple[str, Callable[[], object]]] = [
        ("could not read, or not write in its own folder", lambda: do_without_own_folder(file, own)),
        ("wrote in its workspace", lambda: use(os.path.join(root, "new"), os.O_WRONLY | os.O_CREAT)),
        ("wrote to a file of its workspace", lambda: use(file, os.O_WRONLY)),
        ("emptied a file of its workspace", lambda: os.truncate(file, 0)),
        ("removed a file of its workspace", lambda: os.unlink(file)),
        ("moved a file of its workspace", lambda: os.rename(file, os.path.join(own, "moved"))),
        ("linked a file of its workspace", lambda: os.link(file, os.path.join(own, "linked"))),
        ("changed the mode of a file", lambda: os.chmod(file, 0o700)),
        ("changed the time of a file", lambda: os.utime(file)),
        ("read a file outside", lambda: use(outside, os.O_RDONLY)),
        ("wrote to a file outside", lambda: use(outside, os.O_WRONLY)),
        ("emptied a file outside", lambda: os.truncate(outside, 0)),
        ("signalled a process outside", lambda: os.kill(int(pid), 0)),
        ("read the environment of a process outside", lambda: use(f"/proc/{pid}/environ", os.O_RDONLY)),
        ("made a socket of the internet", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
        ("made a socket for datagrams", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)),
        ("made a local socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)),
        ("could change settings of the kernel", lambda: use("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        ("kept a capability", keep_capabilities),
    ]
    for what, attempt in attempts:
        try:
            attempt()
        except OSError:
            continue
        sys.stdout.write(what)
        return WORKED
    return 0


if __name__ == "__main__":
    sys.exit(main())
