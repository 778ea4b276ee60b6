"""Waiting for conditions that send no notification."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

CEILING = 150.0
"""Seconds after which a wait fails; a passing test needs a small part of it."""


async def pause() -> None:
    """Let other tasks run between two checks, without occupying a processor."""
    await anyio.sleep(0.02)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    with anyio.fail_after(CEILING):
        while not condition():  # noqa: ASYNC110 - the condition can be anything, so there is no event
            await anyio.sleep(0.005)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, without an event loop."""
    for _ in range(15_000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("the condition did not become true")
