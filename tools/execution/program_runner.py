"""Runs the programs that an operator has named, such as agents: by their arguments, without a shell or a sandbox.

What a program is given stands on its standard input; its output and what comes on standard error are told apart. Once
it has ended, reached its limit or its call was cancelled, nothing of what it started goes on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import one_line
from tools.contract.resources import NOTHING_DONE, exhaustion_of
from tools.contract.threads import THREADS
from tools.execution.command import OUTPUT_CHARS, Ending, Shown
from tools.execution.live_output import LiveOutput
from tools.execution.output import TAIL_BYTES, Output
from tools.execution.output_reader import OutputReader
from tools.execution.process import ExitStatus, ProcessSpec, ProcessStarter, StartFailedError
from tools.execution.running_program import RunningProgram
from tools.execution.spill_store import SpillStore
from tools.execution.turns import Turns

if TYPE_CHECKING:
    from tools.contract.context import Progress

TICK_SECONDS = 0.25
"""How often a running program is looked at for something to report."""

MAX_CONCURRENT = 8
"""Programs that run at once; as many as commands by default."""

ERRORS_CHARS = 4_000
"""Characters shown of what came on standard error."""

_WHY = {
    errno.ENOENT: "it, or the interpreter that it names, does not exist (any more)",
    errno.EACCES: "this server may not execute it",
    errno.ENOEXEC: "it is no program",
    errno.E2BIG: "its arguments are too long for the operating system",
    errno.EINVAL: "an argument holds what the operating system cannot take, such as NUL",
    errno.ENOSYS: "no programs can be run on this system",
}


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What is to be run, and for whom.

    Args:
        argv: The program, by absolute path, and its arguments.
        folder: The real path of the folder it starts in.
        environment: All of its environment.
        client_key: Whose output it is; empty for a client that cannot be told from others.
        timeout_seconds: How long it may take, waiting for its turn included.
        given: What it reads.
        whole_bytes: How long its output may be to be kept in memory as a whole.
        most_bytes: Bytes on either stream after which it is ended; `None` for no such limit.
    """

    argv: tuple[str, ...] = field(repr=False)
    folder: str
    environment: Mapping[str, str] = field(repr=False)
    client_key: str
    timeout_seconds: float
    given: bytes = field(default=b"", repr=False)
    whole_bytes: int = TAIL_BYTES
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """A program that is over, with all that it started.

    Args:
        ending: Why.
        exit: How it ended; `None` where it was ended.
        tail: The end of what it printed, at least the `whole_bytes` of the request.
        is_whole: Whether that is all of it.
        shown: What it printed, as a result tells it.
        errors: The end of what came on standard error, without blank lines around it.
        seconds: How long it ran, without waiting for its turn.
    """

    ending: Ending
    exit: ExitStatus | None
    tail: bytes = field(repr=False)
    is_whole: bool
    shown: Shown
    errors: str
    seconds: float


class ProgramRunner:
    """Runs programs for all clients.

    Args:
        starter: Starts processes, and sees to it that nothing is left of them.
        spills: Where long outputs are kept.
        max_concurrent: The most programs that run at once; others wait, in the order of arrival.
        turns: Those of all programs that the starter starts.
    """

    def __init__(
        self,
        starter: ProcessStarter,
        spills: SpillStore,
        max_concurrent: int = MAX_CONCURRENT,
        turns: Turns | None = None,
    ) -> None:
        self._starter = starter
        self._spills = spills
        self._turns = turns or Turns()
        self._places = anyio.Semaphore(max_concurrent, fast_acquire=True)

    async def run(self, request: ProgramRequest, progress: Progress) -> ProgramOutcome:
        """Run a program until it has ended, or a limit is reached.

        Args:
            request: What is to be run.
            progress: Told now and then what comes on standard error.

        Raises:
            ToolError: It was not started (`execution_failed`, `resources_exhausted`).
        """
        deadline = time.monotonic() + request.timeout_seconds
        await self._take_place(request.timeout_seconds)
        try:
            running = await self._turns.take(partial(self._start, request), deadline)
            errors = Output(lambda: None)
            reader = OutputReader(running.process.errors, errors)
            try:
                ending, status = await _watch(running, errors, deadline, request.most_bytes, progress)
                seconds = time.monotonic() - running.started_at
                await running.settle()
                await running.end()
                reader.read_present()
                snapshot = running.output.snapshot()
                return ProgramOutcome(
                    ending=ending,
                    exit=status,
                    tail=snapshot.tail,
                    is_whole=snapshot.is_whole,
                    shown=await running.shown(OUTPUT_CHARS),
                    errors=(await THREADS.run(partial(errors.snapshot().text, ERRORS_CHARS)))[0],
                    seconds=seconds,
                )
            finally:
                await running.end()
                reader.stop()
                await running.close()
        finally:
            self._places.release()

    async def _take_place(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._places.acquire()
            return
        raise ToolError(
            ToolErrorType.EXECUTION_FAILED,
            f"The program was not started: it waited {seconds:g} s while too many others ran. Try again later.",
        )

    async def _start(self, request: ProgramRequest) -> RunningProgram:
        attachments = {0: request.given} if request.given else {}
        spec = ProcessSpec(
            request.argv, request.folder, request.environment, attachments=attachments, separates_errors=True
        )
        try:
            process = await self._starter.start(spec)
        except StartFailedError as error:
            if (exhaustion := exhaustion_of(OSError(error.number, ""), NOTHING_DONE)) is not None:
                raise exhaustion from None
            name = one_line(os.path.basename(request.argv[0]))
            why = _WHY.get(error.number, "the operating system refused it")
            said = f"The program '{name}' was not started: {why}. Tell the user if it stays so."
            raise ToolError(ToolErrorType.EXECUTION_FAILED, said) from None
        output = Output(lambda: self._spills.open(request.client_key), request.whole_bytes)
        reader = OutputReader(process.output, output)
        return RunningProgram(process, output, reader, time.monotonic(), self._turns.end)


async def _watch(
    running: RunningProgram, errors: Output, deadline: float, most_bytes: int | None, progress: Progress
) -> tuple[Ending, ExitStatus | None]:
    """Wait for the program's end or for its limit, and report meanwhile."""
    live = LiveOutput(errors, progress)
    waiting = asyncio.ensure_future(running.process.wait())
    try:
        while not waiting.done():
            now = time.monotonic()
            if now >= deadline:
                return Ending.TIMED_OUT, None
            if most_bytes is not None and max(running.output.total, errors.total) > most_bytes:
                return Ending.OVERFLOWED, None
            await asyncio.wait([waiting], timeout=min(TICK_SECONDS, deadline - now))
            live.look()
        return Ending.EXITED, waiting.result()
    finally:
        waiting.cancel()
        await live.stop()
