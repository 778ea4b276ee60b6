"""Opening a path in which no link is followed, and finding that path.

A real path holds no link. If one of its folders is exchanged for a link afterwards, opening it fails instead of
leading elsewhere. So what is contained by its text is contained in truth, and there is no moment between a check and
the use. On Linux the kernel does this in one call (`openat2`); elsewhere, or where that call is not permitted, we step
from folder to folder by descriptors.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache

MAX_LINKS = 40
"""Links followed to find a real path (Linux's limit)."""

MAX_NAMES = 4_096
"""Names followed to find a real path, those in links included: twice as many as the longest path has.

Each costs a look at the disk, and forty links can hold so many of them that one path takes a tenth of a second.
"""

CAN_STEP = os.open in os.supports_dir_fd
"""Whether folders can be opened as descriptors; Windows has none, there a path is checked and then opened."""

_OPENAT2 = 437
"""Number of the system call, the same on every processor that Linux supports but Alpha."""
_AT_FDCWD = -100
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_ATTEMPTS = 100
"""The kernel asks to try again where folders were moved meanwhile; nobody moves them so many times in a row."""

JUST_LOOK: int = getattr(os, "O_PATH", 0)
"""The flag of a descriptor that reads nothing; 0 where there is none."""
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: int = getattr(os, "O_DIRECTORY", 0)
_STEP_FLAGS = (JUST_LOOK or os.O_RDONLY) | _FOLDER | _NO_LINK

Opener = Callable[[str, int, int], int]
"""Path, flags, mode of a file that is made; returns a descriptor."""


def open_link_free(path: str, flags: int, mode: int = 0) -> int:
    """Open a real path; the descriptor is not inherited by children.

    Args:
        path: Absolute, without `.` and `..`.
        flags: As for `os.open`. With `O_PATH` and `O_NOFOLLOW` a link at the end is opened itself.
        mode: Of a file that is made.

    Raises:
        OSError: `ELOOP` if a part of the path is a link by now, else why it cannot be opened.
    """
    return _opener()(path, flags, mode)


def look(path: str) -> os.stat_result:
    """The stat of what is at a real path, a link at its end not followed.

    Raises:
        OSError: Nothing is there, or it cannot be looked at, or a folder above is a link by now.
    """
    if not JUST_LOOK:
        return _look_by_steps(path)
    descriptor = open_link_free(path, JUST_LOOK | _NO_LINK)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def real_path(path: str) -> str:
    """A path with every link resolved. What does not exist is kept as it is spelled.

    Args:
        path: Absolute.

    Raises:
        OSError: `ELOOP`: it takes more than `MAX_LINKS` links or `MAX_NAMES` names.
    """
    if not CAN_STEP:
        return os.path.realpath(path)
    normal = os.path.normpath(path)
    if ".." not in path and JUST_LOOK:
        try:
            os.close(open_link_free(normal, JUST_LOOK))
        except OSError:
            pass  # it holds a link, or does not exist
        else:
            return normal
    return _resolved(path)


def _resolved(path: str) -> str:
    waiting = path.split(os.sep)[::-1]
    real = os.sep
    links = names = 0
    while waiting:
        names += 1
        if names > MAX_NAMES:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        name = waiting.pop()
        if name in ("", os.curdir):
            continue
        if name == os.pardir:
            real = os.path.dirname(real)
            continue
        below = os.path.join(real, name)
        try:
            target = os.readlink(below)
        except OSError:
            real = below  # no link; whether it exists is seen when it is opened
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        real = os.sep if target.startswith(os.sep) else real
        waiting.extend(target.split(os.sep)[::-1])
    return real


@cache
def _opener() -> Opener:
    """The way that works here, found once."""
    if not CAN_STEP:
        return _open_checked
    if sys.platform == "linux":
        by_kernel = _kernel_opener()
        try:
            os.close(by_kernel(os.sep, os.O_RDONLY | _FOLDER, 0))
        except OSError:
            return open_by_steps  # an old kernel, or a sandbox that forbids the call
        return by_kernel
    return open_by_steps


def _kernel_opener() -> Opener:
    import ctypes  # noqa: PLC0415 - only needed once a file is touched; starting is quicker without

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    size = ctypes.sizeof(OpenHow)

    @cache
    def how(flags: int, mode: int) -> OpenHow:
        return OpenHow(flags | getattr(os, "O_CLOEXEC", 0), mode, _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)

    def open_(path: str, flags: int, mode: int) -> int:
        wanted = ctypes.byref(how(flags, mode))
        name = os.fsencode(path)
        if b"\0" in name:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))  # the kernel would take it for the end
        number = 0
        for _ in range(_ATTEMPTS):
            descriptor = call(_OPENAT2, _AT_FDCWD, name, wanted, size)
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(number, os.strerror(number))

    return open_


def open_by_steps(path: str, flags: int, mode: int) -> int:
    """Open a real path folder by folder, as `open_link_free` does where the kernel cannot."""
    *folders, name = path.strip(os.sep).split(os.sep)
    current = os.open(os.sep, _STEP_FLAGS)
    try:
        for folder in folders:
            below = _step(folder, current)
            os.close(current)
            current = below
        descriptor = _opened_below(name or os.curdir, flags | _NO_LINK, mode, current)
    finally:
        os.close(current)
    if flags & JUST_LOOK and not flags & _NO_LINK and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return descriptor


def _step(folder: str, current: int) -> int:
    return _opened_below(folder, _STEP_FLAGS, 0, current)


def _opened_below(name: str, flags: int, mode: int, folder: int) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _look_by_steps(path: str) -> os.stat_result:
    if not CAN_STEP:
        return os.lstat(path)
    above, name = os.path.split(path)
    folder = open_by_steps(above, _STEP_FLAGS, 0)
    try:
        return os.stat(name or os.curdir, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)


def _open_checked(path: str, flags: int, mode: int) -> int:
    """For systems whose folders have no descriptors: the check comes before the use."""
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return os.open(path, flags, mode)
