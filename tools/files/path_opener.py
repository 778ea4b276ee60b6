"""Opens regular files without blocking, and folders as descriptors that stay valid if their path changes.

A real path is opened without following symlinks, with one system call if the kernel supports it, otherwise folder by
folder. This module does not know the workspace's roots: `tools.files.workspace` calls it for files inside the roots.
Files that may be above the root, such as ignore files and git's own files, are not opened through the workspace. No
tool shows their content.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache
from io import FileIO
from typing import Generic, NamedTuple, Self, TypeVar

from tools.contract.call_options import AbortSignal

WorkT = TypeVar("WorkT")
Value = TypeVar("Value")
Stamp = tuple[int, int, int]  # inode, modification time and change time; programs cannot set the change time
SETTLED_NANOSECONDS = 2_000_000_000  # two changes within this time may get the same timestamp
MAX_LINKS = 40  # symlinks followed in one path (Linux's limit)
# Maximum number of components followed to find a real path, including those in symlinks: twice as many as the longest
# path has. Each needs a disk access: without a limit, forty long symlinks in a path could take a tenth of a second.
MAX_NAMES = 4_096
BLOCK_BYTES = 1 << 20  # size of one read when a file is processed block by block
WHOLE_BLOCK_BYTES = 16 << 20  # size of one read when the whole content is kept in memory
# Whether folders can be opened as descriptors. They cannot on Windows, where a path is first checked and then opened
CAN_STEP = os.open in os.supports_dir_fd
PATH_ONLY: int = getattr(os, "O_PATH", 0)  # flag for a descriptor without read access; 0 if unavailable
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: int = getattr(os, "O_DIRECTORY", 0)
_CLOSED_IN_CHILDREN: int = getattr(os, "O_CLOEXEC", 0)
_STEP_FLAGS = (PATH_ONLY or os.O_RDONLY) | _FOLDER | _NO_LINK
_OPEN_FLAGS: int = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOCTTY", "O_BINARY", "O_NONBLOCK")
)
_OPENAT2 = 437  # the system call's number on x86, Arm, RISC-V, POWER and s390
_AT_FDCWD = -100
_OPEN_HOW = struct.Struct("=QQQ")  # flags, mode and resolve flags
_RESOLVE_NO_LINKS = 0x02 | 0x04  # `RESOLVE_NO_MAGICLINKS` and `RESOLVE_NO_SYMLINKS`
_RESOLVE_CACHED = 0x20
# `AT_EMPTY_PATH` and `AT_STATX_DONT_SYNC`: stat a descriptor without asking a file server
_OF_DESCRIPTOR = 0x1000 | 0x4000
_MODE_AND_DEVICE = struct.Struct("=28xH106xII")  # the mode and the device numbers in `struct statx`
# Magic numbers of file systems on local disks: ext, XFS, Btrfs, F2FS, ZFS, bcachefs. Overlays are not listed, because
# the file system under an overlay may be implemented by a program. tmpfs is not listed, because it does not support
# reads that fail instead of waiting (`RWF_NOWAIT`), and because its device numbers are soon reused.
_LOCAL_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E})
MEMORY_BYTES = 1 << 14  # files up to this size are read on the event loop; decoding more would block noticeably
PAUSE_SECONDS = 0.1  # after a miss, the kernel's cache is not tried for this long
# Maximum attempts to open a path if a signal interrupts the call, or if another program holds a lease on the file
_ATTEMPTS = 100
TEMPORARY_PREFIX = ".coretools-"  # prefix of the temporary files that writes create
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}[0-9a-f]{{16}}\.tmp")


def temporary_name() -> str:
    """Return a new name for a temporary file. Tools hide such files, because the file to be replaced may be hidden."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_PREFIX) and _TEMPORARY.fullmatch(name) is not None


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class NotInMemoryError(Exception):
    """Only cached data was requested, but the kernel would have to wait for a disk or for another process."""


class _Mode(threading.local):
    # Set by `from_memory`; opening and reading then raise `NotInMemoryError` instead of waiting.
    is_memory_only = False


