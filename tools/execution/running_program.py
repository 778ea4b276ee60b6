"""A program that was started: its process, and what takes over its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from tools.contract.threads import THREADS
from tools.execution.command import Shown
from tools.execution.output import Output
from tools.execution.output_reader import OutputReader
from tools.execution.process import Process

GRACE_SECONDS = 0.2
"""Between SIGTERM and SIGKILL (both seeds' number)."""

DRAIN_SECONDS = 0.05
"""How long after its end the end of the output is waited for: others of a pipeline may end a little later."""

LEAVING_SECONDS = 0.2
"""How long after its end what it started may take to end."""

CLEAN_UP_SECONDS = 10.0
"""Ending and closing are given up after this, so that nothing waits for a hung disk for ever."""

QUICK_BYTES = 1 << 15
"""A longer output is made text in a thread."""


@dataclass(slots=True)
class RunningProgram:
    """A program between its start and the end of all that it started. To be closed by whoever holds it.

    Args:
        process: The program.
        output: What was printed so far.
        reader: Fills the output.
        started_at: Monotonic seconds.
        on_closed: Called when it holds nothing any more.
    """

    process: Process
    output: Output
    reader: OutputReader
    started_at: float
    on_closed: Callable[[], None]
    _is_closed: bool = field(default=False, init=False)

    async def settle(self) -> None:
        """After it has ended: take over what it printed before, though others may go on printing."""
        # Mostly the end is found at once, without a turn of the event loop.
        self.reader.read_present()
        if not await self.reader.wait_ended(DRAIN_SECONDS):
            self.reader.read_present()

    async def left_running(self) -> tuple[int, ...]:
        """After it has ended: what it left running. What ends a moment later, as a sandbox does, is no such."""
        if await self.process.left_running():
            with anyio.move_on_after(LEAVING_SECONDS):
                await self.process.wait_gone()
            return await self.process.left_running()
        return ()

    async def end(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End it with all it started, and take over the last it printed. Shielded and bounded."""
        with anyio.move_on_after(grace_seconds + CLEAN_UP_SECONDS, shield=True):
            await self.process.end(grace_seconds)
            self.reader.read_present()

    async def close(self) -> None:
        """After the end of all it started: let go of everything but the output. Shielded and bounded."""
        if self._is_closed:
            return
        self._is_closed = True
        self.reader.stop()
        self.process.close()
        try:
            with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                await self._leave_place()
        finally:
            self.on_closed()
            spill = self.output.spill
            if spill is not None:
                with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                    await spill.close()

    async def _leave_place(self) -> None:
        """Undo what was prepared for it where it ran."""

    async def shown(self, budget: int) -> Shown:
        """The output so far as a result tells it; what is too long for that is kept in a file."""
        output = self.output
        snapshot = output.snapshot()
        if output.is_binary:
            text, is_cut = "", False
        elif len(snapshot.tail) <= QUICK_BYTES:
            text, is_cut = snapshot.text(budget)
        else:
            text, is_cut = await THREADS.run(lambda: snapshot.text(budget))
        if is_cut or output.is_binary:
            output.keep_all()
        spill = output.spill
        if spill is not None:
            with anyio.move_on_after(CLEAN_UP_SECONDS):
                await spill.flush()
        return Shown(
            text=text,
            total=output.total,
            is_cut=is_cut,
            is_binary=output.is_binary,
            file=spill.path if spill is not None and spill.kept else None,
            missing=spill.missing if spill is not None else 0,
        )
