"""Limits on the size of a command's files and the number of its processes.

The operating system's limits apply to every command, even outside the sandbox. They do not limit the number of root's
processes, even in a user namespace. If the server runs as root, a control group therefore limits the processes of
commands in bubblewrap, provided that the group can be created.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, suppress
from threading import Lock

from tools.files.change.writer import POLL_SECONDS, try_lock
from tools.shell.process_spec import ResourceLimits

FILE_BYTES = 4 * 1024**3  # larger than any build output, but stops a runaway command before an ordinary disk is full
PROCESSES = 512  # processes and threads that commands may add to those of their user
PROCESS_STEP = 256  # the limit is a multiple of this, so that successive commands usually have the same limit
GROUP_PROCESSES = 1_024  # processes and threads of all commands in bubblewrap together, if the server runs as root
_GROUPS = "/sys/fs/cgroup"
_GROUP_NAME = "coretools-mcp-"
TURN_SECONDS = 1.0  # how long to wait while other servers create their groups, which takes milliseconds


def default_limits() -> ResourceLimits:
    """Return the limits for a command. Counts the user's processes each time, because the limit includes them."""
    processes: int | None = None
    if sys.platform != "win32" and not is_root():
        import resource  # noqa: PLC0415 - POSIX only

        # Count the user's threads. Without `/proc`, assume that the user has `PROCESSES` threads.
        running = 0
        try:
            for name in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    if os.stat(f"/proc/{name}").st_uid == os.getuid():
                        # A folder's link count is two, plus one per subfolder.
                        running += os.stat(f"/proc/{name}/task").st_nlink - 2
        except OSError:
            running = PROCESSES
        processes = -(-(running + PROCESSES) // PROCESS_STEP) * PROCESS_STEP
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        if hard != resource.RLIM_INFINITY:
            processes = min(processes, hard)
    return ResourceLimits(file_bytes=FILE_BYTES, processes=processes, core_bytes=0)


def is_root() -> bool:
    if sys.platform == "win32":
        return False
    return os.geteuid() == 0


class ProcessGroupLimit:
    """A control group that limits the processes of all this server's commands in bubblewrap together.

    The server holds a lock on the group's folder. A group whose lock is free belonged to a dead server. A process id
    would not show that: another container may use the same control groups with process ids of its own.
    """

    def __init__(self) -> None:
        self._group: str | None = None
        self._lock = -1
        self._turn = Lock()  # commands are prepared in several threads

    def entrance(self) -> str | None:
        """Return the file through which to join the group (`ResourceLimits.group`), or `None` without a group."""
        with self._turn:
            if self._group is None or not os.path.isdir(self._group):
                self.close()
                with suppress(OSError, ValueError), open("/proc/self/cgroup", encoding="utf-8") as lines:
                    # Create the group in the server's own group. If that fails, create it next to the server's group
                    # or, last, at the top (only in version 2 of control groups).
                    parents: list[str] = []
                    for line in lines:
                        _, controllers, own = line.rstrip("\n").split(":", 2)
                        if controllers == "pids":
                            parents.append(f"{_GROUPS}/pids{own}")
                        elif not controllers:
                            parents += [f"{_GROUPS}{own}", f"{_GROUPS}{os.path.dirname(own)}", _GROUPS]
                    for parent in dict.fromkeys(parents):
                        if os.path.isfile(os.path.join(parent, "cgroup.procs")) and self._make_in(parent):
                            break
            return os.path.join(self._group, "cgroup.procs") if self._group is not None else None

    def close(self) -> None:
        """Remove the group, which must be empty."""
        group, lock, self._group, self._lock = self._group, self._lock, None, -1
        if group is not None:
            _remove(group)
            os.close(lock)

    def _make_in(self, parent: str) -> bool:
        """Remove dead servers' groups in the group `parent`, and create this server's there. Return True on success."""
        group = os.path.join(parent, f"{_GROUP_NAME}{os.urandom(8).hex()}")
        with suppress(OSError), ExitStack() as stack:
            parent_lock = _open_folder(parent)
            stack.callback(os.close, parent_lock)
            # Lock the parent until the new group is locked. Otherwise, another server could mistake the new group for a
            # dead server's group. The wait is bounded, because the server that holds the lock may be suspended.
            end = time.monotonic() + TURN_SECONDS
            while try_lock(parent_lock) is False and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
            for name in filter(lambda name: name.startswith(_GROUP_NAME), os.listdir(parent)):
                with suppress(OSError):
                    other_group = _open_folder(os.path.join(parent, name))
                    if try_lock(other_group):
                        _remove(os.path.join(parent, name))
                    os.close(other_group)
            os.mkdir(group)
            # Do not create the file: it does not exist if processes are not counted here.
            with open(os.path.join(group, "pids.max"), "r+b", buffering=0) as limit:
                limit.write(str(GROUP_PROCESSES).encode())
            self._lock = _open_folder(group)
            try_lock(self._lock)
            self._group = group
            return True
        _remove(group)
        return False


def _open_folder(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))


def _remove(group: str) -> None:
    with suppress(OSError):
        os.rmdir(group)
