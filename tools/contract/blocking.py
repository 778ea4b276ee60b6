"""Blocking work of a call: in a thread, so that the event loop goes on; after a cancellation nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import get_cancelled_exc_class, to_thread

from tools.contract.context import AbortSignal

OutcomeT = TypeVar("OutcomeT")


async def run_blocking(signal: AbortSignal, work: Callable[[], OutcomeT]) -> OutcomeT:
    """Run blocking work in a worker thread that is abandoned on cancellation.

    The work should look at `signal` between steps: after a cancellation nobody waits for it any more.

    Raises:
        ToolError: `cancelled`, if the signal is set already.
    """
    signal.raise_if_aborted()
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True)
    except get_cancelled_exc_class():
        signal.abort()
        raise
