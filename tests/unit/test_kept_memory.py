"""Memory of large messages: kept while they come, given back after them."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.harness import ROOT

CODE = """
import asyncio, sys
from server.kept_memory import KeptMemory

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

async def main():
    kept = KeptMemory(0.05)
    kept.use(asyncio.get_running_loop())
    before = resident()
    large = bytearray(20 << 20)
    large[:] = b"x" * len(large)
    del large
    print(resident() - before)
    async with asyncio.timeout(20):
        while kept.is_kept:
            await asyncio.sleep(0.01)
    print(resident() - before)

asyncio.run(main())
"""
"""A process of its own: what is kept depends on all that a process has done."""


@pytest.mark.requirement("proxy.kept_memory")
@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="not run: only glibc keeps memory"
)
def test_memory_is_kept_for_the_next_large_message_and_given_back_after_the_last() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    kept, left = (int(kilobytes) for kilobytes in ran.stdout.split())
    assert kept > 10 << 10
    assert left < 5 << 10
