"""Memory of large messages: kept while they come, given back after them."""

from __future__ import annotations

import asyncio
import gc
import platform
import sys
from pathlib import Path

import anyio
import pytest

from server.kept_memory import KeptMemory

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="not run: only glibc keeps memory"
    ),
]

MB = 1 << 20


def resident() -> int:
    """Bytes of memory that this process has."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


@pytest.mark.requirement("proxy.kept_memory")
async def test_memory_is_kept_for_the_next_large_message_and_given_back_after_the_last() -> None:
    kept = KeptMemory(0.05)
    loop = asyncio.get_running_loop()
    kept.use(loop)
    before = resident()
    large = bytearray(20 * MB)
    large[:] = b"x" * len(large)
    del large
    gc.collect()
    assert resident() - before > 10 * MB
    with anyio.fail_after(20):
        while kept.is_kept:  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.01)
    assert resident() - before < 5 * MB
