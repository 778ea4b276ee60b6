"""Confines commands with Landlock and with system call filters (seccomp).

Landlock grants rights to folders, and cannot revoke them for a part of a folder. If namespaces are not available,
Landlock and a filter together confine read-only commands. These commands can see other processes, but cannot affect
them. Landlock also restricts commands in bubblewrap, if the kernel supports it.

Mounts protect files, but not local sockets (AF_UNIX): connecting to a socket works on a read-only mount, and abstract
sockets have no path at all. The sandbox therefore has no local sockets except unnamed pairs. Internet sockets are
controlled by the network namespace.

A filter sees numbers, but not the data that pointers refer to. Calls that it cannot check (io_uring, clone3, calls of
other instruction sets) are therefore refused completely, as are calls that only increase the kernel's attack surface.

Read-only commands under Landlock have no namespaces of their own, and Landlock mainly controls opening, creating and
removing files. The filter for these commands therefore controls the rest: changing a file without opening it for
writing, or through a folder that is open for reading; other processes; shared memory and messages; and the network.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial

from anyio import Lock

from tools.contract.command_views import SYSTEM, Engine
from tools.contract.tool_errors import ExhaustedError
from tools.machine.threads import THREADS
from tools.shell.private_folders import PrivateFolders, empty_if_large
from tools.shell.process_spec import ConfinedCommand, LandlockRules, ProcessSpec, ProcessStarter, SandboxChanges
from tools.shell.sandbox.probe import NO_ANSWER, Probe, failure_of
from tools.shell.sandbox.visible_file_system import PRIVATE_BYTES

# Paths that are readable in addition to a command's own folders. `/dev/shm` is not among them, because it contains
# other programs' memory.
_READABLE = ("/proc", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
FAILED = 126  # exit status of the program that enforces the Landlock ruleset, if it fails
_ADDRESS = 0x400000
# linux/elf.h: a 64-bit little-endian program with one readable and executable segment.
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_HEADER, _PART = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
# landlock_restrict_self, close_range: the same numbers on both architectures.
_RESTRICT_SELF, _CLOSE_RANGE = 446, 436


def landlock_rules(readable: Iterable[str], writable: Iterable[str], *, may_take_shares: bool = False) -> LandlockRules:
    """Return the rules for reading and changing these real paths. Raises an `OSError` if there is no call filter."""
    if sys.platform == "linux":
        from tools.shell.broker.confinement import SCOPES_ABI, landlock_abi  # noqa: PLC0415 - unavailable on Windows

        may_signal = landlock_abi() >= SCOPES_ABI
        calls = seccomp_program(
            os.uname().machine, only_reads=True, may_signal=may_signal, may_take_shares=may_take_shares
        )
        if calls is not None:
            return LandlockRules((*readable, *_READABLE), (*writable, *_WRITABLE), calls)
    raise OSError(errno.ENOSYS, "no system call filter")


def unavailable_reason() -> str:
    """Return why Landlock cannot work here, phrased for the middle of a sentence. Empty if it may work."""
    if sys.platform != "linux":
        return "it exists only for Linux"
    from tools.shell.broker.confinement import OLDEST_ABI, landlock_abi  # noqa: PLC0415 - unavailable on Windows

    abi = landlock_abi()
    if abi == 0:
        return "the kernel has no Landlock, or it is disabled or forbidden here"
    if abi < OLDEST_ABI:
        return "this kernel's Landlock is too old; Linux 6.2 or newer is needed"
    if seccomp_program(os.uname().machine) is None:
        return "there is no system call filter for this architecture"
    return ""


def ruleset_for_views() -> int | None:
    """Return a Landlock ruleset for a bubblewrap view, or `None` without Landlock. The caller adds writable paths."""
    if sys.platform != "linux" or unavailable_reason():
        return None
    from tools.shell.broker.confinement import ruleset_for_writing  # noqa: PLC0415 - unavailable on Windows

    return ruleset_for_writing()


async def landlock_failure(starter: ProcessStarter, parent: str) -> str | None:
    """Return why Landlock cannot confine read-only commands here, or `None` if it can.

    The reason is a clause for the middle of a sentence. Each call runs the test in a new folder inside `parent`. Raises
    an `ExhaustedError` if a lack of resources prevents a result.
    """
    if reason := unavailable_reason():
        return reason

    def confine(probe: Probe) -> ConfinedCommand:
        readable = (*map(os.path.realpath, SYSTEM), probe.root)
        rules = landlock_rules(readable, [os.path.join(probe.folder, "own")])
        return ConfinedCommand(ProcessSpec(probe.argv, "/", {}, landlock=rules))

    return await failure_of(starter, partial(Probe.create_in, parent, Engine.LANDLOCK.value), confine)


@dataclass(slots=True)
class LandlockCommand(ConfinedCommand):
    """A read-only command, with its temporary folder if it has one."""

    temporary: str | None = field(kw_only=True)

    def limited_folders(self) -> tuple[Sequence[str], int]:
        return (self.temporary,) if self.temporary is not None else (), PRIVATE_BYTES

    async def release(self) -> SandboxChanges:
        size = count = 0
        if self.temporary is not None:
            with suppress(OSError, ExhaustedError):
                size, count = await THREADS.run(partial(empty_if_large, self.temporary, PRIVATE_BYTES))
        return SandboxChanges(temporary_bytes=size, temporary_files=count)


class LandlockConfinement:
    """Tests whether Landlock can confine read-only commands here, for when namespaces are not available."""

    def __init__(self, starter: ProcessStarter, folders: PrivateFolders) -> None:
        self._starter = starter
        self._folders = folders
        self._failure: str | None = None  # `None` if untested, empty if it works
        self._testing = Lock()

    def may_work(self) -> bool:
        """Return True if the kernel has Landlock and no test has failed. Runs no test."""
        return not (self._failure or unavailable_reason())

    async def failure(self) -> str:
        """Return why Landlock cannot confine read-only commands, as a clause; empty if it can. Tests this once."""
        async with self._testing:
            if self._failure is None:
                parent = await THREADS.run(partial(self._folders.make, "probe"))
                failure = await landlock_failure(self._starter, parent) or ""
                if failure == NO_ANSWER:
                    return failure  # not final, because the machine may have been busy
                self._failure = failure
            return self._failure


def landlock_entry(machine: str, rules: int, program: int) -> bytes:
    """Return the program that restricts itself with Landlock in bubblewrap's view, and then executes the command.

    A read-only mount protects files, but not FIFOs and devices, which processes may still write to. Landlock protects
    these too, but a process can restrict only itself. Bubblewrap does not use Landlock, and starting an interpreter to
    do so would take longer than creating the whole view. This program therefore has only a few dozen instructions. It
    enforces the ruleset on itself, closes the descriptors `rules` and `program`, and executes the command in its
    arguments. It exits with 126 on failure.

    `machine` is an architecture with a system call filter, named as in `uname -m`. `rules` is the descriptor of the
    ruleset, and `program`, the next higher number, is the descriptor of this program.
    """
    kind, instructions = (_entry_for_aarch64 if machine == "aarch64" else _entry_for_x86_64)(rules, program)
    start = _HEADER.size + _PART.size
    size = start + len(instructions)
    header = _HEADER.pack(_IDENTITY, 2, kind, 1, _ADDRESS + start, _HEADER.size, 0, 0, 64, _PART.size, 1, 0, 0, 0)
    return header + _PART.pack(1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x10000) + instructions


def _entry_for_x86_64(rules: int, program: int) -> tuple[int, bytes]:
    def number(register: int, value: int) -> bytes:
        return struct.pack("<BI", 0xB8 | register, value)

    eax, edx, esi, edi, call = 0, 2, 6, 7, b"\x0f\x05"
    success_code = b"".join(
        (
            *(number(eax, _CLOSE_RANGE), number(edi, rules), number(esi, program), number(edx, 0), call),
            b"\x48\x8b\x04\x24",  # rax = number of arguments
            b"\x48\x8d\x54\xc4\x10",  # rdx = rsp + 8 * rax + 16: the environment
            b"\x48\x8d\x74\x24\x10",  # rsi = rsp + 16: the arguments from the second on
            b"\x48\x8b\x3e",  # rdi = the second argument
            *(number(eax, 59), call),  # execve
        )
    )
    restrict_code = (number(eax, _RESTRICT_SELF), number(edi, rules), number(esi, 0), call, b"\x85\xc0")  # is eax 0?
    failure_code = (number(edi, FAILED), number(eax, 60), call)  # exit
    return 62, b"".join((*restrict_code, b"\x75", bytes([len(success_code)]), success_code, *failure_code))


def _entry_for_aarch64(rules: int, program: int) -> tuple[int, bytes]:
    def number(register: int, value: int) -> int:
        return 0xD2800000 | value << 5 | register

    call = 0xD4000001
    success_code = (
        *(number(8, _CLOSE_RANGE), number(0, rules), number(1, program), number(2, 0), call),
        0xF94003E9,  # x9 = number of arguments
        0x910043E1,  # x1 = sp + 16: the arguments from the second on
        0x8B090C22,  # x2 = x1 + 8 * x9: the environment
        0xF9400020,  # x0 = the second argument
        *(number(8, 221), call),  # execve
    )
    restrict_code = (number(8, _RESTRICT_SELF), number(0, rules), number(1, 0), call)
    skip = 0xB5000000 | (len(success_code) + 1) << 5  # unless x0 is 0
    words = (*restrict_code, skip, *success_code, number(0, FAILED), number(8, 93), call)  # exit
    return 183, struct.pack(f"<{len(words)}I", *words)


# BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_ALU|AND|K, BPF_RET|K (linux/bpf_common.h).
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO (linux/seccomp.h)
# Positions in `struct seccomp_data`; both architectures are little-endian, so the low half comes first.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000  # marks the call numbers of the x32 ABI on x86-64; other architectures have no numbers this high
_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK (which lists addresses and routes)
_PAIR_TYPES = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET; not datagrams, because such a pair can still send to a named socket
_TYPE_MASK = 0xF
# NETLINK_ROUTE; other protocols give access to other programs or, without any capability, to parts of the kernel.
_ROUTES = 0
_NEW_NAMESPACES = 0x7E020080  # all CLONE_NEW* flags, because a command has all capabilities in a new user namespace
_CLONE_NAMESPACES = 0x7E020000  # the same flags for `clone`, where the lowest byte of the argument is a signal number


@dataclass(frozen=True, slots=True)
class _Architecture:
    """The call numbers of one architecture (asm/unistd.h)."""

    audit: int  # AUDIT_ARCH_*
    forbidden: tuple[int, ...]  # calls that no command may make
    calls: tuple[int, int, int, int]  # numbers of socket, socketpair, clone and unshare
    forbidden_to_readers: tuple[int, ...]
    shares: tuple[int, ...]  # calls that use per-user kernel resources shared by all programs
    signals: tuple[int, ...]  # calls that signal other processes, with `kill` first
    inspected_calls: tuple[int, int, int]  # numbers of ioctl, fcntl and prlimit64


# io_uring_setup, io_uring_enter, io_uring_register, clone3: the same numbers on every architecture. The filter reports
# these calls as missing, so that programs use the older calls, which the filter can check.
_ABSENT = (425, 426, 427, 435)
# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, open_tree_attr: the same numbers on every
# architecture.
_NEW_MOUNTS = (428, 429, 430, 431, 432, 433, 442, 467)
# setxattrat, removexattrat, file_setattr, fchmodat2, pidfd_getfd, process_madvise, process_mrelease, quotactl_fd: the
# same numbers on every architecture.
_FORBIDDEN_TO_READERS = (463, 466, 469, 452, 438, 440, 448, 443)
_SIGNAL_BY_DESCRIPTOR = 424  # pidfd_send_signal
# Fails as if missing (ENOSYS) for read-only commands under Landlock, so that programs use `openat` instead
_OPENAT2 = 437
# Allowed requests to a terminal or descriptor (TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX,
# TCGETS2, FS_IOC_GETFLAGS). Other requests change attributes, create subvolumes or send signals.
_DEVICE_QUESTIONS = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A, 0x80086601)
# F_SETLEASE, F_NOTIFY, F_SETDELEG, which, even with only read access, would block or observe other programs that open
# the file.
_LEASES = (1024, 1026, 1040)
# The fcntl commands allowed in the reading view with Landlock: for duplicates, flags, locks, pipe sizes and memory
# seals, but not for owners and signals (F_SETOWN, F_SETSIG), leases or hints.
_DESCRIPTOR_QUESTIONS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1027, 1030, 1031, 1032, 1033, 1034)
_ARCHITECTURES = {
    "x86_64": _Architecture(
        audit=0xC000003E,
        # add_key, request_key, keyctl, bpf, userfaultfd, perf_event_open, setns, mount, umount2, pivot_root, chroot,
        # open_by_handle_at, kexec_load, kexec_file_load, init_module, finit_module, delete_module, syslog, acct,
        # swapon, swapoff, reboot, quotactl
        forbidden=(
            *(248, 249, 250, 321, 323, 298, 308, 165, 166, 155, 161, 304, 246, 320, 175, 313, 176, 103, 163, 167, 168),
            *(169, 179),
            *_NEW_MOUNTS,
        ),
        calls=(41, 53, 56, 272),
        # chmod, fchmod, fchmodat, chown, fchown, lchown, fchownat, utime, utimes, futimesat, utimensat, (l|f)setxattr,
        # (l|f)removexattr, truncate, mknod, mknodat, ptrace, process_vm_readv, process_vm_writev, kcmp, migrate_pages,
        # move_pages, setpriority, ioprio_set, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr,
        # shmget, shmat, shmctl, semget, semop, semctl, semtimedop, msgget, msgsnd, msgrcv, msgctl, mq_open, mq_unlink
        forbidden_to_readers=(
            *(90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 76, 133, 259, 101),
            *(310, 311, 312, 256, 279, 141, 251, 142, 144, 203, 314, 29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71),
            *(240, 241),
        ),
        # inotify_init, inotify_init1, fanotify_init, mq_open
        shares=(253, 294, 300, 240),
        # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo
        signals=(62, 200, 234, 129, 297),
        inspected_calls=(16, 72, 302),
    ),
    "aarch64": _Architecture(
        audit=0xC00000B7,
        forbidden=(
            *(217, 218, 219, 280, 282, 241, 268, 40, 39, 41, 51, 265, 104, 294, 105, 273, 106, 116, 89, 224, 225),
            *(142, 60),
            *_NEW_MOUNTS,
        ),
        calls=(198, 199, 220, 97),
        forbidden_to_readers=(
            *(52, 53, 55, 54, 88, 5, 6, 7, 14, 15, 16, 45, 33, 117, 270, 271, 272, 238, 239, 140, 30, 118, 119, 122),
            *(274, 194, 196, 195, 190, 193, 191, 192, 186, 189, 188, 187, 180, 181),
        ),
        shares=(26, 262, 180),
        signals=(129, 130, 131, 138, 240),
        inspected_calls=(29, 25, 261),
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
        self,
        call: int,
        argument: int,
        values: tuple[int, ...],
        listed_answer: int,
        other_answer: int,
        mask: int = 0xFFFFFFFF,
    ) -> None:
        """Answer a call, depending on whether an argument is in `values`. Later instructions do not apply to it."""
        self.add(_EQUAL, call, false=len(values) + 4)
        self.add(_LOAD, _ARGUMENTS_AT + 8 * argument)
        self.add(_AND, mask)
        for index, value in enumerate(values):
            self.add(_EQUAL, value, true=len(values) - index)
        self.add(_RETURN, other_answer)
        self.add(_RETURN, listed_answer)


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
    ioctl, fcntl, prlimit = architecture.inspected_calls
    kill, *other_signals = architecture.signals
    program = _Filter()
    program.add(_LOAD, _ARCHITECTURE_AT)
    program.add(_EQUAL, architecture.audit, true=1)
    program.add(_RETURN, _ERRNO | errno.EPERM)
    program.add(_LOAD, _NUMBER_AT)
    program.add(_AT_LEAST, _X32, false=1)
    program.add(_RETURN, _ERRNO | errno.ENOSYS)
    program.refuse(_ABSENT, errno.ENOSYS)
    program.refuse(architecture.forbidden, errno.EPERM)
    if not may_take_shares:
        program.refuse(architecture.shares, errno.ENOSYS)
    if only_reads:
        program.refuse((*architecture.forbidden_to_readers, *_FORBIDDEN_TO_READERS), errno.EPERM)
        program.refuse((_OPENAT2,), errno.ENOSYS)
        if not may_signal:
            program.decide(kill, 0, (0,), _ALLOW, _ERRNO | errno.EPERM)
            program.refuse((*other_signals, _SIGNAL_BY_DESCRIPTOR), errno.EPERM)
        program.decide(ioctl, 1, _DEVICE_QUESTIONS, _ALLOW, _ERRNO | errno.ENOTTY)
        program.decide(fcntl, 1, _DESCRIPTOR_QUESTIONS, _ALLOW, _ERRNO | errno.EINVAL)
        program.decide(prlimit, 0, (0,), _ALLOW, _ERRNO | errno.EPERM)  # only the caller's own limits
        # Refuse sockets with other protocols as if the family were unsupported, so that programs try the next family.
        program.add(_EQUAL, socket, false=4)
        program.add(_LOAD, _ARGUMENTS_AT + 8 * 2)
        program.add(_EQUAL, _ROUTES, true=1)
        program.add(_RETURN, _ERRNO | errno.EAFNOSUPPORT)
        program.add(_LOAD, _NUMBER_AT)
    else:
        program.decide(fcntl, 1, _LEASES, _ERRNO | errno.EINVAL, _ALLOW)
    program.decide(socket, 0, _FAMILIES[-1:] if only_reads else _FAMILIES, _ALLOW, _ERRNO | errno.EAFNOSUPPORT)
    program.decide(pair, 1, _PAIR_TYPES, _ALLOW, _ERRNO | errno.EPROTONOSUPPORT, _TYPE_MASK)
    program.decide(clone, 0, (0,), _ALLOW, _ERRNO | errno.EPERM, _CLONE_NAMESPACES)
    program.decide(unshare, 0, (0,), _ALLOW, _ERRNO | errno.EPERM, _NEW_NAMESPACES)
    program.add(_RETURN, _ALLOW)
    return program.program
