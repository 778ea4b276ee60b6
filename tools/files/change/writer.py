"""The one way to change a file: the whole new content, beside the old one, then a rename.

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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from weakref import WeakValueDictionary

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import AbortSignal
from tools.files.opener import Folder, identity_of, is_temporary, temporary_name
from tools.files.read_ledger import FileIdentity
from tools.files.workspace import Location, Workspace

BUSY_SECONDS = 5.0
"""How long a write waits for its turn in a folder. A turn makes or renames one file, in less than a millisecond, and
at most some tens of our threads wait for one; only a process that was stopped within its turn takes so long."""

POLL_SECONDS = 0.001

FolderId = tuple[int, int]
"""Device and inode: which folder it is, whatever path leads to it."""

_turns: WeakValueDictionary[FolderId, threading.Lock] = WeakValueDictionary()
"""A lock that nobody holds or waits for is gone by itself."""

_turns_guard = threading.Lock()


def folder_id(descriptor: int) -> FolderId:
    """Which folder a descriptor is open on."""
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


@contextmanager
def alone_in(folder: Folder) -> Generator[None]:
    """Keep other threads and other processes of this server from making and renaming files in a folder, for a moment.

    Our own threads queue up before one of them asks for the lock that processes see, so they do not take it from each
    other by chance. Where the file system has no locks, other processes are not kept away.

    Raises:
        OSError: `EBUSY`: others have kept it for `BUSY_SECONDS`.
    """
    if folder.descriptor is None:
        yield
        return
    end = time.monotonic() + BUSY_SECONDS
    turn = _turn(folder_id(folder.descriptor))
    if not turn.acquire(timeout=BUSY_SECONDS):
        raise _busy()
    try:
        locked = _lock_until(end, folder.descriptor)
        try:
            yield
        finally:
            if locked:
                _unlock(folder.descriptor)
    finally:
        turn.release()


def _turn(folder: FolderId) -> threading.Lock:
    with _turns_guard:
        turn = _turns.get(folder)
        if turn is None:
            turn = _turns[folder] = threading.Lock()
        return turn


def _lock_until(end: float, descriptor: int) -> bool:
    """Whether there is a lock, which is ours now."""
    locked = try_lock(descriptor)
    while locked is False:
        if time.monotonic() > end:
            raise _busy()
        time.sleep(POLL_SECONDS)
        locked = try_lock(descriptor)
    return locked is True


def _busy() -> OSError:
    return OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def try_lock(descriptor: int) -> bool | None:
    """Whether what is open is ours now; `None` where there are no locks."""
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


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415 - not on every system

        fcntl.flock(descriptor, fcntl.LOCK_UN)


_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_LOOK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_DROPPED_ATTRIBUTE = "security.capability"
"""Rights of a program, which new content must not have; it goes as the set-id bits do."""

_ACCESS_LIST = "system.posix_acl_access"

_GIVEN_BY_THE_SYSTEM = frozenset({"security.selinux"})
"""A label that every file has."""

LARGE_FOLDER = 1_000
"""Names in a folder that is not looked through at each write. A smaller one takes less than a millisecond."""

REST_SECONDS = 10.0
"""How long a large folder is not looked through again; one of 150,000 files takes a tenth of a second."""

MAX_RESTING = 1_000
"""Large folders remembered; those that nobody wrote in for longest are forgotten first."""

_looked: dict[FolderId, float] = {}
"""When this process last began to look through a folder that is large, or is being looked through."""

_looked_guard = threading.Lock()


class Temporary:
    """A file that nobody else knows of, open for writing and locked.

    Args:
        folder: Where it is.
        name: Its name there.
        descriptor: Its descriptor.
    """

    __slots__ = ("_folder", "descriptor", "name")

    def __init__(self, folder: Folder, name: str, descriptor: int) -> None:
        self._folder = folder
        self.name = name
        self.descriptor: int | None = descriptor

    def close(self) -> None:
        """Close it, if it is not closed yet."""
        if self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            os.close(descriptor)

    def remove(self) -> None:
        """Remove it."""
        if os.name == "nt":
            self.close()  # an open file cannot be removed there
        with suppress(OSError):
            os.unlink(self._folder.named(self.name), dir_fd=self._folder.descriptor)


@contextmanager
def temporary_in(folder: Folder, mode: int) -> Generator[Temporary]:
    """Make a file in a folder; it is removed if an error leaves the `with`, else it must have been renamed.

    Args:
        folder: Where; leftovers there are removed.
        mode: Before the umask.

    Raises:
        OSError: It cannot be made.
    """
    name = temporary_name()
    found = temporary_names_in(folder)
    with alone_in(folder):
        remove_leftovers(folder, found)
        descriptor = os.open(folder.named(name), _MAKE, mode, dir_fd=folder.descriptor)
        try_lock(descriptor)
    temporary = Temporary(folder, name, descriptor)
    try:
        yield temporary
    except BaseException:
        temporary.remove()
        raise
    finally:
        temporary.close()


def take_over(temporary: Temporary, folder: Folder, name: str, before: os.stat_result) -> None:
    """Give a temporary file the owner, the mode and the attributes of the file that it replaces.

    Args:
        temporary: The new file.
        folder: Where both are.
        name: The old file.
        before: Its stat.

    Raises:
        OSError: The mode or the access list cannot be set.
    """
    mode = stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    descriptor = temporary.descriptor
    if sys.platform == "win32" or descriptor is None:
        os.chmod(folder.named(temporary.name), mode)
        return
    if not _keep_owner(descriptor, before):
        # Whoever is in the other group now must not get what was meant for the first one.
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3 & mode
    _copy_attributes(descriptor, folder, name)
    os.fchmod(descriptor, mode)


def _keep_owner(descriptor: int, before: os.stat_result) -> bool:
    """Give a file its owner and its group; whether the group could be kept."""
    if sys.platform == "win32":
        return True
    info = os.fstat(descriptor)
    if info.st_gid != before.st_gid:
        try:
            os.fchown(descriptor, -1, before.st_gid)
        except PermissionError:
            return False
    if info.st_uid != before.st_uid:
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, -1)
    return True


def _copy_attributes(descriptor: int, folder: Folder, name: str) -> None:
    """Extended attributes, access lists among them, as far as they may be read and set.

    What the new file has got from its folder (a default access list) and the old one had not is removed: it would
    give rights to others.
    """
    if sys.platform != "linux":
        return
    wanted: dict[str, bytes] = {}
    with suppress(OSError):
        old = os.open(folder.named(name), _LOOK, dir_fd=folder.descriptor)
        try:
            for attribute in os.listxattr(old):
                with suppress(OSError):
                    wanted[attribute] = os.getxattr(old, attribute)
        finally:
            os.close(old)
    given: list[str] = []
    with suppress(OSError):
        given = os.listxattr(descriptor)
    for attribute in given:
        if attribute not in wanted and attribute not in _GIVEN_BY_THE_SYSTEM:
            with _forgiving(attribute):
                os.removexattr(descriptor, attribute)
    for attribute, value in wanted.items():
        if attribute != _DROPPED_ATTRIBUTE:
            with _forgiving(attribute):
                os.setxattr(descriptor, attribute, value)


def _forgiving(attribute: str) -> AbstractContextManager[None]:
    """Nothing is lost if an attribute cannot be set; but without its access list a file would be open to others."""
    return nullcontext() if attribute == _ACCESS_LIST else suppress(OSError)


def temporary_names_in(folder: Folder) -> list[str]:
    """What may be left in a folder, to be held against its locks by `remove_leftovers`.

    It takes no lock, since to list a folder may take long. While another thread looks, or shortly after a look at a
    large folder, nothing is found.
    """
    if folder.descriptor is None:
        return []  # where folders have no descriptors, files have no locks that would tell
    which = folder_id(folder.descriptor)
    if not _is_due(which):
        return []
    names: list[str] = []
    try:
        names = folder.names()
    except OSError:
        pass  # a folder to put things into, not to look at
    finally:
        if len(names) < LARGE_FOLDER:
            with _looked_guard:
                _looked.pop(which, None)
    return [name for name in names if is_temporary(name)]


def _is_due(which: FolderId) -> bool:
    """Whether it is time to look through a folder; if so, no other thread does."""
    now = time.monotonic()
    with _looked_guard:
        last = _looked.pop(which, None)
        if last is not None and now - last < REST_SECONDS:
            _looked[which] = last
            return False
        _looked[which] = now
        if len(_looked) > MAX_RESTING:
            del _looked[next(iter(_looked))]
    return True


def remove_leftovers(folder: Folder, names: list[str]) -> None:
    """Remove those of some temporary files that no living writer holds.

    Args:
        folder: Where they are. The caller is alone in it, so that none of them is just being made and not locked yet.
        names: The files.
    """
    for name in names:
        with suppress(OSError):
            descriptor = os.open(folder.named(name), _LOOK, dir_fd=folder.descriptor)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode) and try_lock(descriptor):
                    os.unlink(folder.named(name), dir_fd=folder.descriptor)
            finally:
                os.close(descriptor)


NEW_FILE_MODE = 0o666
"""Mode of a created file before the umask."""

PRIVATE_MODE = 0o600
"""Mode of a temporary file until it has that of the file it replaces: nobody else may read it meanwhile."""

LOOK_SECONDS = 0.05
"""How often a call that waits for another one's write looks whether it was cancelled."""

