"""Reads what a command prints: on the event loop, without blocking, a bounded piece at a time."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

from tools.execution.output import Output

READ_BYTES = 1 << 18
"""Most bytes read in one turn of the event loop; takes some 50 microseconds."""

PIPE_BYTES = 1 << 20
"""A pipe that is read in fewer turns; Linux gives as much to every user (/proc/sys/fs/pipe-max-size), but not to one
who has many such pipes."""

USUAL_PIPE_BYTES = 1 << 16
"""What a pipe holds at first. A command that fills it prints much."""

MOST_WAITING = 1 << 20
"""While more bytes wait for the disk, nothing is read, and the command waits."""


class OutputReader:
    """Fills an output from a descriptor, from now on until its end.

    Args:
        descriptor: Non-blocking; it is not closed here.
        output: What is to be filled.
    """

    def __init__(self, descriptor: int, output: Output) -> None:
        self._descriptor = descriptor
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._is_reading = False
        self._is_large = False
        self._resume()

    @property
    def is_ended(self) -> bool:
        """Whether the end was reached: nobody can print any more."""
        return self._ended.is_set()

    async def wait_ended(self, seconds: float) -> bool:
        """Wait for the end, but not for longer; whether it was reached."""
        if not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        return self._ended.is_set()

    def read_present(self) -> None:
        """Read what has been printed already, however much waits for the disk."""
        for _ in range(PIPE_BYTES // READ_BYTES + 1):
            if not self._read_piece():
                return

    def stop(self) -> None:
        """Read no more."""
        self._pause()
        self._ended.set()

    def _resume(self) -> None:
        if not self._is_reading and not self._ended.is_set():
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _on_readable(self) -> None:
        self._read_piece()
        if self._output.waiting > MOST_WAITING and self._output.spill is not None:
            self._output.spill.on_room = self._on_room
            self._pause()

    def _on_room(self) -> None:
        if self._output.waiting <= MOST_WAITING // 2:
            self._resume()

    def _read_piece(self) -> bool:
        """Read once; whether there may be more."""
        if self._ended.is_set():
            return False
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.stop()
            return False
        self._output.feed(data)
        if len(data) >= USUAL_PIPE_BYTES and not self._is_large:
            self._is_large = True
            _enlarge(self._descriptor)
        return True


def _enlarge(descriptor: int) -> None:
    """Let a pipe hold more, where that is possible."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - only where it exists

        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
