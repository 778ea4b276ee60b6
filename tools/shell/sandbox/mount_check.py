"""Communicates with a running bubblewrap, and checks its mounts before its command begins.

Bubblewrap reads its options from a pipe, so it can start while they are still being prepared.

Protected workspace paths are mounted by path, while other commands may work in the same workspace. One of them could
replace a folder with a symlink between our check and the mount. Then something else on the machine would be mounted,
writable. So the last step of bubblewrap's setup copies a pipe to `/dev/null`. The pipe is full, so when it has room,
everything is mounted. Bubblewrap then waits until we close the pipe. Meanwhile the sandbox's mount table is compared
with the intended one, from outside, where no command can interfere.

The table says which mount is on top of which. Order and paths alone are not enough: of several mounts on one path only
the topmost is visible, and a mount on a folder covers earlier ones below it.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import anyio

from tools.contract.tool_errors import exhaustion_of
from tools.files.workspace import contains
from tools.shell.process_spec import EndedEarlyError

SECONDS = 10.0  # time limit for the setup, which takes milliseconds unless the machine is very busy
NEW_ROOT = "/newroot"  # where bubblewrap builds the future root of the sandbox
_NO_READER = 0x008  # POLLERR: on Linux, a pipe without readers
# The mount table's escapes for these characters (proc_pid_mountinfo(5)); the backslash last, because all begin with it.
_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}


class MountGate:
    """The pipes to one bubblewrap. Closing them lets it continue, so only close them for that, or after its end.

    The gate also holds the Landlock ruleset that the command enters, if any.
    """

    def __init__(self, rules: int | None = None) -> None:
        self.rules = rules
        self._open: set[int] = set() if rules is None else {rules}
        try:
            self._told, self.info = self._pipe()  # bubblewrap writes its process id to the second one
            self.held, self._full = self._pipe()  # it reads from the first one, and waits there
            self.options, self._saying = self._pipe()  # it reads its options from the first one
            self.mounting, self._telling = (
                self._pipe()
            )  # the mounting process reads bubblewrap's process id from the first one
            if sys.platform != "win32":
                for ours in (self._told, self._full, self._saying):
                    os.set_blocking(ours, False)
                with suppress(BlockingIOError):
                    while True:
                        os.write(self._full, bytes(1 << 16))
        except BaseException:
            self.close()
            raise

    def give_away(self) -> None:
        """Close our copies of bubblewrap's ends, after it was started or failed to start."""
        self._close(self.info, self.held, self.options)

    def tell(self, process: int = 0) -> None:
        """Send bubblewrap's process id to the mounting process, or 0 if there is none."""
        if process:
            os.write(self._telling, str(process).encode())
        self._close(self.mounting, self._telling)

    def say(self, options: Iterable[str]) -> None:
        """Send the options to bubblewrap. Blocks while it does not read, up to a `TimeoutError`."""
        rest = memoryview(os.fsencode("".join(f"{option}\0" for option in options)))
        # If it has ended, its output says why.
        with suppress(BrokenPipeError):
            while rest:
                if not self._poll(self._saying, SECONDS):
                    raise TimeoutError
                rest = rest[os.write(self._saying, rest) :]
        self._close(self._saying)

    async def wait_mounted(self, seconds: float = SECONDS) -> None:
        """Wait until everything is mounted. `TimeoutError` after so long; `EndedEarlyError` if it ends instead."""
        with anyio.fail_after(seconds):
            await anyio.wait_writable(self._full)
        if self._poll(self._full, 0) & _NO_READER:
            raise EndedEarlyError

    def process(self) -> int:
        """Return the id of the process that mounts and now waits; 0 if unknown. Call it only once."""
        try:
            # The id is sent before the mounts begin.
            return int(os.read(self._told, 4096).split(b'"child-pid":')[1].split()[0].rstrip(b",}"))
        except (BlockingIOError, ValueError, IndexError):
            return 0

    def check(self, process: int, expected: Iterable[ExpectedMount]) -> bool:
        """Let it continue if its mounts are as expected. Returns whether it does; otherwise it still waits."""
        try:
            if not all(map(MountTable(process, NEW_ROOT).has, expected)):
                return False
        except OSError as error:
            if exhaustion_of(error) is not None:
                raise
            return False
        self.close()
        return True

    def close(self) -> None:
        """Close everything that is open. May be called again."""
        self._close(*self._open)

    def _poll(self, descriptor: int, seconds: float) -> int:
        if sys.platform == "win32":
            return 0
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        return next((events for _, events in poll.poll(seconds * 1000)), 0)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open.update(ends)
        return ends

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)


