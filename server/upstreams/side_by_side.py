"""Several upstreams told something at once: nobody waits long for one that does not answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import anyio
from anyio.abc import TaskGroup

PATIENCE_SECONDS = 0.5
"""How long is waited for all of them together; what takes longer goes on without being waited for (ours)."""

SECONDS = 10.0
"""How long all of them together may take."""


async def side_by_side(
    tasks: TaskGroup, work: Iterable[Callable[[], Coroutine[Any, Any, None]]], scope: anyio.CancelScope | None = None
) -> bool:
    """Begin all of it, and wait for it a moment.

    Args:
        tasks: Runs it.
        work: What is to be done; it raises nothing.
        scope: Its end is the end of what is not done yet; without it, its time is.

    Returns:
        Whether all of it is done.
    """
    done = anyio.Event()

    async def run() -> None:
        with scope or anyio.CancelScope(), anyio.move_on_after(SECONDS):
            async with anyio.create_task_group() as group:
                for each in work:
                    group.start_soon(each)
        done.set()

    tasks.start_soon(run)
    with anyio.move_on_after(PATIENCE_SECONDS):
        await done.wait()
    return done.is_set()
