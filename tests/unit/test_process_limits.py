"""The limit on open files, which a server raises at its start."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PRLIMIT64 = {"x86_64": 302, "aarch64": 261}  # the system call's numbers
PROGRAM = """
import ctypes, resource, struct, sys

if sys.argv[1] != "0":
    # A seccomp filter: load the number of the system call, then the pointer to the new limit. With both, refuse.
    steps = (
        (0x20, 0, 0, 0), (0x15, 0, 3, int(sys.argv[1])), (0x20, 0, 0, 32), (0x15, 1, 0, 0),
        (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000),
    )
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, 1, 0, 0, 0) == 0
    assert prctl(22, 2, struct.pack("@HP", len(steps), ctypes.addressof(buffer)), 0, 0) == 0

from tools.machine.process_limits import allow_open_files, usual_open_files

print(allow_open_files(), usual_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.requirement("scarcity.turns")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: seccomp is Linux only")
@pytest.mark.parametrize("is_forbidden", [False, True])
def test_the_limit_on_open_files_is_raised_unless_a_sandbox_forbids_it(is_forbidden: bool) -> None:
    number = PRLIMIT64.get(platform.machine())
    if number is None:
        pytest.skip("not run: the number of the system call is unknown on this machine")
    arguments = [sys.executable, "-P", "-c", PROGRAM, str(number if is_forbidden else 0)]
    shown = subprocess.run(
        ["bash", "-c", 'ulimit -Sn 256; ulimit -Hn 2048; exec "$@"', "bash", *arguments],
        capture_output=True,
        check=True,
        text=True,
    )
    assert shown.stdout.split() == (["256"] * 3 if is_forbidden else ["2048", "256", "2048"])
