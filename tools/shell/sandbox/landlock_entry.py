"""Builds the program that enters Landlock in bubblewrap's view before the command runs.

A read-only mount protects files, but not FIFOs and devices, which processes may still write to. Landlock protects these
too, but a process can only restrict itself. Bubblewrap does not use Landlock, and starting an interpreter to do so
would take longer than creating the whole view. This program therefore has only a few dozen instructions. It restricts
itself with the ruleset in one descriptor, closes that descriptor and its own, and executes the command in its
arguments. It exits with 126 on failure.
"""

from __future__ import annotations

import struct

FAILED = 126
_ADDRESS = 0x400000
# linux/elf.h: a 64-bit little-endian program with one readable and executable segment.
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
_HEADER, _PART = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
# landlock_restrict_self, close_range: the same numbers on both architectures.
_RESTRICT_SELF, _CLOSE_RANGE = 446, 436


def landlock_entry(machine: str, rules: int, program: int) -> bytes:
    """Return the program for an architecture with a system call filter, named as in `uname -m`.

    `rules` and `program` are two consecutive descriptor numbers.
    """
    kind, instructions = (_aarch64 if machine == "aarch64" else _x86_64)(rules, program)
    start = _HEADER.size + _PART.size
    size = start + len(instructions)
    header = _HEADER.pack(_IDENTITY, 2, kind, 1, _ADDRESS + start, _HEADER.size, 0, 0, 64, _PART.size, 1, 0, 0, 0)
    return header + _PART.pack(1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x10000) + instructions


def _x86_64(rules: int, program: int) -> tuple[int, bytes]:
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


def _aarch64(rules: int, program: int) -> tuple[int, bytes]:
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
