"""The one runner of shell commands: starts, reads, limits, ends, and keeps what is left running.

A command waits for one of a few places, in the order of arrival. It is over as soon as its shell has ended; what it
left running becomes a background job of its client, so that nothing is lost. At a limit, and when its call is
cancelled, it is ended with all that it started.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.resources import NOTHING_DONE, exhaustion_of
from tools.contract.threads import THREADS
from tools.execution.command import OUTPUT_CHARS, POSIX_SHELL, CommandRequest, Ending, Finished
from tools.execution.confinement import Confined, Confinement
from tools.execution.jobs import Job, JobTable
from tools.execution.live_output import LiveOutput
from tools.execution.output import Output
from tools.execution.output_reader import OutputReader
from tools.execution.process import ExitStatus, Process, ProcessSpec, ProcessStarter, StartFailedError
from tools.execution.running_command import RunningCommand
from tools.execution.sandbox.limits import default_limits
from tools.execution.spill_store import SpillStore
from tools.execution.turns import Turns
from tools.filesystem.programs import find_program

if TYPE_CHECKING:
    from tools.contract.context import Progress

TICK_SECONDS = 0.25
"""How often a running command is looked at: for silence, and for something to report."""

FIRST_LOOK_SECONDS = 0.2
"""How long a background command is watched before its call returns (Gemini CLI's number): mistakes mostly show then."""

ENDED_CHARS = 4_000
"""Characters shown of the output of a command that was ended at a limit; they stand in an error."""

_STARTUP_FILES = frozenset({"BASH_ENV", "ENV"})
"""Variables that name a file which a shell runs first."""

_WHY = {
    0: "what runs commands here was lost at that moment, so something of it may have run; look before you try again",
    errno.ENOENT: "the folder or the shell does not exist (any more); give a folder that list_directory shows",
    errno.ENOTDIR: "its folder is not a folder (any more); give another one as directory",
    errno.EACCES: "this server may not use its folder or the shell; give another folder as directory, or ask the user",
    errno.E2BIG: "the command is too long for the operating system; write it into a script and run that",
    errno.EINVAL: "it, its folder or a variable of its environment (shell.env) holds what no program can be given "
    "(NUL, or half of a surrogate pair); write such a character as an escape, as in printf '\\x00'",
    errno.ENOSYS: "no commands can be run on this system; use the file tools, or ask the user to run it",
}


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """How commands run.

    Args:
        environment: All of a command's environment.
        timeout_seconds: How long a command may run, unless the call says otherwise (Qwen Code's two minutes).
        silence_seconds: How long it may print nothing; 0 is off.
        max_concurrent: The most commands that calls wait for at once.
    """

    environment: Mapping[str, str] = field(repr=False)
    timeout_seconds: float = 120.0
    silence_seconds: float = 0.0
    max_concurrent: int = 8


class CommandRunner:
    """Runs shell commands for all clients.

    Args:
        starter: Starts processes, and sees to it that nothing is left of them.
        confinement: Decides where a command runs.
        options: How commands run.
        spills: Where long outputs are kept.
        turns: Those of all programs that the starter starts.
    """

    def __init__(
        self,
        starter: ProcessStarter,
        confinement: Confinement,
        options: ShellOptions,
        spills: SpillStore,
        turns: Turns | None = None,
    ) -> None:
        self.options = options
        self._starter = starter
        self._confinement = confinement
        self._spills = spills
        self._turns = turns or Turns()
        self._places = anyio.Semaphore(options.max_concurrent, fast_acquire=True)
        self._environment = {name: value for name, value in options.environment.items() if name not in _STARTUP_FILES}

    async def run(self, request: CommandRequest, jobs: JobTable | None, progress: Progress) -> Finished:
        """Run a command until its shell has ended, or a limit is reached.

        Args:
            request: What is to be run.
            jobs: Takes over what is left running; `None` for a client that has no jobs.
            progress: Told now and then what is printed.

        Raises:
            ToolError: It was not started: `shell_execute_error`, `shell_timed_out` while it waited for its turn, or
                `resources_exhausted`.
        """
        deadline = time.monotonic() + request.timeout_seconds
        await self._take_place(request)
        try:
            running = await self._turns.take(partial(self._start, request), deadline)
            return await self._see_through(running, deadline, jobs, progress)
        finally:
            self._places.release()

    async def start_job(self, request: CommandRequest, jobs: JobTable) -> Job:
        """Start a command in the background, and watch it for a moment.

        Raises:
            ToolError: It was not started (`shell_execute_error`, `resources_exhausted`).
        """
        deadline = time.monotonic() + request.timeout_seconds
        with jobs.place():
            job = jobs.add(await self._turns.take(partial(self._start, request), deadline))
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await job.is_over.wait()
        return job

    async def _take_place(self, request: CommandRequest) -> None:
        with anyio.move_on_after(request.timeout_seconds):
            await self._places.acquire()
            return
        raise ToolError(
            ToolErrorType.SHELL_TIMED_OUT,
            f"The command was not started: it waited {request.timeout_seconds:g} s for one of "
            f"{self.options.max_concurrent} places, and all of them stayed taken by other commands. Try again when "
            "these have ended, or give a longer timeout.",
        )

    async def _start(self, request: CommandRequest) -> RunningCommand:
        search_path = self._environment.get("PATH", "")
        shell = find_program("bash", search_path, request.roots) or POSIX_SHELL
        limits = await THREADS.run(default_limits)
        spec = ProcessSpec((shell, "-c", request.command), request.folder, self._environment, limits)
        private_folder = self._spills.private_folder(request.client_key)
        confined = await self._confinement.confine(spec, request.roots, request.waiver, private_folder)
        started_at = time.monotonic()
        try:
            process = await self._begin(confined)
        except BaseException as error:
            await confined.release()
            if not isinstance(error, StartFailedError):
                raise
            raise exhaustion_of(OSError(error.number, ""), NOTHING_DONE) or ToolError(
                ToolErrorType.SHELL_EXECUTE_ERROR, f"The command was not started: {_why_not_started(error.number)}."
            ) from None
        output = Output(lambda: self._spills.open(request.client_key))
        reader = OutputReader(process.output, output)
        return RunningCommand(process, output, reader, started_at, self._turns.end, request, shell, confined)

    async def _begin(self, confined: Confined) -> Process:
        process = await self._starter.start(confined.spec)
        try:
            await confined.begin()
        except BaseException:
            await process.end(0)
            process.close()
            raise
        return process

    async def _watch(
        self, running: RunningCommand, deadline: float, progress: Progress
    ) -> tuple[Ending, ExitStatus | None]:
        """Wait for the shell's end or for a limit."""
        live = LiveOutput(running.output, progress)
        waiting = asyncio.ensure_future(running.process.wait())
        silence = self.options.silence_seconds or float("inf")
        try:
            while True:
                quiet_until = running.output.changed_at + silence
                now = time.monotonic()
                await asyncio.wait([waiting], timeout=max(min(deadline, quiet_until, now + TICK_SECONDS) - now, 0))
                if waiting.done():
                    return Ending.EXITED, waiting.result()
                now = time.monotonic()
                if now >= deadline:
                    return Ending.TIMED_OUT, None
                if now >= running.output.changed_at + silence:
                    return Ending.SILENT, None
                live.look()
        finally:
            waiting.cancel()
            await live.stop()

    async def _see_through(
        self, running: RunningCommand, deadline: float, jobs: JobTable | None, progress: Progress
    ) -> Finished:
        """Wait for what comes of a command, then hand it over to the jobs or let go of it."""
        left: tuple[int, ...] = ()
        job: Job | None = None
        try:
            ending, status = await self._watch(running, deadline, progress)
            seconds = time.monotonic() - running.started_at
            if ending is Ending.EXITED:
                await running.settle()
                left = await running.left_running()
                job = _adopted(running, jobs) if left else None
            if job is None:
                await running.end()
            shown = await running.shown(OUTPUT_CHARS if ending is Ending.EXITED else ENDED_CHARS)
        finally:
            if job is None:
                await running.end()
                await running.close()
        return Finished(
            ending=ending,
            exit=status,
            shown=shown,
            seconds=seconds,
            pid=running.process.pid,
            shell=running.shell,
            confined=running.confined,
            changes=running.changes,
            left_running=left,
            job=job,
        )


def _why_not_started(number: int) -> str:
    """Why, and what to do, as the end of a sentence."""
    name = errno.errorcode.get(number, str(number))
    return _WHY.get(number, f"the operating system refused it ({name}); try it once more, then tell the user")


def _adopted(running: RunningCommand, jobs: JobTable | None) -> Job | None:
    """What was left running as a background job, or `None` where there is no room for one."""
    if jobs is None:
        return None
    with suppress(ToolError), jobs.place():
        return jobs.add(running)
    return None
