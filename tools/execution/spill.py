"""Files for output that is too long to be shown: one for each command, written by threads, bounded, private.

What a command prints is handed over on the event loop and written in order by a worker thread. Whoever hands over looks
at `waiting` and stops reading while it is large, so a slow disk slows the command and costs no memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from tools.contract.threads import Threads

SPILL_BYTES = 64 << 20
"""Most bytes kept of one command's output; what it prints beyond is counted only."""

JOINED_BYTES = 1 << 14
"""Smaller pieces are joined before they are written."""

PIECE_OVERHEAD = 64
"""Bytes of memory that a piece costs beside its content, so that very small ones count for what they are."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class SpillFolder(Protocol):
    """Where files stand, as they see it."""

    def make(self) -> str:
        """Make the folder, if it is not there yet, and tell its path. Called in a thread of the files."""
        ...

    def reserve(self, count: int) -> bool:
        """Whether so many bytes more may be kept at all."""
        ...

    def complete(self, spill: Spill) -> None:
        """Nothing more is written to a file, so it may make room for others."""
        ...

    def discard(self, spill: Spill) -> None:
        """Nobody needs a file any more."""
        ...


class Spill:
    """The file with one command's output. To be used on the event loop; closed by `close`.

    Args:
        path: Where it will be; made with the first piece.
        limit: Most bytes it may hold.
        writers: Their threads write.
        folder: The one it stands in.
    """

    def __init__(self, path: str, limit: int, writers: Threads, folder: SpillFolder) -> None:
        self.path = path
        self.kept = 0
        """Bytes taken over: those on disk and those that wait."""
        self.missing = 0
        """Bytes that came after the file was full, or could not be written."""
        self.waiting = 0
        """Memory of what was taken over and is not written yet."""
        self.on_room: Callable[[], None] | None = None
        """Called on the event loop each time something was written."""
        self._limit = limit
        self._writers = writers
        self._folder = folder
        self._pending: list[bytes] = []
        self._writing: asyncio.Future[None] | None = None
        self._descriptor: int | None = None
        self._is_closed = False

    @property
    def is_cut(self) -> bool:
        """Whether the file lacks the end of the output."""
        return self.missing > 0

    def write(self, data: bytes) -> None:
        """Take over what was printed next."""
        room = 0 if self.is_cut or self._is_closed else self._limit - self.kept
        taken = data[:room]
        if taken and not self._folder.reserve(len(taken)):
            taken = b""
        self.missing += len(data) - len(taken)
        if not taken:
            return
        self.kept += len(taken)
        self.waiting += len(taken) + PIECE_OVERHEAD
        self._pending.append(taken)
        if self._writing is None:
            self._write_pending()

    async def flush(self) -> None:
        """Wait until all that was taken over is on disk."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Take nothing over any more, and wait until the rest is on disk. May be called again."""
        self._is_closed = True
        try:
            await self.flush()
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                await self._writers.run(partial(os.close, descriptor))
        finally:
            self.on_room = None  # its owner holds this too: the output would be in memory until garbage is looked for
            self._folder.complete(self)

    def discard(self) -> None:
        """Have the file removed, soon."""
        self._folder.discard(self)

    def read_at(self, position: int, length: int) -> bytes:
        """A part of what is on disk. Blocks.

        Raises:
            OSError: The file cannot be read; it may have been removed to make room for newer ones.
        """
        with open(self.path, "rb", buffering=0) as stream:
            stream.seek(position)
            return stream.read(length)

    def _write_pending(self) -> None:
        pieces, self._pending = self._pending, []
        memory = sum(len(piece) + PIECE_OVERHEAD for piece in pieces)
        try:
            future = self._writers.begin(partial(self._append, pieces))
        except RuntimeError:
            # The server ends, and its store is closed already.
            self.waiting -= memory
            self._lose(pieces)
            return
        self._writing = future
        future.add_done_callback(lambda done: self._written(done, pieces, memory))

    def _append(self, pieces: list[bytes]) -> None:
        if self._descriptor is None:
            self._folder.make()
            self._descriptor = os.open(self.path, _FLAGS, 0o600)
        if len(pieces) > 1 and sum(map(len, pieces)) < JOINED_BYTES * len(pieces):
            pieces = [b"".join(pieces)]
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def _written(self, future: asyncio.Future[None], pieces: list[bytes], memory: int) -> None:
        self._writing = None
        self.waiting -= memory
        if future.cancelled() or future.exception() is not None:
            # Most likely the disk is full. What is missing is told; the command itself goes on.
            self.waiting -= sum(len(piece) + PIECE_OVERHEAD for piece in self._pending)
            self._lose([*pieces, *self._pending])
            self._pending = []
        elif self._pending:
            self._write_pending()
        if self.on_room is not None:
            self.on_room()

    def _lose(self, pieces: list[bytes]) -> None:
        lost = sum(map(len, pieces))
        self.kept -= lost
        self.missing += lost

    def remove(self) -> None:
        """Remove the file. Blocks."""
        with suppress(OSError):
            os.unlink(self.path)
