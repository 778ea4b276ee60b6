"""Uses Landlock and a system call filter to confine read-only commands if namespaces are not available.

Landlock grants rights to folders, and cannot revoke them for a part of a folder. Commands can see other processes, but
cannot affect them. Commands in bubblewrap enter Landlock too, if the kernel has it.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import Lock

from tools.contract.command_views import SYSTEM, Engine, Network, ViewKind
from tools.contract.tool_errors import ExhaustedError
from tools.machine.threads import THREADS
from tools.shell.private_folders import PrivateFolders, empty_if_large
from tools.shell.process_spec import ConfinedCommand, LandlockRules, ProcessSpec, ProcessStarter, SandboxChanges
from tools.shell.sandbox.probe import NO_ANSWER, Probe, failure_of
from tools.shell.sandbox.system_call_filter import seccomp_program
from tools.shell.sandbox.visible_file_system import PRIVATE_BYTES, UNREACHABLE

# Paths that are readable in addition to a command's own folders. `/dev/shm` is not among them, because it contains
# other programs' memory.
_READABLE = ("/proc", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
FAILED = 126  # exit status of the program that enters Landlock, if it fails
_ADDRESS = 0x400000
# linux/elf.h: a 64-bit little-endian program with one readable and executable segment.
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_HEADER, _PART = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
# landlock_restrict_self, close_range: the same numbers on both architectures.
_RESTRICT_SELF, _CLOSE_RANGE = 446, 436


def landlock_rules(readable: Iterable[str], writable: Iterable[str], *, may_take_shares: bool = False) -> LandlockRules:
    """Return the rules that allow reading the paths in `readable` and changing those in `writable`.

    The paths are real. Raises an `OSError` if there is no system call filter.
    """
    if sys.platform == "linux":
        from tools.shell.broker.confinement import SCOPES_ABI, landlock_abi  # noqa: PLC0415 - unavailable on Windows

        may_signal = landlock_abi() >= SCOPES_ABI
        calls = seccomp_program(
            os.uname().machine, only_reads=True, may_signal=may_signal, may_take_shares=may_take_shares
        )
        if calls is not None:
            return LandlockRules((*readable, *_READABLE), (*writable, *_WRITABLE), calls)
    raise OSError(errno.ENOSYS, "no system call filter")


def why_not_here() -> str:
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
    if sys.platform != "linux" or why_not_here():
        return None
    from tools.shell.broker.confinement import ruleset_for_writing  # noqa: PLC0415 - unavailable on Windows

    return ruleset_for_writing()


async def landlock_failure(starter: ProcessStarter, parent: str) -> str | None:
    """Return why Landlock cannot confine read-only commands here, or `None` if it can.

    The reason is a clause for the middle of a sentence. Each call runs the test in a new folder inside `parent`.
    Raises an `ExhaustedError` if resources are too low for a result.
    """
    if why := why_not_here():
        return why

    def confined(probe: Probe) -> ConfinedCommand:
        readable = (*map(os.path.realpath, SYSTEM), *probe.needed, probe.root)
        rules = landlock_rules(readable, [os.path.join(probe.folder, "own")])
        return ConfinedCommand(ProcessSpec(probe.argv, "/", {}, landlock=rules))

    return await failure_of(starter, partial(Probe.made_in, parent, Engine.LANDLOCK.value), confined)


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
    """Confines read-only commands if namespaces are not available. The first command tests whether this works."""

    def __init__(self, starter: ProcessStarter, folders: PrivateFolders) -> None:
        self._starter = starter
        self._folders = folders
        self._failure = ""  # empty if untested or working
        self._is_tried = False
        self._trying = Lock()

    def may_work(self) -> bool:
        """Return True if the kernel has Landlock and no test has failed. Runs no test."""
        return not (self._failure or why_not_here())

    async def failure(self) -> str:
        """Return why Landlock cannot confine read-only commands, as a clause for the middle of a sentence.

        The result is empty if it can.
        """
        async with self._trying:
            if not self._is_tried:
                parent = await THREADS.run(partial(self._folders.make, "probe"))
                failure = await landlock_failure(self._starter, parent) or ""
                if failure == NO_ANSWER:
                    return failure  # not final, because the machine may have been busy
                self._failure, self._is_tried = failure, True
            return self._failure

    def confined(
        self, spec: ProcessSpec, readable: Sequence[str], temporary: str | None, *, may_take_shares: bool
    ) -> ConfinedCommand:
        """Return a command that can read these real paths, and write only to its temporary folder, if any. Blocking."""
        environment = {name: value for name, value in spec.environment.items() if name not in UNREACHABLE}
        settings = next((path for path in readable if path.endswith(("/.gitconfig", "/git/config"))), os.devnull)
        environment |= {"GIT_CONFIG_GLOBAL": settings}  # git fails if it may not read its settings file
        writable = ()
        if temporary is not None:
            writable = (temporary,)
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        held = replace(
            spec, environment=environment, landlock=landlock_rules(readable, writable, may_take_shares=may_take_shares)
        )
        return LandlockCommand(held, Engine.LANDLOCK, ViewKind.READING, Network.OWN_LOOPBACK, temporary=temporary)


def landlock_entry(machine: str, rules: int, program: int) -> bytes:
    """Return the program that enters Landlock in bubblewrap's view before the command runs.

    A read-only mount protects files, but not FIFOs and devices, which processes may still write to. Landlock protects
    these too, but a process can only restrict itself. Bubblewrap does not use Landlock, and starting an interpreter to
    do so would take longer than creating the whole view. This program therefore has only a few dozen instructions. It
    restricts itself with the ruleset in one descriptor, closes that descriptor and its own, and executes the command in
    its arguments. It exits with 126 on failure.

    `machine` is an architecture with a system call filter, named as in `uname -m`. `rules` and `program` are two
    consecutive descriptor numbers.
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
    then = b"".join(
        (
            *(number(eax, _CLOSE_RANGE), number(edi, rules), number(esi, program), number(edx, 0), call),
            b"\x48\x8b\x04\x24",  # rax = number of arguments
            b"\x48\x8d\x54\xc4\x10",  # rdx = rsp + 8 * rax + 16: the environment
            b"\x48\x8d\x74\x24\x10",  # rsi = rsp + 16: the arguments from the second on
            b"\x48\x8b\x3e",  # rdi = the second argument
            *(number(eax, 59), call),  # execve
        )
    )
    enter = (number(eax, _RESTRICT_SELF), number(edi, rules), number(esi, 0), call, b"\x85\xc0")  # is eax 0?
    failed = (number(edi, FAILED), number(eax, 60), call)  # exit
    return 62, b"".join((*enter, b"\x75", bytes([len(then)]), then, *failed))


def _entry_for_aarch64(rules: int, program: int) -> tuple[int, bytes]:
    def number(register: int, value: int) -> int:
        return 0xD2800000 | value << 5 | register

    call = 0xD4000001
    then = (
        *(number(8, _CLOSE_RANGE), number(0, rules), number(1, program), number(2, 0), call),
        0xF94003E9,  # x9 = number of arguments
        0x910043E1,  # x1 = sp + 16: the arguments from the second on
        0x8B090C22,  # x2 = x1 + 8 * x9: the environment
        0xF9400020,  # x0 = the second argument
        *(number(8, 221), call),  # execve
    )
    enter = (number(8, _RESTRICT_SELF), number(0, rules), number(1, 0), call)
    skip = 0xB5000000 | (len(then) + 1) << 5  # unless x0 is 0
    words = (*enter, skip, *then, number(0, FAILED), number(8, 93), call)  # exit
    return 183, struct.pack(f"<{len(words)}I", *words)
