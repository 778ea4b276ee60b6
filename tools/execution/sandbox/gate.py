"""Talks with a bubblewrap that was started, and holds it before its command begins.

It reads its options from a pipe, so that it can be started while they are still being found out.

What stays as it is in a workspace is mounted by path, and other commands may be at work in the same workspace: one of
them can put a link in place of a folder between our look and the mount, so that something else of the machine is
mounted, writable. So the last thing that bubblewrap does for the sandbox is to copy a pipe of ours to `/dev/null`. The
pipe is full: that it has room tells that everything is mounted; and until we close it, bubblewrap waits. Meanwhile the
mount table of the sandbox is compared with what was meant, from outside, where no command has a hand in it.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress

import anyio

from tools.contract.resources import exhaustion_of
from tools.execution.sandbox.mount_table import Expected, MountTable

SECONDS = 10.0
"""How long a sandbox may take to be set up; it takes milliseconds, unless the machine is very busy."""

NEW_ROOT = "/newroot"
"""Where bubblewrap puts together what becomes the root of the sandbox."""

_NO_READER = 0x008
"""POLLERR, as Linux tells of a pipe that nobody can read."""

_CHILD = b'"child-pid":'
"""What stands before the process id in what bubblewrap tells."""


class Gate:
    """Three pipes between us and one bubblewrap. To be closed, which lets it through: only if it is to go on, or gone.

    Raises:
        OSError: There are no descriptors left.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        try:
            self._told, self.info = self._pipe()
            """Bubblewrap writes to the second one what its process is."""
            self.held, self._full = self._pipe()
            """It reads from the first one, and waits there."""
            self.options, self._saying = self._pipe()
            """It reads its options from the first one."""
            if sys.platform != "win32":
                os.set_blocking(self._told, False)
                os.set_blocking(self._full, False)
                os.set_blocking(self._saying, False)
                with suppress(BlockingIOError):
                    while True:
                        os.write(self._full, bytes(1 << 16))
        except BaseException:
            self.close()
            raise

    def give_away(self) -> None:
        """Close our copies of the ends that bubblewrap has, once it was started or could not be."""
        self._close(self.info, self.held, self.options)

    def say(self, options: Iterable[str]) -> None:
        """Tell bubblewrap its options. Blocks while it does not read.

        Raises:
            TimeoutError: It does not read for some seconds.
        """
        rest = memoryview(os.fsencode("".join(f"{option}\0" for option in options)))
        # One that has ended printed why.
        with suppress(BrokenPipeError):
            while rest:
                if not self._poll(self._saying, SECONDS):
                    raise TimeoutError
                rest = rest[os.write(self._saying, rest) :]
        self._close(self._saying)

    async def look(self, expected: Iterable[Expected], seconds: float = SECONDS) -> bool:
        """Wait until everything is mounted, and let it go on if that is what is expected.

        Args:
            expected: What the mount table has to say.
            seconds: How long to wait.

        Returns:
            Whether it was let on, or has ended by itself before. Where not, it waits still.

        Raises:
            TimeoutError: It takes too long.
        """
        with anyio.move_on_after(seconds):
            await anyio.wait_writable(self._full)
        return self._decide(expected)

    def look_for(self, expected: Iterable[Expected], seconds: float) -> bool:
        """The same, blocking."""
        self._poll(self._full, seconds)
        return self._decide(expected)

    def close(self) -> None:
        """Close what is open. May be called again."""
        self._close(*self._open)

    def _decide(self, expected: Iterable[Expected]) -> bool:
        state = self._poll(self._full, 0)
        if not state:
            raise TimeoutError
        # Without a reader it has ended, and printed why.
        is_passed = bool(state & _NO_READER) or self._is_as(expected)
        if is_passed:
            self.close()
        return is_passed

    def _is_as(self, expected: Iterable[Expected]) -> bool:
        # It tells its process before that begins to mount.
        try:
            process = int(os.read(self._told, 4096).split(_CHILD)[1].split()[0].rstrip(b",}"))
            return all(map(MountTable(process, NEW_ROOT).has, expected))
        except (OSError, ValueError, IndexError) as error:
            if exhaustion_of(error) is not None:
                raise
            return False

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
