"""Runs pytest with a kernel that refuses `openat2`, as old kernels and some sandboxes do.

python without_openat2.py ERRNO PYTEST-ARGUMENT...
"""

from __future__ import annotations

import ctypes
import struct
import sys

import pytest

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
OPENAT2 = 437
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_openat2(error: int) -> None:
    instructions = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (LOAD, 0, 0, 0),  # the number of the system call
            (JUMP_IF_EQUAL, 0, 1, OPENAT2),
            (RETURN, 0, 0, REFUSE | error),
            (RETURN, 0, 0, ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(instructions)
    program = Program(4, ctypes.addressof(buffer))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0


refuse_openat2(int(sys.argv[1]))
sys.exit(pytest.main(sys.argv[2:]))
