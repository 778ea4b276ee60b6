"""Blocking work: in a thread, so that the event loop goes on; after a cancellation nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import get_cancelled_exc_class

from tools.contract.context import AbortSignal
from tools.contract.resources import exhaustion_of
from tools.contract.threads import THREADS

OutcomeT = TypeVar("OutcomeT")


async def run_blocking(signal: AbortSignal, work: Callable[[], OutcomeT]) -> OutcomeT:
    """Run blocking work of a call in a thread that is abandoned on cancellation.

    The work should look at `signal` between steps: after a cancellation nobody waits for it any more.

    Raises:
        ToolError: `cancelled`, if the signal is set already; `resources_exhausted`, if there is too little of
            something for it.
    """
    signal.raise_if_aborted()
    try:
        return await THREADS.run(work)
    except get_cancelled_exc_class():
        signal.abort()
        raise
    except (MemoryError, OSError, RuntimeError) as error:
        exhaustion = exhaustion_of(error)
        if exhaustion is None:
            raise
        raise exhaustion from None
