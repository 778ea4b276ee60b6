"""Tries forbidden actions in the sandbox. Runs as a script, with only the standard library.

python probe_program.py CONFINEMENT ROOT OWN OUTSIDE PROCESS

CONFINEMENT is `working` or `reading` for bubblewrap's views, or `landlock`. ROOT is the workspace, with a file named
`file`. OWN is a folder that the command may write to. OUTSIDE is a file that it may not write to (and that Landlock
hides). PROCESS is a process outside the sandbox, given as its id and its namespace, separated by a colon.

Exits with 0 if no forbidden action succeeded, or with `WORKED` after printing one that did.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator

WORKED = 100

# A clause that names an action, and a function that raises an `OSError` if the action fails.
Attempt = tuple[str, Callable[[], object]]


def use(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def write(path: str) -> None:
    use(path, os.O_WRONLY | os.O_CREAT)


def fail_to(*actions: Callable[[], object]) -> None:
    """Return normally if one of these actions fails with an `OSError`; otherwise, raise an `OSError`."""
    try:
        for action in actions:
            action()
    except OSError:
        return
    raise OSError


def stay_in_the_namespace(outside: str) -> None:
    if os.readlink("/proc/self/ns/pid") != outside:
        raise OSError


def reach_a_network() -> None:
    # This sends nothing, but requests a route to an address reserved for documentation (RFC 5737).
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("192.0.2.1", 9))


def keep_capabilities() -> None:
    with open("/proc/self/status", encoding="utf-8") as status:
        # Ignore the bounding set, which does not change for unprivileged users and is of no use to them.
        masks = [line.split()[1] for line in status if line.startswith(("CapInh", "CapPrm", "CapEff", "CapAmb"))]
    if not any(int(mask, 16) for mask in masks):
        raise OSError


def attempts(confinement: str, root: str, own: str, outside: str, process: str) -> Iterator[Attempt]:
    if sys.platform != "linux":
        raise NotImplementedError
    number, namespace = process.split(":", 1)
    file, new_file = os.path.join(root, "file"), os.path.join(own, f"made-for-{number}")
    yield (
        "could not read its workspace, or could not write to its own folder",
        lambda: fail_to(lambda: use(file, os.O_RDONLY), lambda: write(new_file), lambda: os.unlink(new_file)),
    )
    yield "wrote outside its workspace", lambda: write(outside)
    yield "created a local socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    yield "could change kernel settings", lambda: use("/proc/sys/kernel/core_pattern", os.O_WRONLY)
    yield "kept a capability", keep_capabilities
    yield "had a route to the network", reach_a_network
    if confinement == "working":
        yield "could not create a file in its workspace", lambda: fail_to(lambda: write(os.path.join(root, "written")))
        yield "wrote a git hook", lambda: write(os.path.join(root, ".git", "hooks", "pre-commit"))
        yield "wrote an editor's settings", lambda: write(os.path.join(root, ".vscode", "tasks.json"))
    else:
        yield "created a file in its workspace", lambda: write(os.path.join(root, "written"))
        yield "wrote to a file in its workspace", lambda: use(file, os.O_WRONLY)
        yield "emptied a file in its workspace", lambda: os.truncate(file, 0)
        yield "removed a file from its workspace", lambda: os.unlink(file)
        yield "moved a file out of its workspace", lambda: os.rename(file, new_file)
        yield "created a hard link to a file in its workspace", lambda: os.link(file, new_file)
        yield "changed the mode of a file", lambda: os.chmod(file, 0o700)
        yield "changed the timestamps of a file", lambda: os.utime(file)
    if confinement != "landlock":
        yield "was in the process namespace of this server", lambda: stay_in_the_namespace(namespace)
    else:
        yield "read a file outside the sandbox", lambda: use(outside, os.O_RDONLY)
        yield "emptied a file outside the sandbox", lambda: os.truncate(outside, 0)
        yield "signalled a process outside the sandbox", lambda: os.kill(int(number), 0)
        yield (
            "read the environment of a process outside the sandbox",
            lambda: use(f"/proc/{number}/environ", os.O_RDONLY),
        )
        yield "created an internet socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        yield "created a datagram socket", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)


def main() -> int:
    confinement, root, own, outside, process = sys.argv[1:]
    for description, attempt in attempts(confinement, root, own, outside, process):
        try:
            attempt()
        except OSError:
            continue
        sys.stdout.write(description)
        return WORKED
    return 0


if __name__ == "__main__":
    sys.exit(main())