_RENAME_NOREPLACE = 1


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did.

    Args:
        identity: The file's fingerprint afterwards.
        links_broken: How many other names still hold the old content (hard links), usually 0.
    """

    identity: FileIdentity
    links_broken: int


_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
"""By real path; a lock that nobody holds or waits for is gone by itself."""

_locks_guard = threading.Lock()


@contextmanager
def exclusive(location: Location, signal: AbortSignal) -> Generator[None]:
    """Keep other writers of this process away from one file while it is read, changed and written.

    Args:
        location: The file.
        signal: Looked at while another writer is waited for.

    Raises:
        ToolError: `cancelled`.
    """
    with _locks_guard:
        lock = _locks.get(location.path)
        if lock is None:
            lock = _locks[location.path] = threading.Lock()
    while not lock.acquire(timeout=LOOK_SECONDS):
        signal.raise_if_aborted()
    try:
        signal.raise_if_aborted()
        yield
    finally:
        lock.release()


def rename_in(folder: Folder, source: str, target: str, replacing: bool) -> None:
    """Rename within a folder.

    Args:
        folder: The folder.
        source: The present name.
        target: The new name.
        replacing: Whether something may be there already; where the system can tell, nothing else is replaced.

    Raises:
        OSError: It cannot be renamed; `EEXIST` if something is there that must not be replaced.
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
    """What a write asks of the disk, and what may fail there at any time.

    Args:
        write: Writes some of the bytes to a descriptor and tells how many.
        sync: Brings a descriptor's content to the disk.
        rename: As `rename_in`.
    """

    write: Callable[[int, memoryview], int] = os.write
    sync: Callable[[int], None] = os.fsync
    rename: Callable[[Folder, str, str, bool], None] = rename_in


