"""What is opened: regular files, never blocking, and folders, by descriptors that stay what they are.

A real path is opened without following a link in it, by one call of the kernel where it has that, else folder by
folder. Nothing here knows of roots. `tools.files.workspace` opens in their name; only ignore files are opened without
it, since git's may stand above the root, and what is in them is never shown.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from io import FileIO
from typing import Self, TypeVar

from tools.contract.limits import AbortSignal
from tools.files.read_ledger import FileIdentity

WorkT = TypeVar("WorkT")
MAX_LINKS = 40  # links followed to find a real path (Linux's limit)
# Names followed to find a real path, those in links included: twice as many as the longest path has. Each costs a look
# at the disk, and forty links can hold so many of them that one path takes a tenth of a second.
MAX_NAMES = 4_096
BLOCK_BYTES = 1 << 20  # read at a time where a whole file is read
WHOLE_BLOCK_BYTES = 16 << 20  # read at a time where the content is kept anyway
# Whether folders can be opened as descriptors; Windows has none, there a path is checked and then opened
CAN_STEP = os.open in os.supports_dir_fd
JUST_LOOK: int = getattr(os, "O_PATH", 0)  # the flag of a descriptor that reads nothing; 0 where there is none
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: int = getattr(os, "O_DIRECTORY", 0)
_CLOSED_IN_CHILDREN: int = getattr(os, "O_CLOEXEC", 0)
_STEP_FLAGS = (JUST_LOOK or os.O_RDONLY) | _FOLDER | _NO_LINK
_OPEN_FLAGS = (
    os.O_RDONLY
    | _CLOSED_IN_CHILDREN
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_OPENAT2 = 437  # number of the system call, the same on every processor that Linux supports but Alpha
_AT_FDCWD = -100
_RESOLVE_NO_LINKS = 0x02 | 0x04  # `RESOLVE_NO_MAGICLINKS` and `RESOLVE_NO_SYMLINKS`
_RESOLVE_CACHED = 0x20
# `AT_EMPTY_PATH` and `AT_STATX_DONT_SYNC`: what is known of a descriptor, a server not asked
_OF_DESCRIPTOR = 0x1000 | 0x4000
_MODE_AND_DEVICE = struct.Struct("=28xH106xII")  # where `struct statx` has the mode, and the two numbers of the device
# Numbers of those that open a file without asking anybody: ext, XFS, Btrfs, F2FS, ZFS, bcachefs. An overlay asks
# what lies beneath it, which may be a program; tmpfs is never read without waiting, and its device numbers are soon
# those of others.
_LOCAL_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E})
MEMORY_BYTES = 1 << 14  # up to this size a file is read on the event loop; to decode more would be felt there
PAUSE_SECONDS = 0.1  # how long nothing is sought in memory after something was not found there
# The kernel asks to try again where folders were moved meanwhile; nobody moves them so many times in a row
_ATTEMPTS = 100
TEMPORARY_PREFIX = ".coretools-"  # what names of files in which new content waits begin with
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY_PREFIX)}[0-9a-f]{{16}}\.tmp")


def temporary_name() -> str:
    """A new name for a file in which new content waits: hidden from everybody, as its target may be."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_PREFIX) and _TEMPORARY.fullmatch(name) is not None


class NotInMemoryError(Exception):
    """The kernel would have to wait for a disk, or for somebody else, where only memory was to be asked."""


class _Mode(threading.local):
    is_memory_only = False


_mode = _Mode()


