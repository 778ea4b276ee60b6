"""The private folders of clients, for long outputs and `/tmp`. They are removed when the server exits.

The clients' caches are managed here too, but are kept for the next session.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import math
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import anyio

from tools.contract.tool_errors import ExhaustedError
from tools.files.change.writer import try_lock
from tools.files.path_opener import open_folder, open_private_folder
from tools.machine.threads import Threads

FILE_BYTES = 64 << 20  # bytes kept per output; the rest is only counted
CLIENT_BYTES = 1 << 30  # bytes of outputs kept per client; the oldest complete output is removed first
DEEPEST = 100  # maximum nesting depth of folders to merge or keep, because each level needs an open descriptor
MAX_TEMPORARY = 50_000  # a client's folder that has this many files and folders is emptied
PIECE_OVERHEAD = 64  # bytes of memory per piece of output in addition to its content; matters for very small pieces
PREFIX = "coretools-mcp-"
LOCK_NAME = ".lock"
OUTPUTS = "outputs"  # the folder with a client's long outputs and large results
SCRATCH, SCRATCH_OF_PLAN = "tmp", "plan-tmp"  # the folders that serve as a client's `/tmp`
CACHE_DAYS = 30  # unused caches of workspaces are removed after this many days
WORK = "work"  # the folder that serves as `/var/tmp` for commands that can change files
# How long a server that created no folder may take, when it exits, to remove the folders of killed servers
STALE_REMOVAL_SECONDS = 1.0
WRITERS = 2  # writer threads; more would not make a disk faster
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class OutputFile:
    """A file with a program's output, created when needed. Its owner closes it. Only `read_at` is thread-safe."""

    def __init__(self, folder: PrivateFolder) -> None:
        self.path = os.path.join(folder.outputs, f"output-{os.urandom(8).hex()}.txt")
        self.kept_bytes = 0  # bytes accepted, both on disk and still to be written
        self.missing = 0  # bytes that did not fit or could not be written
        self.waiting = 0  # bytes of memory for accepted data that is still to be written
        self.on_written: Callable[[], None] | None = None  # called on the event loop after each write
        self.is_complete = False  # whether nothing more will be written; the file may then be removed to make room
        self.folder = folder
        self._pending: list[bytes] = []
        self._writing: asyncio.Future[None] | None = None
        self._descriptor: int | None = None
        self._is_closed = False

    def write(self, data: bytes) -> None:
        # Once a part is missing, nothing more is kept, so the file always contains the beginning of the output.
        accepted_data = b"" if self.missing or self._is_closed else data[: self.folder.file_bytes - self.kept_bytes]
        if accepted_data and not self.folder.reserve(len(accepted_data)):
            accepted_data = b""
        self.missing += len(data) - len(accepted_data)
        if accepted_data:
            self.kept_bytes += len(accepted_data)
            self.waiting += len(accepted_data) + PIECE_OVERHEAD
            self._pending.append(accepted_data)
            if self._writing is None:
                self._begin_writing()

    async def flush(self) -> None:
        """Wait until all accepted data is on disk."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Accept no more data, and wait until the rest is on disk. May be called again."""
        self._is_closed = True
        try:
            await self.flush()
            if (closing := self._begin_closing()) is not None:
                await asyncio.wait([closing])
                closing.result()
        finally:
            self.on_written = None  # breaks a reference cycle, to free the output's memory at once
            self.is_complete = True

    def read_at(self, position: int, length: int) -> bytes:
        """Read part of the file. Raises an `OSError` if the file was removed to make room for newer ones. Blocking.

        If the file was replaced, for example by a symlink, the replacement is not read.
        """
        folder, name = os.path.split(self.path)
        with open_folder(folder, to_list=False) as folder_handle, folder_handle.open_file(name) as file:
            file.stream.seek(position)
            return file.stream.read(length)

    def _begin_closing(self) -> asyncio.Future[None] | None:
        descriptor, self._descriptor = self._descriptor, None
        return self.folder.writers.begin(partial(os.close, descriptor)) if descriptor is not None else None

    def _begin_writing(self) -> None:
        pieces, self._pending = self._pending, []
        try:
            writing = self.folder.writers.begin(partial(self._append, pieces))
        except (RuntimeError, ExhaustedError):
            # The server is shutting down, or the system cannot create a thread.
            self._account_for(pieces, is_lost=True)
        else:
            self._writing = writing
            writing.add_done_callback(partial(self._on_done, pieces))

    def _append(self, pieces: list[bytes]) -> None:
        if self._descriptor is None:
            self.folder.make()
            with suppress(FileExistsError):
                os.mkdir(self.folder.outputs, 0o700)
            self._descriptor = os.open(self.path, _FLAGS, 0o600)
        rest = memoryview(b"".join(pieces))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def _on_done(self, pieces: list[bytes], writing: asyncio.Future[None]) -> None:
        self._writing = None
        is_lost = writing.cancelled() or writing.exception() is not None
        if is_lost:
            # The disk is probably full. Report the missing part, and let the command continue.
            pieces, self._pending = [*pieces, *self._pending], []
        self._account_for(pieces, is_lost=is_lost)
        if self._pending:
            self._begin_writing()
        elif self.is_complete:  # `close` stopped waiting before this write was done
            with suppress(RuntimeError, ExhaustedError):
                self._begin_closing()
        if self.on_written is not None:
            self.on_written()

    def _account_for(self, pieces: list[bytes], *, is_lost: bool) -> None:
        size = sum(map(len, pieces))
        self.waiting -= size + PIECE_OVERHEAD * len(pieces)
        if is_lost:
            self.kept_bytes -= size
            self.missing += size
            self.folder.release(self, size)


