"""The one way to change a file: the whole new content is written beside the old one, then renamed over it.

A reader sees the old or the new content, never a mixture. Mode, owner and extended attributes are kept, set-id bits
are dropped. All of it happens in one folder that is held open, so nothing can lead it elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from weakref import WeakValueDictionary

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.path_opener import Folder, identity_of, is_temporary, temporary_name
from tools.files.read_ledger import FileIdentity
from tools.files.workspace import Location, Workspace

CANCEL_POLL_SECONDS = 0.05  # how often a call that waits for another one's write checks whether it was cancelled
# By real path; a lock that nobody holds or waits for is gone by itself
_file_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_guard = threading.Lock()  # held for a moment to look something up in the tables of this module


@contextmanager
def exclusive(location: Location, signal: AbortSignal) -> Generator[None]:
    """Keep other writers of this process away from one file while it is read, changed and written."""
    with _guard:
        lock = _file_locks.get(location.path)
        if lock is None:
            lock = _file_locks[location.path] = threading.Lock()
    while not lock.acquire(timeout=CANCEL_POLL_SECONDS):
        signal.raise_if_aborted()
    try:
        signal.raise_if_aborted()
        yield
    finally:
        lock.release()


# How long a write waits for its turn in a folder. A turn makes or renames one file, in less than a millisecond, and at
# most some tens of our threads wait for one; only a process that was stopped within its turn takes so long.
BUSY_SECONDS = 5.0
POLL_SECONDS = 0.001
FolderId = tuple[int, int]  # device and inode: which folder it is, whatever path leads to it
_folder_locks: WeakValueDictionary[FolderId, threading.Lock] = WeakValueDictionary()


def _folder_id(descriptor: int) -> FolderId:
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


def try_lock(descriptor: int) -> bool | None:
    """Take the lock that other processes see; `None` where there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextmanager
def alone_in(folder: Folder) -> Generator[None]:
    """Keep other threads and other processes of this server from making and renaming files in a folder, for a moment.

    Our own threads queue up before one of them asks for the lock that processes see, so they do not take it from each
    other by chance. Where the file system has no locks, other processes are not kept away.

    Raises:
        OSError: `EBUSY`: others have kept it for `BUSY_SECONDS`.
    """
    descriptor = folder.descriptor
    if descriptor is None:
        yield
        return
    end = time.monotonic() + BUSY_SECONDS
    which = _folder_id(descriptor)
    with _guard:
        lock = _folder_locks.get(which)
        if lock is None:
            lock = _folder_locks[which] = threading.Lock()
    if not lock.acquire(timeout=BUSY_SECONDS):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    try:
        while (locked := try_lock(descriptor)) is False:
            if time.monotonic() > end:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            if locked and sys.platform != "win32":
                import fcntl  # noqa: PLC0415 - not on every system

                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        lock.release()


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_INSPECT = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# Names in a folder that is not searched for leftovers at each write. A smaller one takes less than a millisecond.
LARGE_FOLDER = 1_000
REST_SECONDS = 10.0  # how long a large folder is not searched again; one of 150,000 files takes a tenth of a second
MAX_RESTING = 1_000  # large folders remembered; those that nobody wrote in for longest are forgotten first
# When this process last began to search a folder that is large, or is being searched
_last_searched: dict[FolderId, float] = {}


@dataclass(slots=True)
class Temporary:
    """A file that nobody else knows of, open for writing and locked."""

    folder: Folder
    name: str
    descriptor: int | None

    def close(self) -> None:
        if self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            os.close(descriptor)

    def remove(self) -> None:
        if os.name == "nt":
            self.close()  # an open file cannot be removed there
        with suppress(OSError):
            os.unlink(self.folder.named(self.name), dir_fd=self.folder.descriptor)


@contextmanager
def temporary_in(folder: Folder, mode: int) -> Generator[Temporary]:
    """Make a file in a folder; it is removed if an error leaves the `with`, else it must have been renamed.

    Files of this kind that no living writer holds are removed on the way. The mode is the one before the umask.
    """
    name = temporary_name()
    leftovers = _find_leftovers(folder)
    with alone_in(folder):  # so that no leftover is a file that is just being made and not locked yet
        for leftover in leftovers:
            with suppress(OSError):
                held = os.open(folder.named(leftover), _INSPECT, dir_fd=folder.descriptor)
                try:
                    if stat.S_ISREG(os.fstat(held).st_mode) and try_lock(held):
                        os.unlink(folder.named(leftover), dir_fd=folder.descriptor)
                finally:
                    os.close(held)
        descriptor = os.open(folder.named(name), _CREATE, mode, dir_fd=folder.descriptor)
        try_lock(descriptor)
    temporary = Temporary(folder, name, descriptor)
    try:
        yield temporary
    except BaseException:
        temporary.remove()
        raise
    finally:
        temporary.close()