class Mount(NamedTuple):
    number: str  # its id in other lines
    parent: str  # the mount below it
    device: str  # device of its file system
    what: str  # the path in its file system
    at: str  # its mount point
    is_read_only: bool  # whether it is read-only


class ExpectedMount(NamedTuple):
    """A mount that a sandbox must have, as the topmost one at its path."""

    at: str
    device: str  # device of its file system
    what: str  # the path in its file system
    is_read_only: bool  # whether it is read-only
    # Number of mounts on top of each other there, including this one; `None` if it may vary. Each path must have
    # exactly one more than before, which shows that no mount was redirected by a symlink.
    layers: int | None = None


class MountTable:
    """The mounts of a process at the time of creation. Raises an `OSError` if it is gone or belongs to another user.

    If its future root is the folder `top`, only mounts inside that are included.
    """

    def __init__(self, process: int | str = "self", top: str = "") -> None:
        mounts: dict[str, Mount] = {}
        with open(f"/proc/{process}/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            for line in lines:
                if top not in line:
                    continue
                number, parent, device, what, at, options, _ = line.split(" ", 6)
                if contains(top or "/", at):
                    at = at.removeprefix(top)
                    if "\\" in line:
                        for character, escape in _ESCAPES.items():
                            what, at = what.replace(escape, character), at.replace(escape, character)
                    mounts[number] = Mount(number, parent, device, what, at or "/", "ro" in options.split(","))
        upon = {number: mount for number, mount in mounts.items() if mount.parent in mounts and mount.parent != number}
        none = Mount("", "", "", "", "", is_read_only=False)  # if the root is not a mount
        self._lowest = next((each for each in mounts.values() if each.at == "/" and each.number not in upon), none)
        self._upon = {(mount.parent, mount.at): mount for mount in upon.values()}  # by the mount below and the path

    def is_mount_point(self, path: str) -> bool:
        return self._seen(path)[0].at == path

    def bound_first(self, path: str, at: str | None = None, *, is_read_only: bool = False) -> ExpectedMount:
        """Return the expected mount of a path without symlinks, if no folder above it was mounted before.

        It is mounted onto itself, or at the place `at`.
        """
        over, _ = self._seen(path)
        what = over.what.rstrip("/") + path[len(over.at.rstrip("/")) :]
        return ExpectedMount(at or path, over.device, what or "/", is_read_only or over.is_read_only)

    def bound(self, path: str, *, is_read_only: bool = False) -> ExpectedMount:
        """Like `bound_first`, if a folder above it was mounted before, together with everything below that."""
        own, (_, layers) = self.bound_first(path), self._seen(path)
        return own._replace(is_read_only=is_read_only or own.is_read_only, layers=layers + 1)

    def has(self, expected: ExpectedMount) -> bool:
        """Whether a mount exists and is visible."""
        seen, layers = self._seen(expected.at)
        is_same = (seen.at, seen.device, seen.what, seen.is_read_only) == expected[:4]
        return is_same and expected.layers in (None, layers)

    def _seen(self, path: str) -> tuple[Mount, int]:
        """Return the visible mount at a path, found from the root down, and the number of mounts on that path."""
        seen, layers = self._lowest, 0
        folders = path.split("/")[1:] if path != "/" else []
        for end in range(len(folders) + 1):
            place, layers = "/" + "/".join(folders[:end]), 0
            while (upon := self._upon.get((seen.number, place))) is not None:
                seen, layers = upon, layers + 1
        return seen, layers
