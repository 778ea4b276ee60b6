"""Builds system call filters for commands that bubblewrap or Landlock confines.

Mounts hide files, but not local sockets (AF_UNIX): connecting to a socket works on a read-only mount, and abstract
sockets have no path at all. The sandbox therefore has no local sockets except unnamed pairs. Internet sockets are
controlled by the network namespace.

A filter sees numbers, but not the data that pointers refer to. Calls that could bypass it (io_uring, other instruction
sets) are therefore refused completely, as are calls that only increase the kernel's attack surface.

Landlock controls only opening, creating and removing files, and comes without namespaces. The filter for
read-only commands under Landlock therefore controls the rest: changing a file without opening it for writing, or
through a folder that is open for reading; other processes; shared memory and messages; and the network.
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
# Positions in `struct seccomp_data`; both architectures are little-endian, so the low half comes first.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000  # marks the second set of call numbers on x86-64; other architectures have no numbers this high
_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK (which lists addresses and routes)
_PAIR_TYPES = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET; not datagrams, because such a pair can still send to a named socket
_TYPE_MASK = 0xF
# NETLINK_ROUTE; other protocols reach other programs, or parts of the kernel that can be used without a capability.
_ROUTES = 0
_NEW_NAMESPACES = 0x7E020080  # all CLONE_NEW* flags, because a command would have capabilities in its own namespace
_CLONE_NAMESPACES = 0x7E020000  # the same flags for `clone`, where the lowest byte of the argument is a signal number


@dataclass(frozen=True, slots=True)
class _Architecture:
    """The call numbers of one architecture (asm/unistd.h)."""

    audit: int  # AUDIT_ARCH_*
    refused: tuple[int, ...]  # forbidden calls
    calls: tuple[int, int, int, int]  # numbers of socket, socketpair, clone and unshare
    refused_to_readers: tuple[int, ...]
    shares: tuple[int, ...]  # calls that use per-user kernel resources shared by all programs
    signals: tuple[int, ...]  # calls that signal other processes, with `kill` first
    looked_into: tuple[int, int, int]  # numbers of ioctl, fcntl and prlimit64


# io_uring_setup, io_uring_enter, io_uring_register, clone3: the same numbers on every architecture. The filter reports
# these calls as missing, so that programs use the older calls, which the filter can check.
_ABSENT = (425, 426, 427, 435)
# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr: the same numbers on every architecture.
_NEW_MOUNTS = (428, 429, 430, 431, 432, 433, 442)
# setxattrat, removexattrat, file_setattr, fchmodat2, pidfd_getfd, process_madvise, process_mrelease, quotactl_fd: the
# same numbers on every architecture.
_REFUSED_TO_READERS = (463, 466, 469, 452, 438, 440, 448, 443)
_SIGNAL_BY_DESCRIPTOR = 424  # pidfd_send_signal
_OPENAT2 = 437  # reported as missing to read-only commands under Landlock, so that programs use the older call
# Allowed requests to a terminal or descriptor (TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX,
# TCGETS2, FS_IOC_GETFLAGS). Other requests change attributes, create subvolumes or send signals.
_DEVICE_QUESTIONS = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A, 0x80086601)
# F_SETLEASE, F_NOTIFY, F_SETDELEG, which, even with only read access, would block or observe other programs that open
# the file.
_LEASES = (1024, 1026, 1040)
# Copies, flags, locks, pipe sizes and memory seals, but not owners and signals (F_SETOWN, F_SETSIG), leases or hints.
_DESCRIPTOR_QUESTIONS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1027, 1030, 1031, 1032, 1033, 1034)
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
        # chmod, fchmod, fchmodat, chown, fchown, lchown, fchownat, utime, utimes, futimesat, utimensat, (l|f)setxattr,
        # (l|f)removexattr, truncate, mknod, mknodat, ptrace, process_vm_readv, process_vm_writev, kcmp, migrate_pages,
        # move_pages, setpriority, ioprio_set, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr,
        # shmget, shmat, shmctl, semget, semop, semctl, semtimedop, msgget, msgsnd, msgrcv, msgctl, mq_open, mq_unlink
        refused_to_readers=(
            *(90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 76, 133, 259, 101),
            *(310, 311, 312, 256, 279, 141, 251, 142, 144, 203, 314, 29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71),
            *(240, 241),
        ),
        # inotify_init, inotify_init1, fanotify_init, mq_open
        shares=(253, 294, 300, 240),
        # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo
        signals=(62, 200, 234, 129, 297),
        looked_into=(16, 72, 302),
    ),
    "aarch64": _Architecture(
        audit=0xC00000B7,
        refused=(
            *(217, 218, 219, 280, 282, 241, 268, 40, 39, 41, 51, 265, 104, 294, 105, 273, 106, 116, 89, 224, 225),
            *(142, 60),
            *_NEW_MOUNTS,
        ),
        calls=(198, 199, 220, 97),
        refused_to_readers=(
            *(52, 53, 55, 54, 88, 5, 6, 7, 14, 15, 16, 45, 33, 117, 270, 271, 272, 238, 239, 140, 30, 118, 119, 122),
            *(274, 194, 196, 195, 190, 193, 191, 192, 186, 189, 188, 187, 180, 181),
        ),
        shares=(26, 262, 180),
        signals=(129, 130, 131, 138, 240),
        looked_into=(29, 25, 261),
    ),
}


class _Filter:
    def __init__(self) -> None:
        self.program = b""

    def add(self, code: int, value: int, *, true: int = 0, false: int = 0) -> None:
        """Add an instruction. `true` and `false` are the numbers of instructions that a comparison skips."""
        self.program += struct.pack("<HBBI", code, true, false, value)

    def refuse(self, calls: Iterable[int], number: int) -> None:
        for call in calls:
            self.add(_EQUAL, call, false=1)
            self.add(_RETURN, _ERRNO | number)

    def decide(
        self, call: int, argument: int, values: tuple[int, ...], listed: int, other: int, mask: int = 0xFFFFFFFF
    ) -> None:
        """Answer a call with `listed` if an argument is in `values`, otherwise with `other`.

        Later instructions do not see this call.
        """
        self.add(_EQUAL, call, false=len(values) + 4)
        self.add(_LOAD, _ARGUMENTS_AT + 8 * argument)
        self.add(_AND, mask)
        for at, value in enumerate(values):
            self.add(_EQUAL, value, true=len(values) - at)
        self.add(_RETURN, other)
        self.add(_RETURN, listed)


@cache
def seccomp_program(
    machine: str, *, only_reads: bool = False, may_signal: bool = True, may_take_shares: bool = True
) -> bytes | None:
    """Return the filter for an architecture, named as in `uname -m`, or `None` if there is none.

    `only_reads` selects the filter for the reading view with Landlock. Set `may_signal` if something else protects
    outside processes from signals; otherwise only the command's own process group (`kill` with 0) can be signalled.
    Without `may_take_shares`, files cannot be watched, and programs such as `tail -f` poll them instead.
    """
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    socket, pair, clone, unshare = architecture.calls
    ioctl, fcntl, prlimit = architecture.looked_into
    kill, *other_signals = architecture.signals
    made = _Filter()
    made.add(_LOAD, _ARCHITECTURE_AT)
    made.add(_EQUAL, architecture.audit, true=1)
    made.add(_RETURN, _ERRNO | errno.EPERM)
    made.add(_LOAD, _NUMBER_AT)
    made.add(_AT_LEAST, _X32, false=1)
    made.add(_RETURN, _ERRNO | errno.ENOSYS)
    made.refuse(_ABSENT, errno.ENOSYS)
    made.refuse(architecture.refused, errno.EPERM)
    if not may_take_shares:
        made.refuse(architecture.shares, errno.ENOSYS)
    if only_reads:
        made.refuse((*architecture.refused_to_readers, *_REFUSED_TO_READERS), errno.EPERM)
        made.refuse((_OPENAT2,), errno.ENOSYS)
        if not may_signal:
            made.decide(kill, 0, (0,), _ALLOW, _ERRNO | errno.EPERM)
            made.refuse((*other_signals, _SIGNAL_BY_DESCRIPTOR), errno.EPERM)
        made.decide(ioctl, 1, _DEVICE_QUESTIONS, _ALLOW, _ERRNO | errno.ENOTTY)
        made.decide(fcntl, 1, _DESCRIPTOR_QUESTIONS, _ALLOW, _ERRNO | errno.EINVAL)
        made.decide(prlimit, 0, (0,), _ALLOW, _ERRNO | errno.EPERM)  # only the caller's own limits
        # Refuse sockets with other protocols as an unsupported family, so that programs try the next family.
        made.add(_EQUAL, socket, false=4)
        made.add(_LOAD, _ARGUMENTS_AT + 8 * 2)
        made.add(_EQUAL, _ROUTES, true=1)
        made.add(_RETURN, _ERRNO | errno.EAFNOSUPPORT)
        made.add(_LOAD, _NUMBER_AT)
    else:
        made.decide(fcntl, 1, _LEASES, _ERRNO | errno.EINVAL, _ALLOW)
    made.decide(socket, 0, _FAMILIES[-1:] if only_reads else _FAMILIES, _ALLOW, _ERRNO | errno.EAFNOSUPPORT)
    made.decide(pair, 1, _PAIR_TYPES, _ALLOW, _ERRNO | errno.EPROTONOSUPPORT, _TYPE_MASK)
    made.decide(clone, 0, (0,), _ALLOW, _ERRNO | errno.EPERM, _CLONE_NAMESPACES)
    made.decide(unshare, 0, (0,), _ALLOW, _ERRNO | errno.EPERM, _NEW_NAMESPACES)
    made.add(_RETURN, _ALLOW)
    return made.program