def _find_leftovers(folder: Folder) -> list[str]:
    """Temporary files in a folder, whether or not somebody still writes them.

    It takes no lock, since listing a folder may take long. While another thread searches, or shortly after a search
    of a large folder, nothing is found.
    """
    if folder.descriptor is None:
        return []  # where folders have no descriptors, files have no locks that would tell
    which, now = _folder_id(folder.descriptor), time.monotonic()
    with _guard:
        last = _last_searched.pop(which, None)
        if last is not None and now - last < REST_SECONDS:
            _last_searched[which] = last
            return []
        _last_searched[which] = now
        if len(_last_searched) > MAX_RESTING:
            del _last_searched[next(iter(_last_searched))]
    names: list[str] = []
    try:
        names = folder.names()
    except OSError:
        pass  # a folder to put things into, not to look at
    finally:
        if len(names) < LARGE_FOLDER:
            with _guard:
                _last_searched.pop(which, None)
    return [name for name in names if is_temporary(name)]


# Rights of a program, which new content must not have; it goes as the set-id bits do
_DROPPED_ATTRIBUTE = "security.capability"
_ACCESS_LIST = "system.posix_acl_access"
_LABELS = frozenset({"security.selinux"})  # attributes that the system gives to every file


def take_over(temporary: Temporary, folder: Folder, name: str, before: os.stat_result) -> None:
    """Give a temporary file the owner, the mode and the attributes of the file that it replaces.

    An `OSError` says that the mode or the access list cannot be set.
    """
    mode = stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    descriptor = temporary.descriptor
    if sys.platform == "win32" or descriptor is None:
        os.chmod(folder.named(temporary.name), mode)
        return
    info = os.fstat(descriptor)
    keeps_group = True
    if info.st_gid != before.st_gid:
        try:
            os.fchown(descriptor, -1, before.st_gid)
        except PermissionError:
            keeps_group = False
    if not keeps_group:
        # Anyone who is in the other group now must not get what was meant for the first one.
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3 & mode
    elif info.st_uid != before.st_uid:
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, -1)
    if sys.platform == "linux":
        wanted: dict[str, bytes] = {}
        with suppress(OSError):
            old = os.open(folder.named(name), _INSPECT, dir_fd=folder.descriptor)
            try:
                for attribute in os.listxattr(old):
                    with suppress(OSError):
                        wanted[attribute] = os.getxattr(old, attribute)
            finally:
                os.close(old)
        inherited: list[str] = []
        with suppress(OSError):
            inherited = os.listxattr(descriptor)
        # What the new file has got from its folder (a default access list) would give rights to others. Nothing is
        # lost if another attribute cannot be set; but without its access list a file would be open to others.
        for attribute in inherited:
            if attribute not in wanted and attribute not in _LABELS:
                with nullcontext() if attribute == _ACCESS_LIST else suppress(OSError):
                    os.removexattr(descriptor, attribute)
        for attribute, value in wanted.items():
            if attribute != _DROPPED_ATTRIBUTE:
                with nullcontext() if attribute == _ACCESS_LIST else suppress(OSError):
                    os.setxattr(descriptor, attribute, value)
    os.fchmod(descriptor, mode)


_RENAME_NOREPLACE = 1


def rename_in(folder: Folder, source: str, target: str, replacing: bool) -> None:
    """Rename within a folder.

    If nothing must be replaced and the system can tell, nothing is: an `OSError` with `EEXIST` says so.
    """
    rename_new = None if replacing or folder.descriptor is None else _rename_new()
    if rename_new is None or not rename_new(folder.descriptor, source, target):
        os.replace(
            folder.named(source), folder.named(target), src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor
        )


