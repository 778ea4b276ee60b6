"""Where the files with long outputs stand: a private, limited folder for each client, all gone with the server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import threading
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


CLIENT_BYTES = 1 << 30
"""Most bytes kept for one client; the oldest output that is complete goes first."""

PREFIX = "coretools-mcp-"
LOCK_NAME = ".lock"
WRITERS = 2
"""Threads that write. A disk is not quicker with more."""


class _ClientFiles:
    """The files of one client, oldest first, and how many bytes they hold together: a `SpillFolder`.

    Args:
        path: The client's folder.
        most_bytes: They hold together at most.
        writers: Removes them.
        make: Makes the folder.
    """

    def __init__(self, path: str, most_bytes: int, writers: Threads, make: Callable[[str], None]) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._writers = writers
        self._make = make
        self._files: dict[str, Spill] = {}
        self._complete: set[str] = set()
        self._bytes = 0

    def open(self, most_bytes: int) -> Spill:
        """A file that may hold so many bytes."""
        path = os.path.join(self.path, f"output-{os.urandom(8).hex()}.txt")
        spill = self._files[path] = Spill(path, most_bytes, self._writers, self)
        return spill

    def make(self) -> str:
        self._make(self.path)
        return self.path

    def reserve(self, count: int) -> bool:
        for path in list(self._files):
            if self._bytes + count <= self._most_bytes:
                break
            if path in self._complete:
                self.discard(self._files[path])
        if self._bytes + count > self._most_bytes:
            return False
        self._bytes += count
        return True

    def complete(self, spill: Spill) -> None:
        if spill.path in self._files:
            self._complete.add(spill.path)

    def discard(self, spill: Spill) -> None:
        if self._files.pop(spill.path, None) is not None:
            self._complete.discard(spill.path)
            self._bytes -= spill.kept
            self._writers.begin(spill.remove)

    def forget(self) -> None:
        """Know of none of them any more, since the folder is removed."""
        self._files.clear()


class SpillStore:
    """Gives out files for outputs.

    Nothing is made on disk before the first of them is written. The folder of a server that was killed is removed by
    the next one; whether its server lives is told by a lock.

    Args:
        parent: The folder to make ours in; by default the one for temporary files.
        command_bytes: Most bytes kept of one output.
        client_bytes: Most bytes kept for one client.
    """

    def __init__(
        self, parent: str | None = None, *, command_bytes: int = SPILL_BYTES, client_bytes: int = CLIENT_BYTES
    ) -> None:
        self._parent = parent
        self._name = PREFIX + os.urandom(16).hex()
        self._command_bytes = command_bytes
        self._client_bytes = client_bytes
        self._clients: dict[str, _ClientFiles] = {}
        self._writers: Threads | None = None
        self._lock: int | None = None
        self._making = threading.Lock()

    @property
    def folder(self) -> str:
        """Our own folder, a real path. It may not exist yet."""
        if self._parent is None:
            import tempfile  # noqa: PLC0415 - it takes a while, and most servers never need it

            self._parent = tempfile.gettempdir()
        return os.path.join(os.path.realpath(self._parent), self._name)

    def folder_of(self, client_key: str) -> str | None:
        """A client's folder, which may not exist yet; `None` for a client that cannot be told from others."""
        # A key may be a secret, such as a session's id.
        return os.path.join(self.folder, hashlib.sha256(client_key.encode()).hexdigest()[:16]) if client_key else None

    def open(self, client_key: str) -> Spill | None:
        """A file for one output; `None` for a client that cannot be told from others, to which nothing is kept."""
        client = self._client(client_key)
        return None if client is None else client.open(self._command_bytes)

    def private_folder(self, client_key: str) -> Callable[[], str] | None:
        """What makes a client's folder and tells its path, blocking; `None` for a client that has none."""
        client = self._client(client_key)
        return None if client is None else client.make

    def _client(self, client_key: str) -> _ClientFiles | None:
        folder = self.folder_of(client_key)
        if folder is not None and client_key not in self._clients:
            self._clients[client_key] = _ClientFiles(folder, self._client_bytes, self._threads(), self._make)
        return self._clients.get(client_key)

    def forget(self, client_key: str) -> None:
        """Remove all files of a client that does not come back."""
        client = self._clients.pop(client_key, None)
        if client is not None:
            client.forget()
            self._threads().begin(partial(remove_tree, client.path))

    async def aclose(self) -> None:
        """Remove everything."""
        for client in self._clients.values():
            client.forget()
        self._clients.clear()
        writers, self._writers = self._writers, None
        if writers is None:
            return
        await writers.run(self._remove_all)
        writers.close()

    def _threads(self) -> Threads:
        if self._writers is None:
            self._writers = Threads(WRITERS)
        return self._writers

    def _make(self, client_folder: str) -> None:
        with self._making:
            if self._lock is None:
                os.makedirs(self.folder, 0o700, exist_ok=True)
                self._lock = _lock(self.folder)
                _sweep(os.path.dirname(self.folder))
            with suppress(FileExistsError):
                os.mkdir(client_folder, 0o700)

    def _remove_all(self) -> None:
        with self._making:
            lock, self._lock = self._lock, None
            if lock is not None:
                remove_tree(self.folder)
                if lock >= 0:
                    os.close(lock)


def _lock(folder: str) -> int:
    """Lock a folder of ours for as long as this process lives; -1 where files cannot be locked."""
    if sys.platform == "win32":
        return -1
    import fcntl  # noqa: PLC0415 - only where it exists

    # The name that others look for appears when the lock is held.
    name = os.path.join(folder, os.urandom(8).hex())
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(name, os.path.join(folder, LOCK_NAME))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _sweep(parent: str) -> None:
    """Remove the folders of servers that were killed."""
    if sys.platform == "win32":
        return
    import fcntl  # noqa: PLC0415 - only where it exists

    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                descriptor = os.open(os.path.join(entry.path, LOCK_NAME), os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(entry.path)
                finally:
                    os.close(descriptor)


def remove_tree(folder: str) -> None:
    """Remove a folder with all in it, whatever rights it has been given. No link is followed, and what stays is left.

    Args:
        folder: An absolute path.
    """
    import shutil  # noqa: PLC0415 - it takes a while, and most servers never need it

    # What is a thousand folders deep is too deep for it.
    with suppress(RecursionError):
        shutil.rmtree(folder, onerror=_unlock)
        shutil.rmtree(folder, ignore_errors=True)


def _unlock(_call: object, path: str, _error: object) -> None:
    """Give back the rights that a command has taken away from a folder in its `/tmp`, and from that above."""
    for place in (os.path.dirname(path), path):
        with suppress(OSError):
            flags = getattr(os, "O_PATH", 0) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(place, flags)
            try:
                os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
            finally:
                os.close(descriptor)