def from_memory(work: Callable[[], WorkT]) -> WorkT | None:
    """Do work on files that the kernel can answer from memory: it never blocks, so it needs no thread.

    All of the work goes through this module, or says with `may_block` where it does not; it is the same when it is
    done again. `None` means that somebody would have to be waited for, and it must be done in a thread.
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
    """Say that what follows may wait for a disk, a process or much computing: `NotInMemoryError` where none may."""
    if _mode.is_memory_only:
        raise NotInMemoryError


def open_link_free(path: str, flags: int, mode: int = 0) -> int:
    """Open a real path, absolute and without `.` and `..`; the descriptor is not inherited by children.

    Flags are as for `os.open`: with `O_PATH` and `O_NOFOLLOW` a link at the end is opened itself. An `OSError` with
    `ELOOP` says that a part of the path is a link by now.
    """
    if not CAN_STEP:
        if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.open(path, flags, mode)
    if (by_kernel := _kernel_opener()) is None:
        return _open_by_steps(path, flags, mode)
    name = os.fsencode(path)
    if b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))  # the kernel would take it for the end
    if _mode.is_memory_only:
        return by_kernel.open_from_memory(name, flags | _CLOSED_IN_CHILDREN, mode)
    return by_kernel.open(name, flags | _CLOSED_IN_CHILDREN, mode)


class _KernelOpener:
    """Opens a real path by one call of Linux's; an `OSError` if the kernel is too old, or a sandbox forbids it."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - only needed once a file is touched; starting is quicker without

        class OpenHow(ctypes.Structure):
            _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

        def system_call(library: ctypes.CDLL) -> Callable[..., int]:
            call = library.syscall
            call.restype = ctypes.c_long
            call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
            return call

        library = ctypes.PyDLL(None, use_errno=True)
        self._how, self._size = cache(OpenHow), ctypes.sizeof(OpenHow)
        self._reference, self._errno = ctypes.byref, ctypes.get_errno
        self._call = system_call(ctypes.CDLL(None, use_errno=True))
        # Keeps the interpreter's lock: what never blocks is not worth giving it away
        self._quick_call = system_call(library)
        self._statx, self._fstatfs = getattr(library, "statx", None), ctypes.CDLL(None).fstatfs
        self._new_buffer = ctypes.create_string_buffer
        self._is_local: dict[int, bool] = {}
        os.close(self.open(os.fsencode(os.sep), os.O_RDONLY | _FOLDER | _CLOSED_IN_CHILDREN, 0))
        try:
            os.close(self.open_from_memory(os.fsencode(os.sep), JUST_LOOK | _CLOSED_IN_CHILDREN, 0))
            self.memory_pause = 0.0 if self._statx is not None else math.inf  # until when memory is not asked
        except (OSError, NotInMemoryError):
            self.memory_pause = math.inf

    def open(self, name: bytes, flags: int, mode: int) -> int:
        """Open it, whatever has to be waited for."""
        how, number = self._reference(self._how(flags, mode, _RESOLVE_NO_LINKS)), 0
        for _ in range(_ATTEMPTS):
            descriptor = self._call(_OPENAT2, _AT_FDCWD, name, how, self._size)
            if descriptor >= 0:
                return descriptor
            number = self._errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        number = errno.EBUSY if number == errno.EAGAIN else number
        raise OSError(number, os.strerror(number))

    def open_from_memory(self, name: bytes, flags: int, mode: int) -> int:
        """Open it, if nothing has to be waited for: else `NotInMemoryError`."""
        if sys.platform != "linux":
            raise NotInMemoryError
        if not flags & JUST_LOOK:
            # A file system that is a program, or another machine, is not even asked.
            descriptor = self.open_from_memory(name, JUST_LOOK | _CLOSED_IN_CHILDREN, 0)
            try:
                buffer = self._new_buffer(256)
                if self._statx is None or self._statx(descriptor, b"", _OF_DESCRIPTOR, 0, buffer):
                    raise NotInMemoryError
                kind, *device = _MODE_AND_DEVICE.unpack_from(buffer)
            finally:
                os.close(descriptor)
            # To open a device may take long, wherever its name stands.
            if not self._is_local.get(os.makedev(*device)) or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise NotInMemoryError
        how = self._how(flags, mode, _RESOLVE_NO_LINKS | _RESOLVE_CACHED)
        descriptor = self._quick_call(_OPENAT2, _AT_FDCWD, name, self._reference(how), self._size)
        if descriptor >= 0:
            return descriptor
        number = self._errno()
        if number in (errno.EAGAIN, errno.EINTR, errno.EINVAL):
            raise NotInMemoryError
        raise OSError(number, os.strerror(number))

    def learn(self, descriptor: int, device: int) -> None:
        """See whether files of a device are opened without asking anybody; blocking."""
        if device not in self._is_local and not self._fstatfs(descriptor, buffer := self._new_buffer(256)):
            (kind,) = struct.unpack_from("@l", buffer.raw)
            self._is_local[device] = kind & 0xFFFFFFFF in _LOCAL_FILE_SYSTEMS
            if self.memory_pause < math.inf:
                self.memory_pause = 0.0  # it was not known before