@dataclass(slots=True)
class PrivateFolder:
    """A client's folder, and the outputs in it."""

    path: str  # absolute, without symlinks; it need not exist yet
    file_bytes: int  # bytes kept per output
    total_bytes: int  # bytes kept for all outputs together
    writers: Threads  # the threads that write and remove the files
    make_folder: Callable[[str], None]  # creates the folder at a path if it does not exist; blocking
    files: dict[str, OutputFile] = field(default_factory=dict[str, OutputFile], init=False)  # the oldest first
    _bytes: int = field(default=0, init=False)

    @property
    def outputs(self) -> str:
        return os.path.join(self.path, OUTPUTS)

    def open(self) -> OutputFile:
        file = OutputFile(self)
        self.files[file.path] = file
        return file

    def make(self) -> str:
        """Create the folder if it does not exist, and return its path. Blocking."""
        self.make_folder(self.path)
        return self.path

    def reserve(self, count: int) -> bool:
        """Return True if `count` more bytes may be kept. Removes the oldest complete outputs to make room."""
        for file in list(self.files.values()):
            if self._bytes + count <= self.total_bytes:
                break
            if file.is_complete:
                self.discard(file)
        if self._bytes + count > self.total_bytes:
            return False
        self._bytes += count
        return True

    def release(self, file: OutputFile, count: int) -> None:
        """Undo `reserve` for bytes that could not be written."""
        if file.path in self.files:  # otherwise `discard` has released all bytes of the file
            self._bytes -= count

    def discard(self, file: OutputFile) -> None:
        if self.files.pop(file.path, None) is not None:
            self._bytes -= file.kept_bytes

            def remove() -> None:
                with suppress(OSError):
                    os.unlink(file.path)

            self.writers.begin(remove)


