"""What a program has started and still runs: found, asked to end, killed.

Where the kernel knows sub-reapers (Linux), what loses its parent becomes a child of its supervisor, in whatever session
it hides. So a supervisor finds all that its program ever started, and `waitpid` tells when nothing is left. Elsewhere
the group of the program stands for all that it starts; what leaves the group is lost from sight.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

if sys.platform == "win32":
    raise ImportError("nothing is followed on Windows")

MARK = b"CORETOOLS_MCP_PROGRAM"  # the variable that tells what was started by which of several programs
MARK_BYTES = 1 << 17  # of an environment that are looked at for it, at whose beginning it is put
STOP_ROUNDS = 20  # how often to look for processes that were started while the others were stopped
_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # not every kernel tells them
_library = ctypes.CDLL(None)


def become_subreaper() -> bool:
    """Become the parent of all below us that loses its own; whether that works here."""
    if sys.platform != "linux" or not os.path.exists("/proc/self/stat"):
        return False
    return _library.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def _children() -> Callable[[int], Iterable[int]]:
    """What tells the children of a process, zombies included."""
    if _HAS_CHILDREN_FILES:
        return _read_children
    found: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        if fields := _stat(pid):
            found.setdefault(int(fields[1]), []).append(pid)
    return lambda pid: found.get(pid, ())


def _read_children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as children:
                found += map(int, children.read().split())
    return found


def _stat(pid: int) -> list[bytes]:
    """What the kernel tells of a process, from its state on; nothing if there is no such process."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
        return stat.read(1024).rpartition(b")")[2].split()
    return []


def _runs(pid: int) -> bool:
    # A process whose first thread has ended is shown as a zombie too, but with more than one thread.
    return bool(fields := _stat(pid)) and (fields[0] not in b"ZX" or int(fields[17]) > 1)


def _environment(pid: int) -> bytes:
    """The beginning of the environment of a process; nothing where it may not be seen."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as environment:
        return environment.read(MARK_BYTES)
    return b""


def send_signals(pids: Iterable[int], *numbers: int) -> None:
    """Signal processes; those that are gone, or not ours to signal, are passed over."""
    for pid in pids:
        for number in numbers:
            with suppress(OSError):
                os.kill(pid, number)


class Descendants:
    """All processes below this one, a sub-reaper, but for children that are spared with all that is below them."""

    is_sure = True  # whether each child has shown whose it is in the last look

    def __init__(self, spared: Iterable[int] = ()) -> None:
        self._spared = spared

    def pids(self) -> list[int]:
        """Without those that only wait to be reaped.

        They come and go during the look: some may be missing, even all if each child of this server ends meanwhile.
        """
        return sorted(filter(_runs, self._look()))

    def _look(self, *numbers: int) -> set[int]:
        """All there are, each signalled before its children are looked for: what is stopped starts no more of them."""
        children = _children()
        found, level = set[int](), {pid for pid in children(os.getpid()) if self._is_own(pid)}
        while level:
            send_signals(level, *numbers)
            found |= level
            level = {child for pid in level for child in children(pid)} - found
        return found

    def _is_own(self, pid: int) -> bool:
        """Whether a child of this process is one of these."""
        return pid not in self._spared

    def ask_to_end(self) -> None:
        """SIGTERM, also to what is stopped."""
        send_signals(self.pids(), signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        """Stop all of them first, each as soon as it is seen, so that none starts others meanwhile."""
        stopped = set[int]()
        for _ in range(STOP_ROUNDS):
            new = self._look(signal.SIGSTOP) - stopped
            if not new:
                break
            stopped |= new
        send_signals(stopped, signal.SIGKILL)

    def is_left(self, has_children: bool) -> bool:
        """Whether something runs after the program has ended; nothing can if this process has no child any more."""
        return has_children


class Share(Descendants):
    """What one of several programs of this process, a sub-reaper, has started, itself included.

    What has lost its parent is known by its session, or by the mark that it has inherited in its environment; with
    neither it is nobody's, and ends with this process.
    """

    def __init__(self, program: int, mark: bytes) -> None:
        super().__init__()
        self._program = program
        self._mark = MARK + b"=" + mark

    def _is_own(self, pid: int) -> bool:
        with suppress(OSError):
            if os.getsid(pid) == self._program:
                return True
            environment = _environment(pid)
            if not environment and _runs(pid):  # another program takes its place at this moment
                self.is_sure = False
            return self._mark in environment.split(b"\0")
        return False

    def is_left(self, has_children: bool) -> bool:
        self.is_sure = True
        return has_children and bool(self.pids())


class Group:
    """The group of a program, of which only the leader is known by its id."""

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
        del has_children  # those that have left it may be anybody's
        try:
            os.killpg(self._leader, 0)
        except OSError as error:
            return error.errno == errno.EPERM
        return True


Followed = Descendants | Group  # all that a program has started and that still runs, itself included
