"""Communicates with a running bubblewrap, and checks its mounts before the command begins.

Bubblewrap reads its options from a pipe, so it can start while they are still being prepared.

Bubblewrap mounts some workspace folders by path, while other commands may be working in the same workspace. One of them
could replace a folder with a symlink between the server's check and the mount, so that something else on the machine
would be mounted as writable. Therefore the last step of bubblewrap's setup copies a pipe to `/dev/null`. The pipe is
full at first, so room in it means that everything is mounted. Bubblewrap then waits until the server closes the pipe.
Before that, the sandbox's mount table is compared with the intended one, from outside, where no command can interfere.

The table says which mount is on top of which. Order and paths are not enough: only the topmost of several mounts at a
path is visible, and a mount on a folder covers earlier mounts inside that folder.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import anyio

from tools.contract.tool_errors import exhaustion_of
from tools.files.workspace import contains
from tools.shell.process_spec import EndedEarlyError

SECONDS = 10.0  # time limit for the setup, which takes milliseconds unless the machine is very busy
NEW_ROOT = "/newroot"  # where bubblewrap builds the sandbox's root
_NO_READER = 0x008  # POLLERR: on Linux, a pipe without readers
# Escapes in the mount table (proc_pid_mountinfo(5)). The backslash is last, because all escapes begin with it.
_ESCAPES = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}


class MountGate:
    """The pipes to one bubblewrap process.

    Closing the pipes lets bubblewrap continue, so close them only for that purpose, or after bubblewrap has exited. The
    gate also owns the Landlock ruleset that restricts the command, if any.
    """

    def __init__(self, rules: int | None = None) -> None:
        self.rules = rules
        self._open: set[int] = set() if rules is None else {rules}
        try:
            self._info_read_end, self.info = self._pipe()  # bubblewrap writes the id of its child process to `info`
            self.held, self._full = self._pipe()  # bubblewrap reads from `held`, and waits there
            self.options, self._options_write_end = self._pipe()  # bubblewrap reads its options from `options`
            # The mounting process reads the id of bubblewrap's child process from `mounting`.
            self.mounting, self._mounting_write_end = self._pipe()
            if sys.platform != "win32":
                for ours in (self._info_read_end, self._full, self._options_write_end):
                    os.set_blocking(ours, False)
                with suppress(BlockingIOError):
                    while True:
                        os.write(self._full, bytes(1 << 16))
        except BaseException:
            self.close()
            raise

    def close_child_ends(self) -> None:
        """Close the server's copies of bubblewrap's pipe ends, once bubblewrap has started or failed to start."""
        self._close(self.info, self.held, self.options)

    def send_pid(self, process: int = 0) -> None:
        """Send the id of bubblewrap's child to the mounting process, unless `process` is 0, and close the pipe."""
        if process:
            os.write(self._mounting_write_end, str(process).encode())
        self._close(self.mounting, self._mounting_write_end)

    def send_options(self, options: Iterable[str]) -> None:
        """Send the options to bubblewrap. Blocking. Raises a `TimeoutError` if bubblewrap does not read them."""
        unsent = memoryview(os.fsencode("".join(f"{option}\0" for option in options)))
        # If bubblewrap has exited, its output says why.
        with suppress(BrokenPipeError):
            while unsent:
                if not self._poll(self._options_write_end, SECONDS):
                    raise TimeoutError
                unsent = unsent[os.write(self._options_write_end, unsent) :]
        self._close(self._options_write_end)

    async def wait_mounted(self, seconds: float = SECONDS) -> None:
        """Wait until all is mounted. Raises a `TimeoutError`, or an `EndedEarlyError` if bubblewrap has exited."""
        with anyio.fail_after(seconds):
            await anyio.wait_writable(self._full)
        if self._poll(self._full, 0) & _NO_READER:
            raise EndedEarlyError

    def process(self) -> int:
        """Return the id of the waiting process that made the mounts, or 0 if unknown. Call it only once."""
        try:
            # Bubblewrap sends the id before it mounts.
            return int(os.read(self._info_read_end, 4096).split(b'"child-pid":')[1].split()[0].rstrip(b",}"))
        except (BlockingIOError, ValueError, IndexError):
            return 0

    def check(self, process: int, expected: Iterable[ExpectedMount]) -> bool:
        """If bubblewrap's mounts are as expected, let it continue and return True. Otherwise, leave it waiting."""
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
        """Close all descriptors that are still open. May be called repeatedly."""
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
    number: str  # mount id, which is the `parent` of mounts on top of it
    parent: str  # id of the mount that this one is on top of
    device: str  # device of the mounted file system
    source: str  # path of the mounted file or folder in that file system
    at: str  # the mount point
    is_read_only: bool  # whether the mount is read-only