class PrivateFolders:
    """The folders of all clients, in this server's own folder.

    Nothing is created on disk before it is needed. The folder of a killed server is removed when another server creates
    its folder or exits. A lock shows whether a server is alive.
    """

    def __init__(
        self,
        parent: str | None = None,  # the parent of the server's folder; `None` for the temporary folder
        *,
        caches: str | None = None,  # the folder for caches that outlast the server
        comes_back: Callable[[str], bool] = bool,  # whether a client's key refers to the same person after a restart
        file_bytes: int = FILE_BYTES,
        client_bytes: int = CLIENT_BYTES,
    ) -> None:
        self._parent = parent
        self._caches = caches
        self._comes_back = comes_back
        self._name = PREFIX + os.urandom(16).hex()
        self._file_bytes = file_bytes
        self._client_bytes = client_bytes
        self._clients: dict[str, PrivateFolder] = {}
        self._writers = Threads(WRITERS)
        self._lock: int | None = None
        self._making_lock = threading.Lock()

    @property
    def path(self) -> str:
        """The real path of the server's own folder, which may not exist yet."""
        if self._parent is None:
            import tempfile  # noqa: PLC0415 - slow to import and rarely needed

            try:
                self._parent = tempfile.gettempdir()
            except FileNotFoundError:
                # No temporary folder is writable. Only calls that need a private folder fail, when they try to create
                # it.
                self._parent = os.environ.get("TMPDIR") or os.path.abspath(os.path.join(os.sep, "tmp"))
        return os.path.join(os.path.realpath(self._parent), self._name)

    def path_of(self, client_key: str) -> str | None:
        """Return the path of a client's folder, which may not exist yet, or `None` for an anonymous client."""
        # The path contains only a hash of the key, because a key, such as a session's id, may be secret.
        return os.path.join(self.path, hashlib.sha256(client_key.encode()).hexdigest()[:16]) if client_key else None

    def scratch_of(self, client_key: str, *, is_plan: bool) -> str | None:
        """Return the path of a client's `/tmp`, which may not exist yet, or `None` for an anonymous client.

        Plan mode has a `/tmp` of its own.
        """
        path = self.path_of(client_key)
        return os.path.join(path, SCRATCH_OF_PLAN if is_plan else SCRATCH) if path is not None else None

    def make_scratch(self, path: str) -> None:
        """Create the folder at a path that `scratch_of` returned, if it does not exist. Blocking."""
        self._make(os.path.dirname(path))
        make_open_folder(path)

    def cache_of(self, client_key: str, roots: Iterable[str]) -> str | None:
        """Return a folder for package managers' downloads. The folder is kept for the next session. Blocking.

        Each cache belongs to one client and one workspace, so its contents can affect only commands that the workspace
        could affect anyway. Returns `None` for a client that will not return, or if the folder cannot be created.
        """
        if self._caches is None or not self._comes_back(client_key):
            return None
        key = "\0".join((client_key, *sorted(roots))).encode("utf-8", "surrogateescape")
        folder = os.path.join(self._caches, hashlib.sha256(key).hexdigest()[:16])
        try:
            with open_private_folder(self._caches, makes=True) as caches:
                for name in caches.names() if not os.path.lexists(folder) else ():
                    info = caches.stat(name)
                    if info is not None and info.st_mtime < time.time() - CACHE_DAYS * 86_400:
                        remove_tree(os.path.join(self._caches, name))
            with open_private_folder(folder, makes=True):
                os.utime(folder)
        except OSError:
            return None  # commands also work without a cache
        return folder

    def forget_plan(self, client_key: str) -> None:
        """Remove the `/tmp` of a client's plan mode. Called when plan mode ends."""
        self._remove(self.scratch_of(client_key, is_plan=True))

    def folder(self, client_key: str) -> PrivateFolder | None:
        """Return a client's folder, or `None` for an anonymous client, which has none."""
        path = self.path_of(client_key)
        if path is not None and client_key not in self._clients:
            self._clients[client_key] = PrivateFolder(
                path, self._file_bytes, self._client_bytes, self._writers, self._make
            )
        return self._clients.get(client_key)

    def make(self, name: str) -> str:
        """Create a folder that belongs to no client, and return its path. Blocking."""
        path = os.path.join(self.path, name)
        self._make(path)
        return path

    def forget(self, client_key: str) -> None:
        """Remove all files of a client that will not return."""
        client = self._clients.pop(client_key, None)
        if client is not None:
            client.files.clear()
        self._remove(self.path_of(client_key))

    async def aclose(self) -> None:
        for client in self._clients.values():
            client.files.clear()
        self._clients.clear()
        writers, self._writers = self._writers, Threads(WRITERS)
        # Removing the folders of killed servers must not delay the exit. Another server removes what is left.
        with (
            suppress(OSError, ExhaustedError),
            anyio.move_on_after(math.inf if self._lock is not None else STALE_REMOVAL_SECONDS),
        ):
            await writers.run(self._remove_all)
        writers.close()

    def _remove(self, path: str | None) -> None:
        if path is not None and self._lock is not None and os.path.lexists(path):  # without a lock, nothing was created
            # Rename the folder first, because the client may need a new folder before everything is removed.
            renamed_path = f"{path}-{os.urandom(8).hex()}"
            os.rename(path, renamed_path)
            self._writers.begin(partial(remove_tree, renamed_path))

    def _make(self, client_folder: str) -> None:
        with self._making_lock:
            # The server's folder may be missing even later, if a program that cleans `/tmp` has removed it.
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open_private_folder(self.path, makes=True):
                pass
            if self._lock is None or not os.path.lexists(os.path.join(self.path, LOCK_NAME)):
                old_lock, self._lock = self._lock, _lock(self.path)
                if old_lock is not None and old_lock >= 0:
                    os.close(old_lock)
            with suppress(FileExistsError):
                os.mkdir(client_folder, 0o700)

    def _remove_all(self) -> None:
        with self._making_lock:
            lock, self._lock = self._lock, None
            if lock is None:
                _remove_stale_folders(os.path.dirname(self.path))
                return
            remove_tree(self.path)
            if lock >= 0:
                os.close(lock)


