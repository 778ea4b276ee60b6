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

import anyio
import anyio.to_thread

from tools.contract.errors import ToolError, ToolErrorType
from tools.execution.command import OUTPUT_CHARS, POSIX_SHELL, CommandRequest, Ending, Finished
from tools.execution.confinement import Confinement
from tools.execution.jobs import Job, JobTable
from tools.execution.live_output import LiveOutput, Progress
from tools.execution.output import Output
from tools.execution.output_reader import OutputReader
from tools.execution.process import ExitStatus, ProcessSpec, ProcessStarter, StartFailedError
from tools.execution.programs import find_program
from tools.execution.running_command import RunningCommand
from tools.execution.sandbox.limits import default_limits
from tools.execution.spill_store import SpillStore

TICK_SECONDS = 0.25
"""How often a running command is looked at: for silence, and for something to report."""

FIRST_LOOK_SECONDS = 0.2
"""How long a background command is watched before its call returns (Gemini CLI's number): mistakes mostly show then."""

ENDED_CHARS = 4_000
"""Characters shown of the output of a command that was ended at a limit; they stand in an error."""

_STARTUP_FILES = frozenset({"BASH_ENV", "ENV"})
"""Variables that name a file which a shell runs first."""

_WHY = {
    errno.ENOENT: "the folder or the shell does not exist (any more)",
    errno.ENOTDIR: "its folder is not a folder (any more)",
    errno.EACCES: "its folder or the shell may not be used",
    errno.E2BIG: "the command is too long for the operating system; write it into a script and run that",
    errno.ENOSYS: "no commands can be run on this system",
    errno.EAGAIN: "no more processes can be started now; end some, or try again",
    errno.ENOMEM: "there is no memory for another process; end some, or try again",
    errno.EMFILE: "too many files are open; try again when other commands have ended",
    errno.ENFILE: "too many files are open; try again when other commands have ended",
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
    """

    def __init__(
        self, starter: ProcessStarter, confinement: Confinement, options: ShellOptions, spills: SpillStore
    ) -> None:
        self.options = options
        self._starter = starter
        self._confinement = confinement
        self._spills = spills
        self._places = anyio.Semaphore(options.max_concurrent, fast_acquire=True)
        self._environment = {name: value for name, value in options.environment.items() if name not in _STARTUP_FILES}

    async def run(self, request: CommandRequest, jobs: JobTable | None, progress: Progress) -> Finished:
        """Run a command until its shell has ended, or a limit is reached.

        Args:
            request: What is to be run.
            jobs: Takes over what is left running; `None` for a client that has no jobs.
            progress: Told now and then what is printed.

        Raises:
            ToolError: It was not started: `shell_execute_error`, or `shell_timed_out` while it waited for its turn.
        """
        deadline = time.monotonic() + request.timeout_seconds
        await self._take_place(request)
        try:
            running = await self._start(request)
            try:
                ending, status = await self._watch(running, deadline, progress)
                return await self._finish(running, ending, status, jobs)
            except BaseException:
                if not running.is_job:
                    await running.end()
                    await running.close()
                raise
        finally:
            self._places.release()

    async def start_job(self, request: CommandRequest, jobs: JobTable) -> Job:
        """Start a command in the background, and watch it for a moment.

        Raises:
            ToolError: It was not started (`shell_execute_error`).
        """
        with jobs.place():
            job = jobs.add(await self._start(request))
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
        limits = await anyio.to_thread.run_sync(default_limits)
        spec = ProcessSpec((shell, "-c", request.command), request.folder, self._environment, limits)
        confined = await self._confinement.confine(spec, request.roots)
        try:
            process = await self._starter.start(confined.spec)
        except BaseException as error:
            await confined.release()
            if not isinstance(error, StartFailedError):
                raise
            why = _WHY.get(error.number, "the operating system refused it")
            raise ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, f"The command was not started: {why}.") from None
        output = Output(lambda: self._spills.open(request.client_key))
        reader = OutputReader(process.output, output)
        return RunningCommand(request, shell, confined, process, output, reader, self._spills, time.monotonic())

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

    async def _finish(
        self, running: RunningCommand, ending: Ending, status: ExitStatus | None, jobs: JobTable | None
    ) -> Finished:
        seconds = time.monotonic() - running.started_at
        left: tuple[int, ...] = ()
        job: Job | None = None
        if ending is Ending.EXITED:
            await running.settle()
            left = await running.left_running()
            job = _adopted(running, jobs) if left else None
        if job is None and (left or ending is not Ending.EXITED):
            await running.end()
        shown = await running.shown(OUTPUT_CHARS if ending is Ending.EXITED else ENDED_CHARS)
        if job is None:
            await running.close()
        return Finished(
            ending=ending,
            exit=status,
            shown=shown,
            seconds=seconds,
            pid=running.process.pid,
            shell=running.shell,
            confined=running.confined,
            steering=running.steering,
            left_running=left,
            job=job,
        )


def _adopted(running: RunningCommand, jobs: JobTable | None) -> Job | None:
    """What was left running as a background job, or `None` where there is no room for one."""
    if jobs is None:
        return None
    with suppress(ToolError), jobs.place():
        return jobs.add(running)
    return None