REAL_DISK = Disk()


def replace_file(
    workspace: Workspace,
    location: Location,
    content: bytes,
    expected: FileIdentity | None,
    disk: Disk = REAL_DISK,
) -> Written:
    """Write a whole file.

    Args:
        workspace: Opens its folder.
        location: The target; missing folders above it are made.
        content: The new bytes.
        expected: The fingerprint of the file that this content was made from, or `None` for a new file.
        disk: Does the writing.

    Raises:
        ToolError: `file_changed_since_read` if the file is not (or no longer) as expected, else why the write
            failed. The old content is whole in every case, and nothing is left beside it.
    """
    try:
        with workspace.folder_to_write_in(location) as folder:
            return _replace(folder, location, content, expected, disk)
    except NotADirectoryError:
        raise ToolError(
            ToolErrorType.FILE_WRITE_FAILURE,
            f"'{location.shown}' cannot be written: a part of the path is a file, not a folder. "
            "Use another path; list_directory shows what is there.",
        ) from None
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.FILE_WRITE_FAILURE) from None


def _replace(folder: Folder, location: Location, content: bytes, expected: FileIdentity | None, disk: Disk) -> Written:
    name = os.path.basename(location.path)
    with temporary_in(folder, NEW_FILE_MODE if expected is None else PRIVATE_MODE) as temporary:
        _write(temporary, content, disk)
        with alone_in(folder):
            before = _check_expected(folder, name, location, expected)
            if before is not None:
                take_over(temporary, folder, name, before)
            if os.name == "nt":
                temporary.close()  # an open file cannot be renamed there
            try:
                disk.rename(folder, temporary.name, name, before is not None)
            except FileExistsError:
                raise _changed(location) from None
        after = os.lstat(location.path) if temporary.descriptor is None else os.fstat(temporary.descriptor)
    _sync_folder(folder, disk)
    return Written(identity_of(after), before.st_nlink - 1 if before is not None else 0)


def _write(temporary: Temporary, content: bytes, disk: Disk) -> None:
    descriptor = temporary.descriptor
    assert descriptor is not None  # noqa: S101 - nobody has closed it yet
    left = memoryview(content)
    while left:
        left = left[disk.write(descriptor, left) :]
    disk.sync(descriptor)


def _check_expected(
    folder: Folder, name: str, location: Location, expected: FileIdentity | None
) -> os.stat_result | None:
    now = folder.stat(name)
    if now is not None and stat.S_ISDIR(now.st_mode):
        raise ToolError(ToolErrorType.TARGET_IS_DIRECTORY, f"'{location.shown}' is a directory, not a file.")
    if now is not None and not stat.S_ISREG(now.st_mode):
        raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"'{location.shown}' is not a regular file.")
    if (identity_of(now) if now is not None else None) != expected:
        raise _changed(location)
    return now


def _changed(location: Location) -> ToolError:
    return ToolError(
        ToolErrorType.FILE_CHANGED_SINCE_READ,
        f"'{location.shown}' was changed by somebody else in this very moment; nothing was written. "
        "Read it again and repeat the change on what it holds now.",
    )


def _sync_folder(folder: Folder, disk: Disk) -> None:
    """Bring the new name to the disk too; where that fails the file is whole all the same."""
    if folder.descriptor is not None:
        with suppress(OSError):
            disk.sync(folder.descriptor)