def make_open_folder(path: str) -> None:
    """Create a folder with the mode of `/tmp` if it does not exist. Its parent must be private."""
    with suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, 0o1777)  # noqa: S103 - the parent is private


def _lock(folder: str) -> int:
    """Lock this server's folder until the process exits, and remove those of killed servers. Return -1 on Windows."""
    if sys.platform == "win32":
        return -1
    import fcntl  # noqa: PLC0415 - POSIX only

    # The lock file gets its final name only when it is locked, so no other server finds it unlocked.
    name = os.path.join(folder, os.urandom(8).hex())
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(name, os.path.join(folder, LOCK_NAME))
    except OSError:
        os.close(descriptor)
        raise
    _remove_stale_folders(os.path.dirname(folder))
    return descriptor


def _remove_stale_folders(parent: str) -> None:
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                lock = os.open(os.path.join(entry.path, LOCK_NAME), os.O_RDWR | os.O_NOFOLLOW)
                try:
                    if try_lock(lock):
                        remove_tree(entry.path)
                finally:
                    os.close(lock)


def move_entries(source: str, target: str) -> None:
    """Move the entries of a private folder to another one. Merges folders and replaces files. Blocking.

    If a folder in the target has the name of a file in the source, that folder is renamed. Folders are merged only up
    to the depth `DEEPEST`; deeper entries stay in the source. Commands may replace anything in the target with symlinks
    at any time; symlinks are not followed.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

    def move(
        source_path: str, source_parent: int | None, target_parent: int | None, target_path: str, depth: int
    ) -> None:
        with ExitStack() as stack:
            source_folder = os.open(source_path, flags, dir_fd=source_parent)
            stack.callback(os.close, source_folder)
            target_folder = os.open(target_path, flags, dir_fd=target_parent)
            stack.callback(os.close, target_folder)
            for name in os.listdir(source_folder):
                with suppress(OSError):
                    try:
                        os.rename(name, name, src_dir_fd=source_folder, dst_dir_fd=target_folder)
                    except NotADirectoryError:
                        os.unlink(name, dir_fd=target_folder)
                        os.rename(name, name, src_dir_fd=source_folder, dst_dir_fd=target_folder)
                    except IsADirectoryError:
                        os.rename(
                            name, f"{name}-{os.urandom(4).hex()}", src_dir_fd=target_folder, dst_dir_fd=target_folder
                        )
                        os.rename(name, name, src_dir_fd=source_folder, dst_dir_fd=target_folder)
                    except OSError as error:
                        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and depth < DEEPEST:
                            move(name, source_folder, target_folder, name, depth + 1)

    move(source, None, None, target, 0)


def remove_tree(folder: str) -> None:
    """Remove a folder with all its contents, regardless of permissions. Never follows symlinks or raises errors."""
    if sys.platform == "win32":
        import shutil  # noqa: PLC0415 - slow to import and rarely needed

        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        with _own_folder(folder) as top:
            # The lock file is removed last: if this process is killed before that, another server removes the rest.
            _empty(top, kept_name=LOCK_NAME)
            _empty(top)
        os.rmdir(folder)


def empty_if_large(folder: str, most_bytes: int) -> tuple[int, int]:
    """Empty a client's folder if it is too large or too deep.

    Returns the numbers of bytes and entries counted, or zeros if nothing was removed.
    """
    size, count, is_too_large = measure_folder(folder, most_bytes)
    if not is_too_large:
        return 0, 0
    with _own_folder(folder) as top:
        _empty(top, EMPTYING_SECONDS)
    return size, count


def measure_folder(folder: str, most_bytes: int) -> tuple[int, int, bool]:
    """Return the numbers of bytes and entries counted in a client's folder, and whether it is too large or too deep."""
    if sys.platform == "win32":
        raise NotImplementedError
    size = count = 0
    is_deep = False
    with _own_folder(folder) as top:
        # The folders from the top to the current one, each with its remaining entries
        open_folders = [(top, _entries(top))]
        while open_folders and count < MAX_TEMPORARY and not is_deep:
            parent, entries = open_folders[-1]
            if (entry := next(entries, None)) is None:
                open_folders.pop()
                if open_folders:
                    os.close(parent)
                continue
            count += 1
            with suppress(OSError):
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    inner = _open_own(entry.name, parent)
                    open_folders.append((inner, iter(())))  # at once, so that it is closed even if it cannot be listed
                    open_folders[-1] = inner, _entries(inner)
                    is_deep = len(open_folders) > DEEPEST
        for descriptor, _ in open_folders[1:]:
            os.close(descriptor)
    return size, count, size > most_bytes or count >= MAX_TEMPORARY or is_deep


