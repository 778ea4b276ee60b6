"""Finds, stops and kills the running processes that a program has started.

On Linux, which has subreapers, an orphan becomes a child of its supervisor, regardless of its session. A supervisor
therefore finds everything that its program ever started, and `waitpid` reports when nothing is left. On other systems,
only the program's process group is known, and processes that leave it are lost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

if sys.platform == "win32":
    raise ImportError("processes cannot be tracked on Windows")

MARK = b"CORETOOLS_MCP_PROGRAM"  # variable that shows which of several programs started a process
MARK_BYTES = 1 << 17  # bytes of an environment to search for the mark, which is at the beginning
STOP_ROUNDS = 20  # maximum number of searches for processes that started while others were being stopped
_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # not every kernel has these files
_library = ctypes.CDLL(None)


def become_subreaper() -> bool:
    """Become the parent of all orphans below this process. Return True if the system supports this."""
    if sys.platform != "linux" or not os.path.exists("/proc/self/stat"):
        return False
    return _library.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def _read_children(pid: int) -> list[int]:
    """Return the children of a process, including zombies."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as children:
                found += map(int, children.read().split())
    return found


def _stat(pid: int) -> list[bytes]:
    """Return the kernel's fields about a process, starting with its state. Empty if it does not exist."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
        return stat.read(1024).rpartition(b")")[2].split()
    return []


def _runs(pid: int) -> bool:
    # A process whose main thread has exited looks like a zombie, but has more than one thread.
    return bool(fields := _stat(pid)) and (fields[0] not in b"ZX" or int(fields[17]) > 1)


def send_signals(pids: Iterable[int], *numbers: int) -> None:
    """Signal processes. Skip those that are gone or may not be signalled."""
    for pid in pids:
        for number in numbers:
            with suppress(OSError):
                os.kill(pid, number)


class Descendants:
    """All processes below this subreaper, except spared children and everything below them."""

    is_sure = True  # whether the last search could assign each child to a program

    def __init__(self, spared: Iterable[int] = ()) -> None:
        self._spared = spared

    def pids(self) -> list[int]:
        """Return the ids of these processes, without zombies.

        Processes come and go during the search, so some may be missing, or even all if every child of this process
        exits during the search.
        """
        return sorted(filter(_runs, self._look()))

    def _look(self, *numbers: int) -> set[int]:
        """Find these processes, including zombies, and send the signals in `numbers` to each.

        A process is signalled before the search for its children, because a stopped process starts no more children.
        """
        children = _read_children
        if not _HAS_CHILDREN_FILES:
            known = defaultdict[int, list[int]](list)
            for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
                if fields := _stat(pid):
                    known[int(fields[1])].append(pid)
            children = known.__getitem__
        found, level = set[int](), {pid for pid in children(os.getpid()) if self._is_own(pid)}
        while level:
            send_signals(level, *numbers)
            found |= level
            level = {child for pid in level for child in children(pid)} - found
        return found

    def _is_own(self, pid: int) -> bool:
        """Return True if a child of the current process is one of the processes to find."""
        return pid not in self._spared

    def ask_to_end(self) -> None:
        """Send SIGTERM, and SIGCONT so that stopped processes react to it."""
        send_signals(self.pids(), signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes. Each is stopped as soon as it is found, so that it starts no others."""
        stopped = set[int]()
        for _ in range(STOP_ROUNDS):
            new = self._look(signal.SIGSTOP) - stopped
            if not new:
                break
            stopped |= new
        send_signals(stopped, signal.SIGKILL)

    def is_left(self, has_children: bool) -> bool:
        """Return True if anything still runs after the program has exited."""
        return has_children


class Share(Descendants):
    """The processes of one of several programs below this subreaper, including the program itself.

    Orphans are recognised by their session or by the mark in their environment. Orphans with neither belong to
    no program, and are killed when this process exits.
    """

    def __init__(self, program: int, mark: bytes) -> None:
        super().__init__()
        self._program = program
        self._mark = MARK + b"=" + mark

    def _is_own(self, pid: int) -> bool:
        with suppress(OSError):
            if os.getsid(pid) == self._program:
                return True
            environment = b""
            with suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as opened:
                environment = opened.read(MARK_BYTES)
            if not environment and _runs(pid):  # the child is in the middle of executing another program
                self.is_sure = False
            return self._mark in environment.split(b"\0")
        return False

    def is_left(self, has_children: bool) -> bool:
        self.is_sure = True
        return has_children and bool(self.pids())


class Group:
    """A program's process group. Only the leader's id is known."""

    is_sure = True

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def pids(self) -> list[int]:
        return [self._leader] if self.is_left(has_children=True) else []

    def ask_to_end(self) -> None:
        send_signals([-self._leader], signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        send_signals([-self._leader], signal.SIGKILL)

    def is_left(self, has_children: bool) -> bool:
        del has_children  # children outside the group may belong to other programs
        try:
            os.killpg(self._leader, 0)
        except OSError as error:
            return error.errno == errno.EPERM
        return True


Followed = Descendants | Group  # the running processes of a program, including the program