@cache
def _rename_new() -> Callable[[int | None, str, str], bool] | None:
    """The system's rename that replaces nothing; it tells whether the file system knows it."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only needed once a file is made; starting is quicker without

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)

    def rename(folder: int | None, source: str, target: str) -> bool:
        if call(folder, os.fsencode(source), folder, os.fsencode(target), _RENAME_NOREPLACE) == 0:
            return True
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            return False
        raise OSError(number, os.strerror(number))

    return rename


@dataclass(frozen=True, slots=True)
class Disk:
    """What a write asks of the disk, and what may fail there at any time."""

    write: Callable[[int, memoryview], int] = os.write  # writes some of the bytes to a descriptor and tells how many
    sync: Callable[[int], None] = os.fsync  # brings a descriptor's content to the disk
    rename: Callable[[Folder, str, str, bool], None] = rename_in


REAL_DISK = Disk()
NEW_FILE_MODE = 0o666  # mode of a created file before the umask
# Mode of a temporary file until it has that of the file it replaces: nobody else may read it meanwhile
PRIVATE_MODE = 0o600


def replace_private_file(
    folder: Folder, name: str, content: bytes, disk: Disk = REAL_DISK, *, waits: bool = False
) -> None:
    """Write a whole file of our own into a private folder, in place of what has its name there; blocking.

    `waits` is whether a crash of the machine must not take it afterwards, for which the disk is waited for. An
    `OSError` says that it was not written; what was there is whole then.
    """
    with temporary_in(folder, PRIVATE_MODE) as temporary:
        descriptor = temporary.descriptor
        assert descriptor is not None  # noqa: S101 - nobody has closed it yet
        left = memoryview(content)
        while left:
            left = left[disk.write(descriptor, left) :]
        if waits:
            disk.sync(descriptor)
        if os.name == "nt":
            temporary.close()  # an open file cannot be renamed there
        disk.rename(folder, temporary.name, name, True)
    if waits and folder.descriptor is not None:
        with suppress(OSError):  # not every file system can
            disk.sync(folder.descriptor)  # its new name


@dataclass(frozen=True, slots=True)
class Written:
    identity: FileIdentity
    links_broken: int  # how many other names still hold the old content (hard links), usually 0


def replace_file(
    workspace: Workspace,
    location: Location,
    content: bytes,
    expected: FileIdentity | None,
    disk: Disk = REAL_DISK,
    *,
    mode: int | None = None,
) -> Written:
    """Write a whole file; missing folders above it are made.

    `expected` is the fingerprint of the file that the content was made from, `None` for a new file; `mode` is the one
    that a new file gets, whatever the umask.

    Raises:
        ToolError: `file_changed_since_read` if the file is not (or no longer) as expected, else why the write
            failed. The old content is whole in every case, and nothing is left beside it.
    """
    name = os.path.basename(location.path)
    try:
        with (
            workspace.folder_to_write_in(location) as folder,
            temporary_in(folder, NEW_FILE_MODE if expected is None and mode is None else PRIVATE_MODE) as temporary,
        ):
            descriptor = temporary.descriptor
            assert descriptor is not None  # noqa: S101 - nobody has closed it yet
            left = memoryview(content)
            while left:
                left = left[disk.write(descriptor, left) :]
            disk.sync(descriptor)
            with alone_in(folder):
                before = _as_expected(folder, name, location, expected)
                if before is not None:
                    take_over(temporary, folder, name, before)
                elif mode is not None and sys.platform != "win32":
                    os.fchmod(descriptor, mode & ~(stat.S_ISUID | stat.S_ISGID))
                if os.name == "nt":
                    temporary.close()  # an open file cannot be renamed there
                try:
                    disk.rename(folder, temporary.name, name, before is not None)
                except FileExistsError:
                    raise _changed(location) from None
            after = os.lstat(location.path) if temporary.descriptor is None else os.fstat(temporary.descriptor)
            if folder.descriptor is not None:
                with suppress(OSError):  # the file is whole even if its new name is not on the disk yet
                    disk.sync(folder.descriptor)
            return Written(identity_of(after), before.st_nlink - 1 if before is not None else 0)
    except NotADirectoryError:
        raise ToolError(
            ToolErrorType.FILE_WRITE_FAILURE,
            f"'{location.shown}' cannot be written: a part of the path is a file, not a folder. "
            "Use another path; list_directory shows what is there.",
        ) from None
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.FILE_WRITE_FAILURE) from None


def remove_file(workspace: Workspace, location: Location, expected: FileIdentity) -> None:
    """Remove a file, if it is still the one with this fingerprint; the folders above it stay.

    Raises:
        ToolError: `file_changed_since_read` if it is another one by now, else why it cannot be removed.
    """
    name = os.path.basename(location.path)
    try:
        with workspace.folder_to_write_in(location) as folder, alone_in(folder):
            before = folder.stat(name)
            if before is None or identity_of(before) != expected:
                raise _changed(location)
            os.unlink(folder.named(name), dir_fd=folder.descriptor)
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.FILE_WRITE_FAILURE) from None


def _as_expected(folder: Folder, name: str, location: Location, expected: FileIdentity | None) -> os.stat_result | None:
    """What is to be replaced, where it is a file and the expected one; else a `ToolError`."""
    before = folder.stat(name)
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise ToolError(ToolErrorType.TARGET_IS_DIRECTORY, f"'{location.shown}' is a directory, not a file.")
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"'{location.shown}' is not a regular file.")
    if (identity_of(before) if before is not None else None) != expected:
        raise _changed(location)
    return before


def _changed(location: Location) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_CHANGED_SINCE_READ,
        f"'{location.shown}' was changed by somebody else in this very moment; nothing was written. "
        "Read it again and repeat the change on what it holds now.",
    )
