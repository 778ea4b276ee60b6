"""Talks with a bubblewrap that was started, and holds it before its command begins.

It reads its options from a pipe, so that it can be started while they are still being found out.

What stays as it is in a workspace is mounted by path, and other commands may be at work in the same workspace: one of
them can put a link in place of a folder between our look and the mount, so that something else of the machine is
mounted, writable. So the last thing that bubblewrap does for the sandbox is to copy a pipe to `/dev/null`. The
pipe is full: that it has room tells that everything is mounted; and until we close it, bubblewrap waits. Meanwhile the
mount table of the sandbox is compared with what was meant, from outside, where no command has a hand in it.

A table says which mount lies on which. Its order and its paths alone do not: of several mounts on one place only the
topmost is seen, and a mount on a folder covers those that were made below it before.
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

SECONDS = 10.0  # how long a sandbox may take to be set up; it takes milliseconds, unless the machine is very busy
NEW_ROOT = "/newroot"  # where bubblewrap puts together what becomes the root of the sandbox
_NO_READER = 0x008  # POLLERR, as Linux tells of a pipe that nobody can read
# How the mount table writes these characters (proc_pid_mountinfo(5)); the backslash last, since all begin with one.
_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}


class MountGate:
    """The pipes between us and one bubblewrap. Closing lets that through, so only if it is to go on, or gone.

    With it goes the ruleset of Landlock that the command enters, if any, by its descriptor.
    """

    def __init__(self, rules: int | None = None) -> None:
        self.rules = rules
        self._open: set[int] = set() if rules is None else {rules}
        try:
            self._told, self.info = self._pipe()  # bubblewrap writes to the second one what its process is
            self.held, self._full = self._pipe()  # it reads from the first one, and waits there
            self.options, self._saying = self._pipe()  # it reads its options from the first one
            self.mounting, self._telling = (
                self._pipe()
            )  # who mounts for it reads from the first one what its process is
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
        """Close our copies of the ends that bubblewrap has, once it was started or could not be."""
        self._close(self.info, self.held, self.options)

    def tell(self, process: int = 0) -> None:
        """Tell who mounts for it what its process is, or that it has none."""
        if process:
            os.write(self._telling, str(process).encode())
        self._close(self.mounting, self._telling)

    def say(self, options: Iterable[str]) -> None:
        """Tell bubblewrap its options. Blocks while it does not read, up to a `TimeoutError`."""
        rest = memoryview(os.fsencode("".join(f"{option}\0" for option in options)))
        # One that has ended printed why.
        with suppress(BrokenPipeError):
            while rest:
                if not self._poll(self._saying, SECONDS):
                    raise TimeoutError
                rest = rest[os.write(self._saying, rest) :]
        self._close(self._saying)

    async def wait_mounted(self, seconds: float = SECONDS) -> None:
        """Wait until everything is mounted; a `TimeoutError` after so long, an `EndedEarlyError` if it ends instead."""
        with anyio.fail_after(seconds):
            await anyio.wait_writable(self._full)
        if self._poll(self._full, 0) & _NO_READER:
            raise EndedEarlyError

    def process(self) -> int:
        """The process that mounts, and waits now; 0 if it was not told. To be asked once."""
        try:
            # It is told before that begins to mount.
            return int(os.read(self._told, 4096).split(b'"child-pid":')[1].split()[0].rstrip(b",}"))
        except (BlockingIOError, ValueError, IndexError):
            return 0

    def check(self, process: int, expected: Iterable[ExpectedMount]) -> bool:
        """Let it go on if what was mounted is what is expected; whether it went on, where not, it waits still."""
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
        """Close what is open. May be called again."""
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
    number: str  # by which other lines call it
    parent: str  # the mount that it lies on
    device: str  # of its file system
    what: str  # the path in its file system
    at: str  # where it is mounted
    is_read_only: bool  # whether nothing can be changed through it


class ExpectedMount(NamedTuple):
    """A mount that a sandbox is to have, on top of all others on its place."""

    at: str
    device: str  # of its file system
    what: str  # the path in its file system
    is_read_only: bool  # whether nothing can be changed through it
    # How many mounts lie on each other there, it included; `None` where that may differ. As each has exactly one more
    # than before, none was led to another place by a link.
    layers: int | None = None


class MountTable:
    """What a process has mounted where, as it was when this was made; an `OSError` if it is gone, or not ours.

    Where the folder `top` will be its root, only what lies in that is told.
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
        none = Mount("", "", "", "", "", is_read_only=False)  # where the root is not a mount
        self._lowest = next((each for each in mounts.values() if each.at == "/" and each.number not in upon), none)
        self._upon = {(mount.parent, mount.at): mount for mount in upon.values()}  # what lies on a mount, at a place

    def is_mount_point(self, path: str) -> bool:
        return self._seen(path)[0].at == path

    def bound_first(self, path: str, at: str | None = None, *, is_read_only: bool = False) -> ExpectedMount:
        """What a table has to say of a path without links that is mounted where nothing above it was before.

        It is mounted onto itself, or `at` another place.
        """
        over, _ = self._seen(path)
        what = over.what.rstrip("/") + path[len(over.at.rstrip("/")) :]
        return ExpectedMount(at or path, over.device, what or "/", is_read_only or over.is_read_only)

    def bound(self, path: str, *, is_read_only: bool = False) -> ExpectedMount:
        """The same where a folder above came before, with all that is mounted below it."""
        own, (_, layers) = self.bound_first(path), self._seen(path)
        return own._replace(is_read_only=is_read_only or own.is_read_only, layers=layers + 1)

    def has(self, expected: ExpectedMount) -> bool:
        """Whether a mount is there and seen."""
        seen, layers = self._seen(expected.at)
        is_same = (seen.at, seen.device, seen.what, seen.is_read_only) == expected[:4]
        return is_same and expected.layers in (None, layers)

    def _seen(self, path: str) -> tuple[Mount, int]:
        """The mount on which a path is found, from the root on down, and how many lie on each other at the path."""
        seen, layers = self._lowest, 0
        folders = path.split("/")[1:] if path != "/" else []
        for end in range(len(folders) + 1):
            place, layers = "/" + "/".join(folders[:end]), 0
            while (upon := self._upon.get((seen.number, place))) is not None:
                seen, layers = upon, layers + 1
        return seen, layers