class ExpectedMount(NamedTuple):
    """A mount that must be the topmost one at its path in the sandbox."""

    at: str
    device: str  # device of the mounted file system
    source: str  # path of the mounted file or folder in that file system
    is_read_only: bool  # whether the mount is read-only
    # Number of mounts at this path, including this one; `None` if the number may vary. Otherwise, the path must have
    # exactly one more mount than before, which shows that no symlink redirected a mount.
    layers: int | None = None


class MountTable:
    """The current mounts of a process. Raises an `OSError` if the process is gone or belongs to another user.

    `top` is the folder that the process is about to make its root. Only mounts inside it are included.
    """

    def __init__(self, process: int | str = "self", top: str = "") -> None:
        mounts: dict[str, Mount] = {}
        with open(f"/proc/{process}/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            for line in lines:
                if top not in line:
                    continue
                number, parent, device, source, at, options, _ = line.split(" ", 6)
                if contains(top or "/", at):
                    at = at.removeprefix(top)
                    if "\\" in line:
                        for character, escape in _ESCAPES.items():
                            source, at = source.replace(escape, character), at.replace(escape, character)
                    mounts[number] = Mount(number, parent, device, source, at or "/", "ro" in options.split(","))
        nested_mounts = [mount for mount in mounts.values() if mount.parent in mounts and mount.parent != mount.number]
        roots = (mount for mount in mounts.values() if mount.at == "/" and mount not in nested_mounts)
        self._lowest = next(roots, Mount("", "", "", "", "", is_read_only=False))  # if the root is not a mount
        # Keyed by parent id and path
        self._mounts_on = {(mount.parent, mount.at): mount for mount in nested_mounts}

    def is_mount_point(self, path: str) -> bool:
        return self._visible_mount(path)[0].at == path

    def bound_first(self, path: str, at: str | None = None, *, is_read_only: bool = False) -> ExpectedMount:
        """Return the expected mount of a path without symlinks, provided that no folder above it is mounted earlier.

        The path is mounted onto itself, or at `at`.
        """
        mount, _ = self._visible_mount(path)
        source = mount.source.rstrip("/") + path[len(mount.at.rstrip("/")) :]
        return ExpectedMount(at or path, mount.device, source or "/", is_read_only or mount.is_read_only)

    def names_of(self, path: str) -> Iterator[str]:
        """Yield the paths at which mounts show a path without symlinks, including those that other mounts hide."""
        _, device, source, _, _ = self.bound_first(path)
        for mount in (self._lowest, *self._mounts_on.values()):
            if mount.device == device and contains(mount.source, source):
                yield os.path.join(mount.at, source[len(mount.source) :].lstrip("/")).rstrip("/")

    def bound(self, path: str, *, is_read_only: bool = False) -> ExpectedMount:
        """Like `bound_first`, but for a path inside a folder that was recursively bind-mounted earlier."""
        bound_mount, (_, layers) = self.bound_first(path), self._visible_mount(path)
        return bound_mount._replace(is_read_only=is_read_only or bound_mount.is_read_only, layers=layers + 1)

    def has(self, expected: ExpectedMount) -> bool:
        """Return True if the expected mount exists and is visible."""
        mount, layers = self._visible_mount(expected.at)
        is_same = (mount.at, mount.device, mount.source, mount.is_read_only) == expected[:4]
        return is_same and expected.layers in (None, layers)

    def _visible_mount(self, path: str) -> tuple[Mount, int]:
        """Return the visible mount at a path, found from the root down, and the number of mounts at that path."""
        mount, layers = self._lowest, 0
        folders = path.split("/")[1:] if path != "/" else []
        for end in range(len(folders) + 1):
            place, layers = "/" + "/".join(folders[:end]), 0
            while (upper_mount := self._mounts_on.get((mount.number, place))) is not None:
                mount, layers = upper_mount, layers + 1
        return mount, layers
