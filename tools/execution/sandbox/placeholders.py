"""Names that stay untaken while a command runs.

A mount needs something to stand on, so a name that is absent can only be kept from a command by an empty folder. It is
marked by its sticky bit, which means nothing on a folder that only its owner may write; whoever uses it holds a shared
lock, and the last one removes it. A lock ends with its process, so a folder left behind by a server that was killed is
removed by the next server that is given the same workspace, or adopted by its next command; until then it is an empty
folder that git does not see. A folder that somebody has put something into is never removed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
import weakref
from collections.abc import Container, Generator, Iterable
from contextlib import contextmanager, suppress

from tools.filesystem.changing.folder_lock import is_marked, try_lock
from tools.permissions.steering_files import ABSENT_FILES, ABSENT_FOLDERS, REPOSITORY, REPOSITORY_FOLDERS

ATTEMPTS = 200
PAUSE_SECONDS = 0.005
"""How often a folder that another server is just removing is made anew, and how long that may take between."""

_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Why a folder cannot be made where no command can make anything either."""

_AS_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)

MODE = stat.S_ISVTX | 0o755
"""Anybody who could write in the folder above can see that it is empty, and its owner can put something into it."""


class Placeholders:
    """Empty folders at absent paths, held until `release`.

    Args:
        paths: Where; what is taken by something else, or cannot be made by a command either, is left alone.

    Raises:
        OSError: A name cannot be kept free.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._held: list[tuple[str, int]] = []
        self._removed: list[int] = []
        # Also when the object is lost, and at the end of the program.
        self._finish = weakref.finalize(self, _finish, self._held, self._removed)
        for path in paths:
            self._take(path)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that are held."""
        return tuple(path for path, _ in self._held)

    def release(self, spared: Container[str] = ()) -> None:
        """Remove those that nobody else holds. May be called again.

        Args:
            spared: Names that are held further.
        """
        kept = [(path, descriptor) for path, descriptor in self._held if os.path.basename(path) in spared]
        self._held[:] = [held for held in self._held if held not in kept]
        _release(self._held, self._removed)
        self._held += kept

    def close(self) -> None:
        """Close what `release` has left open. A file system takes longer for that than for all the rest."""
        self._finish()

    def _take(self, path: str) -> None:
        for _ in range(ATTEMPTS):
            is_made = _make(path)
            if is_made is None:
                return
            if is_made or is_placeholder(path):
                try:
                    descriptor = _hold(path)
                except OSError:
                    if is_made:
                        os.rmdir(path)
                    raise
                if descriptor is not None:
                    self._held.append((path, descriptor))
                    return
            elif os.path.lexists(path):
                return
            time.sleep(PAUSE_SECONDS)
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _make(path: str) -> bool | None:
    """Make a folder; whether it was not there, `None` where no command can make anything either.

    Raises:
        OSError: It cannot be made now, but perhaps by a command later.
    """
    try:
        with _folder_of(path) as folder:
            os.mkdir(os.path.basename(path), MODE, dir_fd=folder)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        raise
    return True


def _finish(held: list[tuple[str, int]], removed: list[int]) -> None:
    _release(held, removed)
    while removed:
        os.close(removed.pop())


def _release(held: list[tuple[str, int]], removed: list[int]) -> None:
    while held:
        path, descriptor = held.pop()
        if _remove(path, descriptor):
            removed.append(descriptor)
        else:
            os.close(descriptor)  # and with it the lock, for whoever still holds one


def is_placeholder(path: str) -> bool:
    """Whether a path is one of ours: an empty folder with the mark."""
    try:
        status = os.lstat(path)
        return stat.S_ISDIR(status.st_mode) and is_marked(status.st_mode) and not os.listdir(path)
    except OSError:
        return False


def remove_abandoned(roots: Iterable[str]) -> None:
    """Remove the placeholders at the top of roots that nobody holds any more, since their server was killed."""
    kept_free = (*ABSENT_FOLDERS, *ABSENT_FILES, *(os.path.join(REPOSITORY, name) for name in REPOSITORY_FOLDERS))
    for path in (os.path.join(root, name) for root in roots for name in kept_free):
        if not is_placeholder(path):
            continue
        with suppress(OSError):
            descriptor = os.open(path, _AS_FOLDER)
            try:
                # Where there are no locks nobody can tell whether a command of another server needs it.
                if try_lock(descriptor) and is_marked(os.fstat(descriptor).st_mode):
                    _remove(path, descriptor)
            finally:
                os.close(descriptor)


def _hold(path: str) -> int | None:
    """A descriptor with a shared lock, or `None` where the folder is being removed."""
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(path, _AS_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Where a file system has no locks, other servers do not wait for this one, and the folder is kept all the same.
    if try_lock(descriptor, shared=True) is not False:
        with suppress(OSError):
            if _is_at(descriptor, path):
                return descriptor
    os.close(descriptor)
    return None


def _remove(path: str, descriptor: int) -> bool:
    """Whether the folder is gone now, by us."""
    with suppress(OSError):
        if try_lock(descriptor) is not False and _is_at(descriptor, path):
            _remove_empty(path)
            return True
    return False


def _remove_empty(path: str) -> None:
    try:
        with _folder_of(path) as folder:
            os.rmdir(os.path.basename(path), dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        os.rmdir(path)  # the same but for a folder above that was swapped since, where it can take an empty one at most


@contextmanager
def _folder_of(path: str) -> Generator[int]:
    """A descriptor of the folder that a path is in, if that is no link."""
    descriptor = os.open(os.path.dirname(path), _AS_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    held, there = os.fstat(descriptor), os.lstat(path)
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)
