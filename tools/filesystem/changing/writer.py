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
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from weakref import WeakValueDictionary

from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.ledger import FileIdentity
from tools.filesystem.changing.folder_lock import alone_in
from tools.filesystem.changing.temporary_file import Temporary, take_over, temporary_in
from tools.filesystem.descriptors import Folder, identity_of
from tools.filesystem.workspace import Location, Workspace

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