EMPTYING_SECONDS = 2.0  # time limit for emptying a folder, because other commands may keep writing to it


def _entries(folder: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return iter([*islice(entries, MAX_TEMPORARY)])


def _open_own(name: str, folder: int | None) -> int:
    """Open a folder of this server without following symlinks. On Linux, restores access that a command removed."""
    if sys.platform == "linux":
        descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            mode = os.fstat(descriptor).st_mode
            if mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{descriptor}", mode | 0o700)
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    flags = os.O_RDONLY if sys.platform == "win32" else os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    return os.open(name, flags, dir_fd=folder)


@contextmanager
def _own_folder(name: str, folder: int | None = None) -> Generator[int]:
    descriptor = _open_own(name, folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _empty(top: int, seconds: float = math.inf, *, kept_name: str = "") -> None:
    """Remove the contents of an open folder, except the entry `kept_name`.

    There is a time limit, because commands may keep adding entries. Nested folders are moved to the top before they are
    emptied, so that none is too deep.
    """
    deadline = time.monotonic() + seconds

    def is_folder(name: str, folder: int) -> bool:
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            return True
        return False

    has_removed = True
    while has_removed and time.monotonic() < deadline:
        has_removed = False
        for name in os.listdir(top):
            with suppress(OSError):
                if name == kept_name or not is_folder(name, top):
                    continue
                with _own_folder(name, top) as inner:
                    for child in os.listdir(inner):
                        with suppress(OSError):
                            if is_folder(child, inner):
                                # Opening the folder restores its write permission, without which it cannot be moved.
                                os.close(_open_own(child, inner))
                                os.rename(child, os.urandom(16).hex(), src_dir_fd=inner, dst_dir_fd=top)
                os.rmdir(name, dir_fd=top)
                has_removed = True


def make_mount_point(folder: str, names: Sequence[str], *, is_file: bool) -> bool:
    """Create a mount point inside a client's folder, at the path made of `names`. Return True if a file was created.

    Entries of the wrong kind in this path are renamed. Symlinks, which commands may create, are not followed.
    """
    if sys.platform != "linux":
        raise NotImplementedError
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    is_new = False
    with ExitStack() as stack:
        parent = os.open(folder, flags)
        stack.callback(os.close, parent)
        for remaining, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
            wants_file = is_file and remaining == 0
            with suppress(FileNotFoundError):
                mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                if not (stat.S_ISREG(mode) if wants_file else stat.S_ISDIR(mode)):
                    os.rename(name, f"{name}-{os.urandom(4).hex()}", src_dir_fd=parent, dst_dir_fd=parent)
            with suppress(FileExistsError):
                if wants_file:
                    os.close(os.open(name, _FLAGS, 0o644, dir_fd=parent))
                    is_new = True
                else:
                    os.mkdir(name, 0o755, dir_fd=parent)
            if not wants_file:
                parent = os.open(name, flags, dir_fd=parent)
                stack.callback(os.close, parent)
    return is_new