@cache
def _kernel_opener() -> _KernelOpener | None:
    """Opens a real path by one call; `None` on another system, an old kernel, or in a sandbox that forbids the call."""
    try:
        return _KernelOpener() if sys.platform == "linux" else None
    except OSError:
        return None


def _open_at(name: str, flags: int, mode: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except BlockingIOError:  # another program has a lease on it, and is told to give it back
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY)) from None


def _open_by_steps(path: str, flags: int, mode: int) -> int:
    """Open a real path folder by folder, as `open_link_free` does where the kernel cannot."""
    may_block()
    *folders, last = path.strip(os.sep).split(os.sep)
    current = os.open(os.sep, _STEP_FLAGS)

    def open_below(name: str, flags: int) -> int:
        try:
            return _open_at(name, flags, mode, current)
        except NotADirectoryError:
            if stat.S_ISLNK(os.stat(name, dir_fd=current, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            raise

    try:
        for folder in folders:
            below = open_below(folder, _STEP_FLAGS)
            os.close(current)
            current = below
        descriptor = open_below(last or os.curdir, flags | _NO_LINK)
    finally:
        os.close(current)
    if flags & JUST_LOOK and not flags & _NO_LINK and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return descriptor


def lstat(path: str) -> os.stat_result:
    """The stat of what is at a real path, a link at its end not followed; `ELOOP` if a folder above is one by now."""
    may_block()
    if not CAN_STEP:
        return os.lstat(path)
    if JUST_LOOK:
        descriptor, name = open_link_free(path, JUST_LOOK | _NO_LINK), ""
    else:
        above, name = os.path.split(path)
        descriptor = _open_by_steps(above, _STEP_FLAGS, 0)
    try:
        if JUST_LOOK:
            return os.fstat(descriptor)
        return os.stat(name or os.curdir, dir_fd=descriptor, follow_symlinks=False)
    finally:
        os.close(descriptor)


def exists(path: str) -> bool:
    """Whether something is at a real path, a link at its end not followed; an `OSError` if that is not known."""
    try:
        if _mode.is_memory_only:
            os.close(open_link_free(path, JUST_LOOK | _NO_LINK))
        else:
            os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def path_without_links(path: str) -> str | None:
    """An absolute path, normalised, if it exists and no part is a link, which takes a single look; else `None`."""
    if ".." in path or not JUST_LOOK:
        return None
    normal = os.path.normpath(path)
    try:
        os.close(open_link_free(normal, JUST_LOOK))
    except OSError:
        return None
    return normal


def real_path(path: str, mount: tuple[str, str] | None = None) -> str:
    """An absolute path with every link resolved; `ELOOP` for too many. What does not exist is kept as it is spelled.

    With a mount, the path and all links are followed as if its second folder were mounted on the first one, whose own
    content is not looked at.
    """
    if not CAN_STEP:
        return os.path.realpath(path)
    if mount is None and (real := path_without_links(path)) is not None:
        return real
    may_block()
    point, mounted = mount or ("", "")

    def place(path: str) -> str:
        is_below = mount is not None and (path == point or path.startswith(point + os.sep))
        return mounted + path[len(point) :] if is_below else path

    waiting = path.split(os.sep)[::-1]
    real = os.sep
    links = names = 0
    while waiting:
        name = waiting.pop()
        names += 1
        if name == os.pardir:
            real = os.path.dirname(real)
        elif name not in ("", os.curdir):
            below = os.path.join(real, name)
            try:
                target = os.readlink(place(below))
            except OSError:
                real = below  # not a link; whether it exists is seen when it is opened
            else:
                links += 1
                real = os.sep if target.startswith(os.sep) else real
                waiting.extend(target.split(os.sep)[::-1])
        if links > MAX_LINKS or names > MAX_NAMES:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return place(real)


class PathKind(Enum):
    """What is at a path, links not followed."""

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

    @classmethod
    def of_entry(cls, entry: os.DirEntry[str]) -> PathKind:
        if entry.is_file(follow_symlinks=False):
            return cls.FILE
        if entry.is_dir(follow_symlinks=False):
            return cls.FOLDER
        return cls.LINK if entry.is_symlink() else cls.OTHER


def identity_of(info: os.stat_result) -> FileIdentity:
    return FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


class NotRegularError(OSError):
    """Something that is not a regular file, and therefore not opened for reading."""

    def __init__(self, kind: PathKind) -> None:
        super().__init__(errno.EISDIR if kind is PathKind.FOLDER else errno.ENXIO, "not a regular file")
        self.kind = kind


def open_regular(path: str, *, through_links: bool = False) -> OpenedFile:
    """Open a regular file for reading, never blocking. The caller closes it.

    The path is a real one, not held against any root; or any, if links may be followed.

    Raises:
        NotRegularError: It is a folder, a device, a pipe or a socket.
        OSError: It cannot be opened; `ELOOP` if a part of a real path is a link by now.
    """
    if not through_links:
        return OpenedFile(open_link_free(path, _OPEN_FLAGS))
    may_block()
    return OpenedFile(os.open(path, _OPEN_FLAGS))


class OpenedFile:
    """A regular file, open for reading; else a `NotRegularError`. The descriptor is closed here, by nobody else."""

    __slots__ = ("_descriptor", "_stream", "info")

    def __init__(self, descriptor: int) -> None:
        self.info = os.fstat(descriptor)  # its stat when it was opened
        if not stat.S_ISREG(self.info.st_mode):
            os.close(descriptor)
            raise NotRegularError(PathKind.of_mode(self.info.st_mode))
        self._descriptor = descriptor
        self._stream: FileIO | None = None
        if not _mode.is_memory_only and (by_kernel := _kernel_opener()) is not None:
            by_kernel.learn(descriptor, self.info.st_dev)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is None:
            os.close(self._descriptor)
        else:
            self._stream.close()

    @property
    def stream(self) -> FileIO:
        """Unbuffered; read it in large blocks. Made when first asked for: of most files the head is all there is."""
        if self._stream is None:
            may_block()
            self._stream = FileIO(self._descriptor)
        return self._stream

    def head(self, size: int) -> bytes:
        """The first bytes, wherever the file is read otherwise."""
        # A file that seems empty may be one that the kernel makes up, so its size is no bound.
        wanted = self.info.st_size + 1 if 0 < self.info.st_size < size else size
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
            return os.pread(self._descriptor, wanted, 0)
        self.stream.seek(0)
        data = self.stream.read(wanted)
        self.stream.seek(0)
        return data

    def blocks(self, signal: AbortSignal) -> Iterator[bytes]:
        """The whole content from the beginning on, in blocks; cancellation is looked at before each."""
        self.stream.seek(0)
        while True:
            signal.raise_if_aborted()
            block = self.stream.read(BLOCK_BYTES)
            if not block:
                return
            yield block

    def whole(self, signal: AbortSignal) -> bytes:
        """The whole content, by as few reads as it takes; cancellation is looked at before each."""
        self.stream.seek(0)
        pieces: list[bytes] = []
        wanted = self.info.st_size + 1
        while True:
            signal.raise_if_aborted()
            piece = self.stream.read(min(wanted, WHOLE_BLOCK_BYTES))
            if not piece:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]
            pieces.append(piece)
            wanted = max(wanted - len(piece), BLOCK_BYTES)


# One entry of a folder: its name and what it is. A plain pair, since a walk makes one for each file.
Entry = tuple[str, PathKind]


class Folder:
    """An open folder. What is asked about its entries is asked of this very folder, wherever its path leads by now.

    Closed at the end of its `with`. An entry that is a link is never followed.
    """

    __slots__ = ("_path", "descriptor")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self.descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)

    def named(self, name: str) -> str:
        """How an entry is called in a call that is given `descriptor` as its `dir_fd`."""
        return name if self.descriptor is not None else os.path.join(self._path, name)

    def open_file(self, name: str) -> OpenedFile:
        """Open a regular file in it for reading, as `open_regular` does; a link is refused with `ELOOP`."""
        if self.descriptor is None:
            return open_regular(self.named(name))
        return OpenedFile(_open_at(name, _OPEN_FLAGS | _NO_LINK, 0, self.descriptor))

    def entries(self) -> list[Entry]:
        """Everything in it but files that are being written, in no order."""
        may_block()
        with os.scandir(self._path if self.descriptor is None else self.descriptor) as found:
            # Most entries are files, and a call for each would be felt.
            return [
                (entry.name, PathKind.FILE if entry.is_file(follow_symlinks=False) else PathKind.of_entry(entry))
                for entry in found
                if entry.name[0] != "." or not is_temporary(entry.name)
            ]

    def names(self) -> list[str]:
        """The names of everything in it, in no order."""
        may_block()
        return os.listdir(self._path if self.descriptor is None else self.descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        """The stat of an entry; `None` if it cannot be looked at."""
        try:
            return os.stat(self.named(name), dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None

    def link_target(self, name: str) -> str:
        """What is written in a link; empty if it cannot be read."""
        try:
            return os.readlink(self.named(name), dir_fd=self.descriptor)
        except OSError:
            return ""


def open_folder(path: str, *, to_list: bool = True) -> Folder:
    """Open the folder at a real path, which is not held against any root.

    A folder that may not be listed is opened all the same where its entries will not be listed. An `OSError` with
    `ELOOP` says that a part of its path is a link by now.
    """
    if not CAN_STEP:
        return Folder(path, None)
    try:
        return Folder(path, open_link_free(path, _OPEN_FLAGS | _NO_LINK | _FOLDER))
    except PermissionError:
        if to_list or not JUST_LOOK:
            raise
        return Folder(path, open_link_free(path, JUST_LOOK | _NO_LINK | _FOLDER))


def is_ours(info: os.stat_result) -> bool:
    """Whether a file or a folder belongs to this user; on Windows, whose stat does not tell, everything does."""
    return sys.platform == "win32" or info.st_uid == os.geteuid()


def open_private_folder(path: str, *, makes: bool) -> Folder:
    """Open a folder of our own at a real path, which nobody else may enter: where others may, they may not any more.

    What is in it may have been put there before, so a file that others must not have made is looked at by itself.

    Args:
        path: The folder.
        makes: Whether it is made where it is missing, with the folders above it.

    Raises:
        OSError: It cannot be used; `strerror` says why, without its path.
    """
    if makes:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or not is_ours(info):
        raise NotADirectoryError(errno.ENOTDIR, "its folder belongs to somebody else, or is a link")
    if sys.platform != "win32" and stat.S_IMODE(info.st_mode) & 0o077:
        os.chmod(path, 0o700)
    return open_folder(path)


def make_folders(path: str, above: str) -> tuple[Folder, list[str]]:
    """Open the folder at a real path, and make it and the folders above it as far as they are missing.

    `above` is a folder above it, or itself, that is never made. Given back is also what was made, the deepest last.
    """
    missing: list[str] = []
    while True:
        try:
            folder = open_folder(path, to_list=False)
            break
        except FileNotFoundError:
            if path == above:
                raise
            path, name = os.path.split(path)
            missing.append(name)
    made: list[str] = []
    try:
        for name in reversed(missing):
            path = os.path.join(path, name)
            with folder:
                try:
                    os.mkdir(folder.named(name), dir_fd=folder.descriptor)
                    made.append(path)
                except FileExistsError:
                    pass  # somebody else has made it meanwhile
            folder = open_folder(path, to_list=False)
    except OSError:
        remove_folders(made)
        raise
    return folder, made


def remove_folders(paths: Sequence[str]) -> None:
    """Remove folders that were made for nothing, the last first; what is in use by now stays."""
    for path in reversed(paths):
        above, name = os.path.split(path)
        with suppress(OSError), open_folder(above, to_list=False) as folder:
            os.rmdir(folder.named(name), dir_fd=folder.descriptor)
