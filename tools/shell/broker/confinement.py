"""Confines a forked process before it executes a program: joins namespaces and gives up rights through Landlock.

Confinement cannot be undone, so only a fork made for this purpose may confine itself. The server and the broker protect
their own memory, environment and descriptors (`make_private`). The server also creates rulesets for commands in
bubblewrap (`ruleset_for_writing`). System calls are made through ctypes, so only the standard library is needed. The
fork imports nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

if sys.platform == "win32":
    raise ImportError("the broker is not available on Windows")

OLDEST_ABI = 3  # Linux 6.2, the first version in which truncating a file needs a right
SCOPES_ABI = 6  # Linux 6.12, the first version that confines signals and abstract sockets
_TCP_ABI = 4
_MAX_CAPABILITIES = 64
# The numbers are the same on every architecture (asm-generic/unistd.h).
_OPENAT2, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 437, 444, 445, 446
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
# linux/prctl.h, linux/seccomp.h, linux/capability.h, asm-generic/fcntl.h, linux/openat2.h
_SET_SECCOMP, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL, _FILTER_MODE = 22, 24, 38, 47, 4, 2
_SET_DUMPABLE = 4
_CAPABILITY_VERSION = 0x20080522
_O_PATH, _NO_SYMLINKS = 0o10000000, 0x04
# linux/fcntl.h, linux/mount.h: mount from descriptor to descriptor, with the attributes read-only, nosuid, nodev.
_EMPTY_PATH, _RECURSIVE, _CLONED, _BY_DESCRIPTORS = 0x1000, 0x8000, 1, 0x04 | 0x40
_READ_ONLY, _WITHOUT_DEVICES = 1, 2 | 4
# linux/landlock.h. Execute, write, read and truncate are rights for files; all others are for folders.
_ALL_RIGHTS = (1 << 15) - 1
_TRUNCATE = 1 << 14
_FILE_RIGHTS = 0b111 | _TRUNCATE
_WRITE_RIGHTS = _ALL_RIGHTS & ~0b1101  # all except those for reading and executing
_READ_RIGHTS = 0b1101  # execute, read a file, list a folder
_MAKE_DEVICE_OR_SOCKET = 1 << 6 | 1 << 9 | 1 << 11
_BIND_AND_CONNECT = 0b11
_SIGNALS_AND_ABSTRACT_SOCKETS = 0b11
_PATH_BENEATH = 1
_library = ctypes.CDLL(None, use_errno=True)
# These functions are looked up once, before any fork, because a lookup in each fork would take additional memory pages.
# The `signal` module would take additional pages too.
set_signal = _library.signal
_setns = _library.setns if sys.platform == "linux" else _library.signal


def _call(function: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library. Return its result, or raise an `OSError` if it fails."""
    c_arguments = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    result: int = getattr(_library, function)(*c_arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result


def make_private() -> None:
    """On Linux, let only root debug this process, and read its `environ`, `fd` and `mem` in `/proc`.

    Forks of this process inherit this protection, but programs that they execute do not.
    """
    if sys.platform == "linux":
        _library.prctl(_SET_DUMPABLE, ctypes.c_ulong(0))


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock ABI, or 0 if Landlock is missing or disabled."""
    if sys.platform != "linux":
        return 0
    try:
        return _call("syscall", _CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def join_namespace(descriptor: int) -> None:
    if _setns(descriptor, 0) < 0:
        raise OSError(ctypes.get_errno(), "setns")


def confine(readable: list[bytes], writable: list[bytes], calls: bytes) -> None:
    """Permanently restrict this process and its children with Landlock and seccomp, and drop all capabilities."""
    abi = landlock_abi()
    if abi < OLDEST_ABI or sys.platform != "linux":
        raise OSError(errno.ENOSYS, "the kernel's Landlock is missing or too old")
    attributes = struct.pack(
        "=QQQ",
        _ALL_RIGHTS,
        _BIND_AND_CONNECT if abi >= _TCP_ABI else 0,
        _SIGNALS_AND_ABSTRACT_SOCKETS if abi >= SCOPES_ABI else 0,
    )
    rules = _call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    for path in readable:
        _allow(rules, path, _READ_RIGHTS)
    for path in writable:
        _allow(rules, path, _ALL_RIGHTS & ~_MAKE_DEVICE_OR_SOCKET)
    _call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("syscall", _RESTRICT_SELF, rules, 0)
    os.close(rules)
    # Root regains all capabilities in the bounding set when it executes a program.
    for capability in range(_MAX_CAPABILITIES):
        with suppress(OSError):  # there is no such capability, or it cannot be dropped
            _call("prctl", _CAPBSET_DROP, capability, 0, 0, 0)
    _call("prctl", _CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _call("capset", struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24))
    program = ctypes.create_string_buffer(calls, len(calls))
    _call("prctl", _SET_SECCOMP, _FILTER_MODE, struct.pack("@HP", len(calls) // 8, ctypes.addressof(program)), 0, 0)


def mount_in(pid_descriptor: int, parent: int, steps: Iterable[tuple[bytes, bytes, bool, bool]]) -> None:
    """Make the mounts in `steps` in the user and mount namespaces of another process.

    The id of that process is read from `pid_descriptor`. Follows no symlinks and creates nothing. Raises an `OSError`
    if a folder was replaced, or if the process is not a child of `parent`.
    """
    os.close(_open_path(b"/"))  # the first `openat2` in a fork is slow, so call it while nobody is waiting
    process_folder = os.open(f"/proc/{int(os.read(pid_descriptor, 16) or 0)}", os.O_RDONLY | os.O_DIRECTORY)
    status = os.open("stat", os.O_RDONLY, dir_fd=process_folder)
    if int(os.read(status, 4096).rpartition(b")")[2].split()[1]) != parent:
        raise OSError(errno.ESRCH, "not the expected process")
    for name in ("ns/user", "ns/mnt"):
        namespace = os.open(name, os.O_RDONLY, dir_fd=process_folder)
        if os.fstat(namespace).st_ino != os.stat(f"/proc/self/{name}").st_ino:
            join_namespace(namespace)
        elif name == "ns/mnt":
            raise OSError(errno.ESRCH, "the server's own namespace must not change")
    for source_path, target_path, is_read_only, is_moved in steps:
        target = _open_path(target_path)
        source = _open_path(source_path) if source_path else target
        recursive = 0 if is_moved else _RECURSIVE
        tree = (
            source
            if is_moved
            else _call("syscall", _OPEN_TREE, source, b"", _EMPTY_PATH | recursive | _CLONED | os.O_CLOEXEC)
        )
        attributes = struct.pack("=QQQQ", _WITHOUT_DEVICES | _READ_ONLY * is_read_only, 0, 0, 0)
        _call("syscall", _MOUNT_SETATTR, tree, b"", _EMPTY_PATH | recursive, attributes, len(attributes))
        _call("syscall", _MOVE_MOUNT, tree, b"", target, b"", _BY_DESCRIPTORS)
        for descriptor in {target, source, tree}:
            os.close(descriptor)


def ruleset_for_writing() -> int:
    """Return the descriptor of a ruleset that allows changes only to paths added by `allow_writing`."""
    attributes = struct.pack("=QQQ", _WRITE_RIGHTS, 0, 0)
    return _call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)


def allow_writing(rules: int, root: str, paths: Iterable[str]) -> None:
    """Allow changes to the files and folders now at `paths` under `root`. `rules` comes from `ruleset_for_writing`."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path in paths:
            _allow(rules, os.fsencode(path.lstrip("/")), _WRITE_RIGHTS, folder)
    finally:
        os.close(folder)


def _open_path(path: bytes, folder: int = -1) -> int:
    open_how = struct.pack("=QQQ", _O_PATH | os.O_CLOEXEC, 0, _NO_SYMLINKS)
    return _call("syscall", _OPENAT2, folder, path, open_how, len(open_how))


def _allow(rules: int, path: bytes, rights: int, folder: int = -1) -> None:
    """Grant rights to the file or folder that is now at a path, and to everything in it."""
    try:
        descriptor = _open_path(path, folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        _call("syscall", _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
