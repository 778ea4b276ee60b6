"""The only way in which tools change files. Writes the whole content to a new file, and renames it over the old one.

Readers see the old or the new content, never a mixture. Mode, owner and extended attributes are kept as far as
possible, except set-id bits and capabilities. All operations use the descriptor of one open folder, so a changed path
cannot redirect them.
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

from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.path_opener import FileIdentity, Folder, identity_of, is_temporary, lstat, temporary_name
from tools.files.workspace import Location, Workspace

CANCEL_POLL_SECONDS = 0.05  # how often a call that waits for another write checks for cancellation
# Locks keyed by the real path of the file; unused locks are removed automatically
_file_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_guard = threading.Lock()  # held briefly for access to this module's dictionaries


@contextmanager
def exclusive(location: Location, signal: AbortSignal) -> Generator[None]:
    """Lock out other writers of a file in this process while it is read, changed and written."""
    with _guard:
        lock = _file_locks.setdefault(location.path, threading.Lock())
    while not lock.acquire(timeout=CANCEL_POLL_SECONDS):
        signal.raise_if_aborted()
    try:
        signal.raise_if_aborted()
        yield
    finally:
        lock.release()


# How long a write waits for its turn in a folder. A turn creates or renames one file in less than a millisecond, and at
# most a few dozen threads wait. A longer wait means that a process was stopped during its turn.
BUSY_SECONDS = 5.0
POLL_SECONDS = 0.001
FolderId = tuple[int, int]  # device and inode, which identify the folder regardless of its path
_folder_locks: WeakValueDictionary[FolderId, threading.Lock] = WeakValueDictionary()


def _folder_id(descriptor: int) -> FolderId:
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


def try_lock(descriptor: int) -> bool | None:
    """Try to take the lock that keeps other processes out. Return `None` if locks are not supported."""
    if sys.platform == "win32":
        return None
    import fcntl  # noqa: PLC0415 - exists only on POSIX

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextmanager
def lock_folder(folder: Folder) -> Generator[None]:
    """Briefly lock out other threads and servers while files in a folder are created and renamed.

    Threads of this process take turns: only one at a time tries to get the lock shared with other processes. On file
    systems without locks, other processes are not locked out. After `BUSY_SECONDS`, raises an `OSError` (`EBUSY`).
    """
    descriptor = folder.descriptor
    if descriptor is None:
        yield
        return
    end = time.monotonic() + BUSY_SECONDS
    folder_id = _folder_id(descriptor)
    with _guard:
        lock = _folder_locks.setdefault(folder_id, threading.Lock())
    if not lock.acquire(timeout=BUSY_SECONDS):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    try:
        while (is_locked := try_lock(descriptor)) is False:
            if time.monotonic() > end:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            if is_locked and sys.platform != "win32":
                import fcntl  # noqa: PLC0415 - exists only on POSIX

                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        lock.release()


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_INSPECT = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# Folders with fewer entries are searched for leftovers on every write, which takes less than a millisecond.
LARGE_FOLDER = 1_000
REST_SECONDS = 10.0  # pause between searches of a large folder; searching 150,000 files takes a tenth of a second
MAX_RESTING = 1_000  # maximum number of large folders to remember; the least recently used are dropped first
# For each folder that is large or still being searched, when this process last started to search it
_last_searched: dict[FolderId, float] = {}


@dataclass(slots=True)
class Temporary:
    """A new temporary file, open for writing and locked."""

    folder: Folder
    name: str
    descriptor: int | None

    def write(self, content: bytes, disk: Disk) -> int:
        """Write the whole content. Return the descriptor."""
        assert self.descriptor is not None  # noqa: S101 - not closed yet
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[disk.write(self.descriptor, remaining) :]
        return self.descriptor

    def close(self) -> None:
        if self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            os.close(descriptor)

    def remove(self) -> None:
        self.close()  # Windows cannot remove an open file
        with suppress(OSError):
            os.unlink(self.folder.entry_path(self.name), dir_fd=self.folder.descriptor)


@contextmanager
def temporary_in(folder: Folder, mode: int) -> Generator[Temporary]:
    """Create a temporary file, which the `with` block must rename. If the block raises an error, the file is removed.

    Leftover temporary files in the folder are also removed. The umask is applied to the mode.
    """
    name = temporary_name()
    leftovers = _find_leftovers(folder)
    with lock_folder(folder):  # so that a file that has been created but not yet locked does not count as a leftover
        for leftover in leftovers:
            with suppress(OSError):
                leftover_descriptor = os.open(folder.entry_path(leftover), _INSPECT, dir_fd=folder.descriptor)
                try:
                    if stat.S_ISREG(os.fstat(leftover_descriptor).st_mode) and try_lock(leftover_descriptor):
                        os.unlink(folder.entry_path(leftover), dir_fd=folder.descriptor)
                finally:
                    os.close(leftover_descriptor)
        descriptor = os.open(folder.entry_path(name), _CREATE, mode, dir_fd=folder.descriptor)
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
    """Find temporary files in a folder, including those still being written.

    Takes no lock, because listing a folder may take a long time. Returns an empty list if another thread is searching
    the folder, or if the folder is large and was searched recently.
    """
    if folder.descriptor is None:
        return []  # without a descriptor, the folder cannot be locked
    folder_id, now = _folder_id(folder.descriptor), time.monotonic()
    with _guard:
        last = _last_searched.pop(folder_id, None)
        if last is not None and now - last < REST_SECONDS:
            _last_searched[folder_id] = last
            return []
        _last_searched[folder_id] = now
        if len(_last_searched) > MAX_RESTING:
            del _last_searched[next(iter(_last_searched))]
    names: list[str] = []
    try:
        with suppress(OSError):  # a folder without read permission
            names = folder.names()
    finally:
        if len(names) < LARGE_FOLDER:
            with _guard:
                _last_searched.pop(folder_id, None)
    return [name for name in names if is_temporary(name)]


# Capabilities of a program. New content must not inherit them, so they are dropped, like the set-id bits
_DROPPED_ATTRIBUTE = "security.capability"
_ACCESS_LIST = "system.posix_acl_access"
_LABELS = frozenset({"security.selinux"})  # attributes that the system assigns to every file


def copy_metadata(temporary: Temporary, folder: Folder, name: str, old_info: os.stat_result) -> None:
    """Give a temporary file the owner, mode and attributes of the file that it will replace.

    Raises an `OSError` if the mode or the access control list cannot be set.
    """
    mode = stat.S_IMODE(old_info.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    descriptor = temporary.descriptor
    if sys.platform == "win32" or descriptor is None:
        os.chmod(folder.entry_path(temporary.name), mode)
        return
    info = os.fstat(descriptor)
    try:
        if info.st_gid != old_info.st_gid:
            os.fchown(descriptor, -1, old_info.st_gid)
        if info.st_uid != old_info.st_uid:
            with suppress(PermissionError):
                os.fchown(descriptor, old_info.st_uid, -1)
    except PermissionError:  # for the group
        # Members of another group must not be given access that was meant for the old group.
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3 & mode
    if sys.platform == "linux":
        attributes: dict[str, bytes] = {}
        with suppress(OSError):
            old = os.open(folder.entry_path(name), _INSPECT, dir_fd=folder.descriptor)
            try:
                for attribute in os.listxattr(old):
                    with suppress(OSError):
                        attributes[attribute] = os.getxattr(old, attribute)
            finally:
                os.close(old)
        inherited_names: list[str] = []
        with suppress(OSError):
            inherited_names = os.listxattr(descriptor)
        # Attributes inherited from the folder (a default access control list) could give others access to the file.
        # Other attributes may be lost, but without the old access control list, too many users could access the file.
        for attribute in inherited_names:
            if attribute not in attributes and attribute not in _LABELS:
                with nullcontext() if attribute == _ACCESS_LIST else suppress(OSError):
                    os.removexattr(descriptor, attribute)
        for attribute, value in attributes.items():
            if attribute != _DROPPED_ATTRIBUTE:
                with nullcontext() if attribute == _ACCESS_LIST else suppress(OSError):
                    os.setxattr(descriptor, attribute, value)
    os.fchmod(descriptor, mode)


_RENAME_NOREPLACE = 1


def rename_in(folder: Folder, source: str, target: str, replacing: bool) -> None:
    """Rename within a folder. If not `replacing`, an existing `target` is an error (`EEXIST`), where supported."""
    descriptor = folder.descriptor
    rename_new = None if replacing or descriptor is None else _rename_new()
    if rename_new is None or not rename_new(descriptor, source, target):
        source_path, target_path = folder.entry_path(source), folder.entry_path(target)
        os.replace(source_path, target_path, src_dir_fd=descriptor, dst_dir_fd=descriptor)


@cache
def _rename_new() -> Callable[[int | None, str, str], bool] | None:
    """Return a function that renames a file without replacing another one, or `None` if the system lacks the call.

    The function returns False if the file system does not support such a rename.
    """
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - not needed at startup

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
    """The disk operations of a write, each of which may fail at any time."""

    write: Callable[[int, memoryview], int] = os.write  # writes some bytes to a descriptor and returns how many
    sync: Callable[[int], None] = os.fsync  # flushes a descriptor to the disk
    rename: Callable[[Folder, str, str, bool], None] = rename_in


REAL_DISK = Disk()
NEW_FILE_MODE = 0o666  # mode of a new file before the umask is applied
# Mode of a temporary file until it gets the mode of the file it replaces, so that nobody else can read it
PRIVATE_MODE = 0o600


def replace_private_file(
    folder: Folder, name: str, content: bytes, disk: Disk = REAL_DISK, *, waits: bool = False
) -> None:
    """Write or replace one of the server's own files in a private folder. Blocking.

    If `waits` is true, the file is flushed to the disk so that it survives a crash of the machine. Raises an `OSError`
    if the file was not written; the old file is then intact.
    """
    with temporary_in(folder, PRIVATE_MODE) as temporary:
        descriptor = temporary.write(content, disk)
        if waits:
            disk.sync(descriptor)
        if os.name == "nt":
            temporary.close()  # Windows cannot rename an open file
        disk.rename(folder, temporary.name, name, True)
    if waits and folder.descriptor is not None:
        with suppress(OSError):  # not every file system supports this
            disk.sync(folder.descriptor)  # flush the new name


def replace_file(
    workspace: Workspace,
    location: Location,
    content: bytes,
    expected: FileIdentity | None,
    disk: Disk = REAL_DISK,
    *,
    mode: int | None = None,
) -> tuple[FileIdentity, int]:
    """Write a whole file, and create missing folders above it.

    Returns the new file's identity, and how many hard links still have the old content, usually 0. `expected` is the
    identity of the file that the content is based on, or `None` for a new file. `mode` is the mode of a new file,
    regardless of the umask. After a `ToolError` (`file_changed_since_read` if the file is not as expected), the old
    content is intact, and no temporary file is left.
    """
    name = os.path.basename(location.path)
    try:
        with (
            workspace.folder_to_write_in(location) as folder,
            temporary_in(folder, NEW_FILE_MODE if expected is None and mode is None else PRIVATE_MODE) as temporary,
        ):
            descriptor = temporary.write(content, disk)
            disk.sync(descriptor)
            with lock_folder(folder):
                old_info = folder.stat(name)
                if old_info is not None and stat.S_ISDIR(old_info.st_mode):
                    raise ToolError(
                        ToolErrorType.TARGET_IS_DIRECTORY, f"'{location.shown}' is a directory, not a file."
                    )
                if old_info is not None and not stat.S_ISREG(old_info.st_mode):
                    raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"'{location.shown}' is not a regular file.")
                if (identity_of(old_info) if old_info is not None else None) != expected:
                    raise _changed_error(location)
                if old_info is not None:
                    copy_metadata(temporary, folder, name, old_info)
                elif mode is not None and sys.platform != "win32":
                    os.fchmod(descriptor, mode & ~(stat.S_ISUID | stat.S_ISGID))
                if os.name == "nt":
                    temporary.close()  # Windows cannot rename an open file
                try:
                    disk.rename(folder, temporary.name, name, old_info is not None)
                except FileExistsError:
                    raise _changed_error(location) from None
            new_info = os.lstat(location.path) if temporary.descriptor is None else os.fstat(temporary.descriptor)
            if folder.descriptor is not None:
                with suppress(OSError):  # the file is complete even if the new name is not yet on the disk
                    disk.sync(folder.descriptor)
            return identity_of(new_info), old_info.st_nlink - 1 if old_info is not None else 0
    except NotADirectoryError:
        raise _path_through_file_error(location) from None
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.FILE_WRITE_FAILURE) from None


def refuse_path_through_file(location: Location) -> None:
    """Raise the `ToolError` of `replace_file` if a file is in the place of a folder."""
    try:
        lstat(location.path)
    except NotADirectoryError:
        raise _path_through_file_error(location) from None
    except OSError:
        pass


def _path_through_file_error(location: Location) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_WRITE_FAILURE,
        f"'{location.shown}' cannot be written: part of the path is a file, not a folder. Use another path; "
        "list_directory shows what is there.",
    )


def remove_file(workspace: Workspace, location: Location, expected: FileIdentity) -> None:
    """Remove a file, but not the folders above it. Raises a `ToolError` if its identity is not `expected`."""
    name = os.path.basename(location.path)
    try:
        with workspace.folder_to_write_in(location) as folder, lock_folder(folder):
            info = folder.stat(name)
            if info is None or identity_of(info) != expected:
                raise _changed_error(location)
            os.unlink(folder.entry_path(name), dir_fd=folder.descriptor)
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.FILE_WRITE_FAILURE) from None


def _changed_error(location: Location) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_CHANGED_SINCE_READ,
        f"'{location.shown}' has just been changed, so nothing was written. Read it again and "
        "repeat the change on its current content.",
    )
