"""Waiting for what nobody tells of."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

CEILING = 150.0
"""Seconds after which a test has failed; everything takes a small part of that."""


async def pause() -> None:
    """Let others work between two looks; looking all the time takes a whole processor."""
    await anyio.sleep(0.02)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something has come true."""
    with anyio.fail_after(CEILING):
        while not condition():  # noqa: ASYNC110 - anything may be waited for
            await anyio.sleep(0.005)


def wait_until(condition: Callable[[], object]) -> None:
    """The same where there is no event loop."""
    for _ in range(15_000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not come about")
