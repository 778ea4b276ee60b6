"""The file in which new content waits beside the one that it replaces, and what killed writers left of such files.

Whoever writes holds a lock on its temporary file. A lock ends with its process, so a temporary file that can be locked
is a leftover; the next writer in the folder removes it.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from tools.filesystem.changing.folder_lock import FolderId, alone_in, folder_id, try_lock
from tools.filesystem.descriptors import Folder
from tools.filesystem.temporary_names import is_temporary, temporary_name

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
