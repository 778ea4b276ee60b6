"""The one way to change a file: the whole new content, beside the old one, then a rename.

A reader sees the old or the new content, never a mixture. Mode and owner are kept, set-id bits are dropped.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.ledger import FileIdentity
from tools.filesystem.descriptors import identity_of
from tools.filesystem.workspace import Location, explain

TEMPORARY_PREFIX = ".coretools-"
"""How the temporary file beside the target is called; a leftover of a killed process is recognised by it."""

NEW_FILE_MODE = 0o666
"""Mode of a created file before the umask."""

PRIVATE_MODE = 0o600
"""Mode of a temporary file until it has that of the file it replaces: nobody else may read it meanwhile."""

LOOK_SECONDS = 0.05
"""How often a call that waits for another one's write looks whether it was cancelled."""


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


def replace_file(location: Location, content: bytes, expected: FileIdentity | None) -> Written:
    """Write a whole file.

    Args:
        location: The target; missing parent folders are created.
        content: The new bytes.
        expected: The fingerprint of the file that this content was made from, or `None` for a new file.

    Raises:
        ToolError: `file_changed_since_read` if the file is not (or no longer) as expected, else why the write
            failed. The old content is whole in every case.
    """
    parent = os.path.dirname(location.path)
    temporary = os.path.join(parent, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp")
    try:
        _make_folder(parent, location)
        _write_temporary(temporary, content, NEW_FILE_MODE if expected is None else PRIVATE_MODE)
        try:
            before = _check_expected(location, expected)
            if before is not None:
                _keep_mode_and_owner(temporary, before)
            os.replace(temporary, location.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(parent)
        after = os.lstat(location.path)
    except OSError as error:
        raise explain(error, location.spelled, ToolErrorType.FILE_WRITE_FAILURE) from None
    return Written(identity_of(after), before.st_nlink - 1 if before is not None else 0)


def _make_folder(folder: str, location: Location) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ToolError(
            ToolErrorType.FILE_WRITE_FAILURE,
            f"'{location.spelled}' cannot be written: a part of the path is a file, not a folder. "
            "Use another path; list_directory shows what is there.",
        ) from None


def _write_temporary(path: str, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, mode)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _check_expected(location: Location, expected: FileIdentity | None) -> os.stat_result | None:
    try:
        now = os.lstat(location.path)
    except FileNotFoundError:
        now = None
    if now is not None and stat.S_ISDIR(now.st_mode):
        raise ToolError(ToolErrorType.TARGET_IS_DIRECTORY, f"'{location.spelled}' is a directory, not a file.")
    if now is not None and not stat.S_ISREG(now.st_mode):
        raise ToolError(ToolErrorType.FILE_WRITE_FAILURE, f"'{location.spelled}' is not a regular file.")
    if (identity_of(now) if now is not None else None) != expected:
        raise ToolError(
            ToolErrorType.FILE_CHANGED_SINCE_READ,
            f"'{location.spelled}' was changed by somebody else in this very moment; nothing was written. "
            "Read it again and repeat the change on what it holds now.",
        )
    return now


def _keep_mode_and_owner(temporary: str, before: os.stat_result) -> None:
    if sys.platform != "win32":
        info = os.stat(temporary)
        if (info.st_uid, info.st_gid) != (before.st_uid, before.st_gid):
            with suppress(PermissionError):
                os.chown(temporary, before.st_uid, before.st_gid)
    os.chmod(temporary, stat.S_IMODE(before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _sync_folder(folder: str) -> None:
    if os.name != "posix":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