_mode = _Mode()


def from_memory(work: Callable[[], WorkT]) -> WorkT | None:
    """Call `work`, but give up if the kernel cannot answer a file access from its cache.

    `work` must be repeatable, and must call `may_block` before it accesses files other than through this module.
    Returns `None` if `work` would block; the caller then has to call `work` in a thread.
    """
    if (by_kernel := _kernel_opener()) is None or time.monotonic() < by_kernel.memory_pause:
        return None
    _mode.is_memory_only = True
    try:
        return work()
    except NotInMemoryError:
        by_kernel.memory_pause = time.monotonic() + PAUSE_SECONDS
        return None
    finally:
        _mode.is_memory_only = False


def may_block() -> None:
    """Declare that the following code may block or take a long time. Raises `NotInMemoryError` during `from_memory`."""
    if _mode.is_memory_only:
        raise NotInMemoryError


def open_link_free(path: str, flags: int, mode: int = 0) -> int:
    """Open a real path, which is absolute and has no `.` or `..`. Child processes do not inherit the descriptor.

    The flags are those of `os.open`; `O_PATH` and `O_NOFOLLOW` together open a final symlink itself, not its target.
    Raises an `OSError` with `ELOOP` if a component of the path is now a symlink.
    """
    if not CAN_STEP:
        if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
            raise _os_error(errno.ELOOP)
        return os.open(path, flags, mode)
    if (by_kernel := _kernel_opener()) is None:
        return _open_by_steps(path, flags, mode)
    name = os.fsencode(path)
    if b"\0" in name:
        raise _os_error(errno.EINVAL)  # the kernel would read a NUL as the end of the path
    opener = by_kernel.open_from_memory if _mode.is_memory_only else by_kernel.open
    return opener(name, flags | _CLOSED_IN_CHILDREN, mode)


class _KernelOpener:
    """Opens real paths with one system call of Linux.

    The constructor raises an `OSError` if the kernel lacks this system call or a sandbox forbids it.
    """

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - not needed at startup

        # Calls of the second library keep the GIL: releasing it would cost more than a call that does not block.
        library, quick_library = ctypes.CDLL(None, use_errno=True), ctypes.PyDLL(None, use_errno=True)
        self._call, self._quick_call = library.syscall, quick_library.syscall
        for call in (self._call, self._quick_call):
            call.restype = ctypes.c_long
            call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
        self._errno = ctypes.get_errno
        self._statx, self._fstatfs = getattr(quick_library, "statx", None), library.fstatfs
        self._new_buffer = ctypes.create_string_buffer
        self._is_local: dict[int, bool] = {}
        os.close(self.open(os.fsencode(os.sep), os.O_RDONLY | _FOLDER | _CLOSED_IN_CHILDREN, 0))
        try:
            os.close(self.open_from_memory(os.fsencode(os.sep), PATH_ONLY | _CLOSED_IN_CHILDREN, 0))
            # The time before which the kernel's cache is not tried
            self.memory_pause = 0.0 if self._statx is not None else math.inf
        except (OSError, NotInMemoryError):
            self.memory_pause = math.inf

    def open(self, name: bytes, flags: int, mode: int) -> int:
        """Open the path, even if this blocks."""
        open_how, number = _OPEN_HOW.pack(flags, mode, _RESOLVE_NO_LINKS), 0
        for _ in range(_ATTEMPTS):
            descriptor = self._call(_OPENAT2, _AT_FDCWD, name, open_how, _OPEN_HOW.size)
            if descriptor >= 0:
                return descriptor
            number = self._errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        raise _os_error(errno.EBUSY if number == errno.EAGAIN else number)

    def open_from_memory(self, name: bytes, flags: int, mode: int) -> int:
        """Open the path, or raise `NotInMemoryError` if this would block."""
        if sys.platform != "linux":
            raise NotInMemoryError
        if not flags & PATH_ONLY:
            # Skip file systems in user space or on another machine.
            descriptor = self.open_from_memory(name, PATH_ONLY | _CLOSED_IN_CHILDREN, 0)
            try:
                buffer = self._new_buffer(256)
                if self._statx is None or self._statx(descriptor, b"", _OF_DESCRIPTOR, 0, buffer):
                    raise NotInMemoryError
                kind, *device = _MODE_AND_DEVICE.unpack_from(buffer)
            finally:
                os.close(descriptor)
            # Opening a device may take a long time, even if its file is on a local disk.
            if not self._is_local.get(os.makedev(*device)) or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise NotInMemoryError
        open_how = _OPEN_HOW.pack(flags, mode, _RESOLVE_NO_LINKS | _RESOLVE_CACHED)
        descriptor = self._quick_call(_OPENAT2, _AT_FDCWD, name, open_how, _OPEN_HOW.size)
        if descriptor >= 0:
            return descriptor
        number = self._errno()
        if number in (errno.EAGAIN, errno.EINTR, errno.EINVAL):
            raise NotInMemoryError
        raise _os_error(number)

    def probe_device(self, descriptor: int, device: int) -> None:
        """Find out whether files on a device can be opened without blocking. This method itself may block."""
        if device not in self._is_local and not self._fstatfs(descriptor, buffer := self._new_buffer(256)):
            (kind,) = struct.unpack_from("@l", buffer.raw)
            self._is_local[device] = kind & 0xFFFFFFFF in _LOCAL_FILE_SYSTEMS
            if self.memory_pause < math.inf:
                self.memory_pause = 0.0  # try the cache again, because the device is now known


