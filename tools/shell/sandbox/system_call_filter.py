"""What a command may ask the kernel for: a filter of system calls, as the program that bubblewrap loads.

Mounts hide files, but a socket of the local family is not a file to them: connecting to one works on a read-only mount,
and abstract ones have no path at all. So the sandbox has no local sockets but pairs, which have no name. The internet
families are left to the network namespace.

A filter sees numbers, not what pointers point at. What would do the same by another way (io_uring, other
instruction sets) is therefore refused as a whole, and so is what only makes a larger target of the kernel.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

# BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_ALU|AND|K, BPF_RET|K (linux/bpf_common.h).
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO (linux/seccomp.h)
# Where `struct seccomp_data` holds them; both architectures are little-endian, so the low half comes first.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000  # bit of the second set of call numbers on x86-64; elsewhere there are none so high
_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK (which lists addresses and routes)
_PAIR_TYPES = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET; a pair of datagram sockets can still send to a named one
_TYPE_MASK = 0xF
_NEW_NAMESPACES = 0x7E020080  # all CLONE_NEW* flags: in a namespace of its own a command would have capabilities
_CLONE_NAMESPACES = 0x7E020000  # the same for `clone`, where the lowest byte is a signal


@dataclass(frozen=True, slots=True)
class _Architecture:
    """The numbers of one architecture (asm/unistd.h)."""

    audit: int  # AUDIT_ARCH_*
    refused: tuple[int, ...]  # calls that are not permitted
    calls: tuple[int, int, int, int]  # numbers of socket, socketpair, clone and unshare


# io_uring_setup, io_uring_enter, io_uring_register, clone3: the same everywhere. They are said not to exist, since
# programs then take the older way, which the filter can look into.
_ABSENT = (425, 426, 427, 435)
# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr: the same everywhere.
_NEW_MOUNTS = (428, 429, 430, 431, 432, 433, 442)
_ARCHITECTURES = {
    "x86_64": _Architecture(
        audit=0xC000003E,
        # add_key, request_key, keyctl, bpf, userfaultfd, perf_event_open, setns, mount, umount2, pivot_root, chroot,
        # open_by_handle_at, kexec_load, kexec_file_load, init_module, finit_module, delete_module, syslog, acct,
        # swapon, swapoff, reboot, quotactl
        refused=(
            *(248, 249, 250, 321, 323, 298, 308, 165, 166, 155, 161, 304, 246, 320, 175, 313, 176, 103, 163, 167, 168),
            *(169, 179),
            *_NEW_MOUNTS,
        ),
        calls=(41, 53, 56, 272),
    ),
    "aarch64": _Architecture(
        audit=0xC00000B7,
        refused=(
            *(217, 218, 219, 280, 282, 241, 268, 40, 39, 41, 51, 265, 104, 294, 105, 273, 106, 116, 89, 224, 225),
            *(142, 60),
            *_NEW_MOUNTS,
        ),
        calls=(198, 199, 220, 97),
    ),
}


@cache
def seccomp_program(machine: str) -> bytes | None:
    """The filter for an architecture, as `uname -m` calls it; `None` where there is none."""
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    lines: list[bytes] = []

    def add(code: int, value: int, *, true: int = 0, false: int = 0) -> None:
        lines.append(struct.pack("<HBBI", code, true, false, value))

    def refuse(calls: Iterable[int], number: int) -> None:
        for call in calls:
            add(_EQUAL, call, false=1)
            add(_RETURN, _ERRNO | number)

    def only_one_of(call: int, argument: int, mask: int, values: tuple[int, ...], number: int) -> None:
        # It decides about this call, so nothing after it sees another number loaded.
        add(_EQUAL, call, false=len(values) + 4)
        add(_LOAD, _ARGUMENTS_AT + 8 * argument)
        add(_AND, mask)
        for at, value in enumerate(values):
            add(_EQUAL, value, true=len(values) - at)
        add(_RETURN, _ERRNO | number)
        add(_RETURN, _ALLOW)

    socket, pair, clone, unshare = architecture.calls
    add(_LOAD, _ARCHITECTURE_AT)
    add(_EQUAL, architecture.audit, true=1)
    add(_RETURN, _ERRNO | errno.EPERM)
    add(_LOAD, _NUMBER_AT)
    add(_AT_LEAST, _X32, false=1)
    add(_RETURN, _ERRNO | errno.ENOSYS)
    refuse(_ABSENT, errno.ENOSYS)
    refuse(architecture.refused, errno.EPERM)
    only_one_of(socket, 0, 0xFFFFFFFF, _FAMILIES, errno.EAFNOSUPPORT)
    only_one_of(pair, 1, _TYPE_MASK, _PAIR_TYPES, errno.EPROTONOSUPPORT)
    only_one_of(clone, 0, _CLONE_NAMESPACES, (0,), errno.EPERM)
    only_one_of(unshare, 0, _NEW_NAMESPACES, (0,), errno.EPERM)
    add(_RETURN, _ALLOW)
    return b"".join(lines)