@cache
def _kernel_opener() -> _KernelOpener | None:
    """Return the opener; `None` on systems other than Linux, on old kernels, and in some sandboxes."""
    try:
        return _KernelOpener() if sys.platform == "linux" else None
    except OSError:
        return None


def _open_at(name: str, flags: int, mode: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except BlockingIOError:  # another program holds a lease on the file, and the kernel is breaking the lease
        raise _os_error(errno.EBUSY) from None


def _open_by_steps(path: str, flags: int, mode: int) -> int:
    """Open a real path folder by folder, for kernels that cannot do it in one call. See `open_link_free`."""
    may_block()
    *folders, last = path.strip(os.sep).split(os.sep)
    current = os.open(os.sep, _STEP_FLAGS)

    def open_child(name: str, flags: int) -> int:
        try:
            return _open_at(name, flags, mode, current)
        except NotADirectoryError:
            if stat.S_ISLNK(os.stat(name, dir_fd=current, follow_symlinks=False).st_mode):
                raise _os_error(errno.ELOOP) from None
            raise

    try:
        for folder in folders:
            child = open_child(folder, _STEP_FLAGS)
            os.close(current)
            current = child
        descriptor = open_child(last or os.curdir, flags | _NO_LINK)
    finally:
        os.close(current)
    if flags & PATH_ONLY and not flags & _NO_LINK and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _os_error(errno.ELOOP)
    return descriptor


def lstat(path: str) -> os.stat_result:
    """Return the stat of a real path, without following a final symlink.

    Raises an `OSError` with `ELOOP` if a folder on the path is now a symlink.
    """
    may_block()
    if not PATH_ONLY:
        parent, name = os.path.split(path)
        with open_folder(parent, to_list=False) as folder:
            return os.stat(folder.entry_path(name or os.curdir), dir_fd=folder.descriptor, follow_symlinks=False)
    descriptor = open_link_free(path, PATH_ONLY | _NO_LINK)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def exists(path: str) -> bool:
    """Return True if a real path exists, even as a broken symlink. Raises an `OSError` if that cannot be determined."""
    try:
        if _mode.is_memory_only:
            os.close(open_link_free(path, PATH_ONLY | _NO_LINK))
        else:
            os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def path_without_links(path: str) -> str | None:
    """Return the normalised form of an absolute path that `O_PATH` opens without following a symlink, else `None`."""
    if ".." in path or not PATH_ONLY:
        return None
    normal = os.path.normpath(path)
    try:
        os.close(open_link_free(normal, PATH_ONLY))
    except OSError:
        return None
    return normal


def real_path(path: str, mount: tuple[str, str] | None = None) -> str:
    """Resolve all symlinks of an absolute path. Missing parts stay as written.

    `mount` is a pair of folders: the path and all symlinks are resolved as if the second folder were mounted on the
    first, hiding the first folder's own content. Raises an `OSError` with `ELOOP` if there are too many symlinks.
    """
    if not CAN_STEP:
        return os.path.realpath(path)
    if mount is None and (real := path_without_links(path)) is not None:
        return real
    may_block()
    mount_point, mounted_folder = mount or ("", "")

    def apply_mount(path: str) -> str:
        is_below = mount is not None and (path == mount_point or path.startswith(mount_point + os.sep))
        return mounted_folder + path[len(mount_point) :] if is_below else path

    pending = path.split(os.sep)[::-1]
    real = os.sep
    links = names = 0
    while pending:
        name = pending.pop()
        names += 1
        if name == os.pardir:
            real = os.path.dirname(real)
        elif name not in ("", os.curdir):
            candidate = os.path.join(real, name)
            try:
                target = os.readlink(apply_mount(candidate))
            except OSError:
                real = candidate  # not a symlink; opening it shows whether it exists
            else:
                links += 1
                real = os.sep if target.startswith(os.sep) else real
                pending.extend(target.split(os.sep)[::-1])
        if links > MAX_LINKS or names > MAX_NAMES:
            raise _os_error(errno.ELOOP)
    return apply_mount(real)


class PathKind(Enum):
    """The kind of the entry at a path. A symlink is always a `LINK`, regardless of its target."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    OTHER = "other"  # a device, a pipe or a socket

    @classmethod
    def of_mode(cls, mode: int) -> PathKind:
        if stat.S_ISREG(mode):
            return cls.FILE
        if stat.S_ISDIR(mode):
            return cls.FOLDER
        return cls.LINK if stat.S_ISLNK(mode) else cls.OTHER


class FileIdentity(NamedTuple):
    """A file's fingerprint, taken without reading the file. It is a tuple to save memory: there may be many."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


def identity_of(info: os.stat_result) -> FileIdentity:
    return FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def stamp_of(path: str) -> Stamp | None:
    """Return a stamp that differs after a change of a file's content or of a folder's names.

    Returns `None` if the path is not accessible. The stamp may stay the same if two changes quickly follow each other.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class StampedCache(Generic[Value]):
    """Caches values by key, each with the stamps of the paths that it depends on."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: dict[Hashable, tuple[tuple[tuple[str, Stamp | None], ...], Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        """Return the value if none of its paths has changed, else `None`."""
        entry = self._entries.get(key)
        if entry is None or any(stamp_of(path) != stamp for path, stamp in entry[0]):
            return None
        return entry[1]

    def keep(self, key: Hashable, value: Value, stamps: Iterable[tuple[str, Stamp | None]], examined_at: int) -> None:
        """Keep a value, unless a path changed so recently that another change could go unnoticed.

        `stamps` lists the paths that the value depends on, each with the stamp that it had before it was examined.
        `examined_at` is the time of that examination, in nanoseconds since the epoch.
        """
        stamps = tuple(stamps)
        if all(stamp is None or examined_at - stamp[-1] > SETTLED_NANOSECONDS for _, stamp in stamps):
            if len(self._entries) >= self._max_entries:
                self._entries.clear()
            self._entries[key] = stamps, value


class NotRegularError(OSError):
    def __init__(self, kind: PathKind) -> None:
        super().__init__(errno.EISDIR if kind is PathKind.FOLDER else errno.ENXIO, "not a regular file")
        self.kind = kind


def open_regular(path: str, *, through_links: bool = False) -> OpenedFile:
    """Open a regular file for reading, without blocking. The caller closes it.

    The path is not checked against any root. It must be a real path, unless `through_links` is true. Raises a
    `NotRegularError` for a folder, device, pipe or socket; `ELOOP` if a component of a real path is now a symlink.
    """
    if not through_links:
        return OpenedFile(open_link_free(path, _OPEN_FLAGS))
    may_block()
    return OpenedFile(os.open(path, _OPEN_FLAGS))


class OpenedFile:
    """Owns the descriptor of a regular file. The constructor raises a `NotRegularError` for any other descriptor."""

    __slots__ = ("_descriptor", "_stream", "info")

    def __init__(self, descriptor: int) -> None:
        self.info = os.fstat(descriptor)  # the file's stat at the time of opening
        if not stat.S_ISREG(self.info.st_mode):
            os.close(descriptor)
            raise NotRegularError(PathKind.of_mode(self.info.st_mode))
        self._descriptor = descriptor
        self._stream: FileIO | None = None
        if not _mode.is_memory_only and (by_kernel := _kernel_opener()) is not None:
            by_kernel.probe_device(descriptor, self.info.st_dev)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is None:
            os.close(self._descriptor)
        else:
            self._stream.close()

    @property
    def stream(self) -> FileIO:
        """An unbuffered stream for reading large blocks. Created on first use, because `head` is usually enough."""
        if self._stream is None:
            may_block()
            self._stream = FileIO(self._descriptor)
        return self._stream

    def head(self, size: int) -> bytes:
        """Return up to `size` bytes from the beginning of the file, independently of other reads."""
        # Some kernel-generated files report size 0, so a size of 0 is not a limit.
        byte_count = self.info.st_size + 1 if 0 < self.info.st_size < size else size
        if _mode.is_memory_only:
            if sys.platform != "linux" or not 0 < self.info.st_size <= MEMORY_BYTES:
                raise NotInMemoryError
            buffer = bytearray(self.info.st_size)
            try:
                count = os.preadv(self._descriptor, (buffer,), 0, os.RWF_NOWAIT)
            except OSError:
                raise NotInMemoryError from None
            if count != len(buffer):
                raise NotInMemoryError
            return bytes(buffer)
        if sys.platform != "win32":
            try:
                return os.pread(self._descriptor, byte_count, 0)
            except BlockingIOError:
                raise _os_error(errno.EBUSY) from None
        self.stream.seek(0)
        data = self.stream.read(byte_count)
        self.stream.seek(0)
        return data

    def read_block(self, size: int) -> bytes:
        """Continue to read `stream`: return up to `size` bytes, or none at the end of the file.

        Raises an `OSError` with `EBUSY` if the file is generated on demand and the next bytes do not exist yet.
        """
        block: bytes | None = self.stream.read(size)
        if block is None:
            raise _os_error(errno.EBUSY)
        return block

    def blocks(self, signal: AbortSignal, max_block: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the whole content in blocks, and check for cancellation before each block."""
        self.stream.seek(0)
        remaining = self.info.st_size + 1
        signal.raise_if_aborted()
        while block := self.read_block(min(remaining, max_block)):
            yield block
            remaining = max(remaining - len(block), BLOCK_BYTES)
            signal.raise_if_aborted()

    def whole(self, signal: AbortSignal) -> bytes:
        return b"".join(self.blocks(signal, WHOLE_BLOCK_BYTES))


class Entries(NamedTuple):
    """The names of a folder's entries, grouped by kind, in any order."""

    files: list[str]
    folders: list[str]
    links: list[str]
    others: list[str]
    dot_names: list[str]  # every name that begins with a dot, whatever the kind of entry

    @property
    def total(self) -> int:
        return len(self.files) + len(self.folders) + len(self.links) + len(self.others)


class Folder:
    """An open folder. It stays the same folder if its path later leads elsewhere. Symlinks in it are not followed."""

    __slots__ = ("_path", "descriptor")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self.descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)

    def entry_path(self, name: str) -> str:
        """Return the path of an entry for calls with `dir_fd`: its name, or the whole path without a descriptor."""
        return name if self.descriptor is not None else os.path.join(self._path, name)

    def open_file(self, name: str) -> OpenedFile:
        """Open a regular file in this folder, like `open_regular`. A symlink is refused with `ELOOP`."""
        if self.descriptor is None:
            return open_regular(self.entry_path(name))
        return OpenedFile(_open_at(name, _OPEN_FLAGS | _NO_LINK, 0, self.descriptor))

    def entries(self) -> Entries:
        """Return all entries, except the temporary files that writes create."""
        may_block()
        files, folders, links, others, dot_names = entries = Entries([], [], [], [], [])
        with os.scandir(self._path if self.descriptor is None else self.descriptor) as scan:
            for entry in scan:
                name = entry.name
                if name[0] == ".":
                    if is_temporary(name):
                        continue
                    dot_names.append(name)
                if entry.is_file(follow_symlinks=False):
                    files.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    (links if entry.is_symlink() else others).append(name)
        return entries

    def names(self) -> list[str]:
        may_block()
        return os.listdir(self._path if self.descriptor is None else self.descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the stat of an entry; `None` if it is not accessible."""
        try:
            return os.stat(self.entry_path(name), dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None

    def link_target(self, name: str) -> str:
        """Return the target of a symlink, as stored in it; empty if it cannot be read."""
        try:
            return os.readlink(self.entry_path(name), dir_fd=self.descriptor)
        except OSError:
            return ""


def open_folder(path: str, *, to_list: bool = True) -> Folder:
    """Open the folder at a real path, without checking it against any root.

    If `to_list` is false, Linux also opens a folder without read permission. Raises an `OSError` with `ELOOP` if a
    component of the folder's path is now a symlink.
    """
    if not CAN_STEP:
        return Folder(path, None)
    try:
        return Folder(path, open_link_free(path, _OPEN_FLAGS | _NO_LINK | _FOLDER))
    except PermissionError:
        if to_list or not PATH_ONLY:
            raise
        return Folder(path, open_link_free(path, PATH_ONLY | _NO_LINK | _FOLDER))


def is_ours(info: os.stat_result) -> bool:
    """Return True if a file or folder belongs to this user. Always true on Windows, where a stat has no user id."""
    return sys.platform == "win32" or info.st_uid == os.geteuid()


def open_private_folder(path: str, *, makes: bool) -> Folder:
    """Open a private folder of this user at a real path, and revoke other users' access to it.

    Other users may have created files in it earlier, so the caller must check the owner of each file that it uses. If
    `makes` is true, missing folders are created. Raises an `OSError` if the folder cannot be used; `strerror` is the
    reason, without the path.
    """
    if makes:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or not is_ours(info):
        raise NotADirectoryError(errno.ENOTDIR, "its folder belongs to another user, or is a symlink or a file")
    if sys.platform != "win32" and stat.S_IMODE(info.st_mode) & 0o077:
        os.chmod(path, 0o700)
    return open_folder(path)


@contextmanager
def folder_to_write_in(path: str, base_folder: str) -> Generator[Folder]:
    """Open the folder at a real path. Create missing folders under `base_folder`, and remove them after an error."""
    missing: list[str] = []
    while True:
        try:
            folder = open_folder(path, to_list=False)
            break
        except FileNotFoundError:
            if path == base_folder:
                raise
            path, name = os.path.split(path)
            missing.append(name)
    new_folders: list[str] = []
    try:
        for name in reversed(missing):
            path = os.path.join(path, name)
            with folder:
                try:
                    os.mkdir(folder.entry_path(name), dir_fd=folder.descriptor)
                    new_folders.append(path)
                except FileExistsError:
                    pass  # another process has just created it
            folder = open_folder(path, to_list=False)
        with folder:
            yield folder
    except BaseException:
        for new_folder in reversed(new_folders):
            parent, name = os.path.split(new_folder)
            with suppress(OSError), open_folder(parent, to_list=False) as parent_folder:
                os.rmdir(parent_folder.entry_path(name), dir_fd=parent_folder.descriptor)  # fails if it is not empty
        raise
