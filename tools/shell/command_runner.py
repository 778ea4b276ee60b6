"""Runs shell commands and configured programs: starts, limits and stops them, reads their output, and tracks jobs.

Foreground commands and programs wait for one of a few slots, in order of arrival. A command is over when its shell has
exited. Processes that a command left running become a background job of its client, so their output is kept. At a
limit, or if its call is cancelled, a program is stopped together with everything that it started.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from tools.contract.call_options import Progress
from tools.contract.command_views import CommandSite, Engine, Network
from tools.contract.tool_errors import (
    NOTHING_DONE,
    ExhaustedError,
    ToolError,
    ToolErrorType,
    exhaustion_of,
    scarcity_in,
)
from tools.files.child_process import find_program
from tools.files.workspace import Scratch, Workspace
from tools.machine.threads import THREADS
from tools.shell.job_table import Job, JobTable
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import (
    ConfinedCommand,
    Confinement,
    EndedEarlyError,
    ExitStatus,
    Process,
    ProcessSpec,
    ProcessStarter,
    StartFailedError,
    unread_output,
)
from tools.shell.program_output import OUTPUT_CHARS, TAIL_BYTES, Output, OutputReader, ShownOutput, newest_text
from tools.shell.resource_limits import default_limits
from tools.shell.running_program import CommandRequest, Ending, RunningProgram
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)
POSIX_SHELL = "/bin/sh"  # runs commands if there is no bash
MAX_CONCURRENT = 8  # limit for concurrent foreground commands, and for concurrent programs
TICK_SECONDS = 0.25  # pause between checks of a running program for limits and new output
REPORT_SECONDS = 1.0  # pause between progress notifications (as in Gemini CLI)
LAST_REPORT_SECONDS = 0.5  # how long a pending notification may delay the result
EARLY_EXIT_SECONDS = 0.2  # how long a background command is watched for early errors (as in Gemini CLI)
ENDED_CHARS = 4_000  # characters of output in the error for a command that was stopped at a limit
SANDBOX_CHARS = 300  # maximum characters of a failed sandbox's message to show
ERRORS_CHARS = 4_000  # maximum characters of standard error to show
RETRY_PAUSE_SECONDS = 0.25  # pause before a start that failed for lack of resources is retried
ALONE_SECONDS = 2.0  # how long to retry if no program is running, because the last one may release resources late
_NOT_STARTED = re.compile(r"bwrap: [^\n]*\n?")  # the whole output if bubblewrap cannot start a command
_STARTUP_FILES = frozenset({"BASH_ENV", "ENV"})  # variables that name a file for a shell to run first
STARTER_LOST = (
    "The process that starts programs died, and it is unknown whether the {} had started. Check before you try again."
)


class StartQueue:
    """Retries starts that fail for lack of descriptors, processes or memory.

    Other programs release these resources when they exit. Starts are therefore retried in order of arrival, each
    until its call's time is up. A start fails at once only if waiting cannot help.
    """

    def __init__(self) -> None:
        self._running = 0
        self._last_end = float("-inf")
        self._retry_lock = anyio.Lock()

    async def start(self, start: Callable[[], Awaitable[RunningProgram]], deadline: float) -> RunningProgram:
        """Start a program when there are enough resources. It counts as running until `end` is called.

        `start` must leave nothing behind when it fails. If no attempt has succeeded by the deadline (monotonic
        seconds), or waiting cannot help, the first `ExhaustedError` is raised.
        """
        try:
            return await self._attempt(start)
        except ExhaustedError as error:
            first_error = error
        with anyio.move_on_after(deadline - time.monotonic()):
            # One start at a time, because concurrent starts would compete for resources.
            async with self._retry_lock:
                while self._running or time.monotonic() < self._last_end + ALONE_SECONDS:
                    await anyio.sleep(RETRY_PAUSE_SECONDS)
                    with suppress(ExhaustedError):
                        return await self._attempt(start)
        raise first_error

    def end(self) -> None:
        """Record that a program has exited and released its resources."""
        self._last_end = time.monotonic()
        self._running -= 1

    async def _attempt(self, start: Callable[[], Awaitable[RunningProgram]]) -> RunningProgram:
        self._running += 1
        try:
            return await start()
        except BaseException:
            self._running -= 1
            raise


class Runner:
    def __init__(
        self,
        starter: ProcessStarter,
        folders: PrivateFolders,  # stores long outputs
        max_concurrent: int = MAX_CONCURRENT,  # programs that run concurrently; others wait in order of arrival
        queue: StartQueue | None = None,  # shared by everything that uses the starter
    ) -> None:
        self._starter = starter
        self._folders = folders
        self._queue = queue or StartQueue()
        self._slots = anyio.Semaphore(max_concurrent, fast_acquire=True)

    @asynccontextmanager
    async def _slot(self, seconds: float, refusal: ToolError) -> AsyncGenerator[None]:
        """Wait up to `seconds` for a slot, and hold it. Raises `refusal` if none becomes free."""
        with anyio.move_on_after(seconds) as waiting:
            await self._slots.acquire()
        if waiting.cancelled_caught:
            raise refusal
        try:
            yield
        finally:
            self._slots.release()

    async def _start(
        self,
        confined_command: ConfinedCommand,
        client_key: str,
        refusal: Callable[[int], ToolError],
        tail_bytes: int = TAIL_BYTES,
    ) -> RunningProgram:
        started_at = time.monotonic()
        process = await start_confined(self._starter, confined_command, refusal)
        output = Output(self._folders.folder(client_key), tail_bytes)
        reader = OutputReader(process.output, output)
        return RunningProgram(process, output, reader, confined_command, started_at, self._queue.end)


async def start_confined(
    starter: ProcessStarter, confined_command: ConfinedCommand, refusal: Callable[[int], ToolError]
) -> Process:
    """Start a confined program. If that fails, release `confined_command` and raise an error.

    `refusal` returns the error for an error number from the operating system, or for 0 if there is none.
    """
    process: Process | None = None
    try:
        process = await starter.start(confined_command.spec)
        await confined_command.begin(process.mount)
    except BaseException as error:
        output = ""
        if process is not None:
            await process.end(0)
            output = unread_output(process)
            process.close()
        await confined_command.release()
        if isinstance(error, EndedEarlyError):
            raise sandbox_failed(output) from None
        if isinstance(error, StartFailedError):
            raise exhaustion_of(OSError(error.number, ""), NOTHING_DONE) or refusal(error.number) from None
        raise
    return process


def sandbox_failed(output: str) -> ToolError:
    """Return the error for a command whose sandbox exited before the command started."""
    cause = one_line(output.strip())[:SANDBOX_CHARS]
    return exhaustion_of(scarcity_in(output) or OSError(), NOTHING_DONE) or ToolError(
        ToolErrorType.SANDBOX_UNAVAILABLE,
        f"The command was not run: its sandbox could not be set up{cause and f' ({cause})'}. "
        "Nothing runs with more access than it was granted. Run it again; if it keeps failing, tell the user.",
    )


def _check_has_run(
    running: RunningProgram, status: ExitStatus | None, printed_text: str, jobs: JobTable | None
) -> None:
    """Raise an error if a command's output shows that bubblewrap could not start it for lack of resources."""
    is_sandboxed = running.confined_command.engine is Engine.BUBBLEWRAP
    if (
        is_sandboxed
        and status is not None
        and status.code == 1
        and _NOT_STARTED.fullmatch(printed_text)
        and scarcity_in(printed_text) is not None
    ):
        refusal = sandbox_failed(printed_text)
        raise ToolError(refusal.code, f"{refusal.message}{_about_jobs(jobs)}")


def _about_jobs(jobs: JobTable | None) -> str:
    """Return advice about running jobs, which may use up the resources; empty if there are none."""
    ids = ", ".join(job.id for job in jobs.running()) if jobs is not None else ""
    return f" If a job has started too many processes, stop it with stop_background_job. Running: {ids}." if ids else ""


async def _watch(
    running: RunningProgram,
    reported_output: Output,
    progress: Progress,
    deadline: float,  # monotonic seconds
    *,
    silence: float = float("inf"),  # limit for the time without output, in seconds
    most_bytes: float = float("inf"),  # maximum bytes of each output
) -> tuple[Ending, ExitStatus | None]:
    """Wait until a program has exited or reached a limit. Until then, report `reported_output` as progress."""

    async def report_text(text: str) -> None:
        try:
            await progress(reported_bytes, None, text)
        except Exception as error:  # noqa: BLE001 - the client may cause any error
            logger.info("progress could not be reported: %s", type(error).__name__)

    reported_bytes, reported_at = 0, float("-inf")
    report: asyncio.Task[None] | None = None
    waiting = asyncio.ensure_future(running.process.wait())
    try:
        while True:
            now = time.monotonic()
            next_check = min(deadline, reported_output.changed_at + silence, now + TICK_SECONDS)
            await asyncio.wait([waiting], timeout=max(next_check - now, 0))
            if waiting.done():
                return Ending.EXITED, waiting.result()
            now = time.monotonic()
            if now >= deadline:
                return Ending.TIMED_OUT, None
            if now >= reported_output.changed_at + silence:
                return Ending.SILENT, None
            if max(running.output.total, reported_output.total) > most_bytes:
                return Ending.OVERFLOWED, None
            if (
                reported_output.total != reported_bytes
                and now >= reported_at + REPORT_SECONDS
                and (report is None or report.done())
            ):
                reported_bytes, reported_at = reported_output.total, now
                report = asyncio.create_task(report_text(newest_text(reported_output)))
    finally:
        waiting.cancel()
        if report is not None:
            await asyncio.wait([report], timeout=LAST_REPORT_SECONDS)
            report.cancel()
            with suppress(asyncio.CancelledError):
                await report


@dataclass(frozen=True, slots=True)
class ShellOptions:
    environment: Mapping[str, str] = field(repr=False)
    timeout_seconds: float = 120.0  # default time limit of a call (as in Qwen Code)
    silence_seconds: float = 0.0  # longest time without output; 0 means no limit
    max_concurrent: int = MAX_CONCURRENT  # concurrent foreground commands
    has_network: bool = True  # whether commands may use the network


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """A command whose call is over."""

    request: CommandRequest
    running: RunningProgram  # the command, whose processes may continue as a job
    ending: Ending
    exit: ExitStatus | None  # how the shell exited; `None` if it was stopped at a limit
    shown_output: ShownOutput
    seconds: float  # the command's running time, excluding time in the queue
    left_running: tuple[int, ...] = ()  # ids of processes that the command left running
    # The job of these processes; `None` if there are none, or if no job was possible and they were stopped
    job: Job | None = None
    online_jobs: tuple[str, ...] = ()  # the client's running jobs with network access

    @property
    def has_failed(self) -> bool:
        return self.exit is None or self.exit.code != 0


class CommandRunner(Runner):
    """Runs shell commands for all clients, confined by `confinement`. `Runner` explains the other arguments."""

    def __init__(
        self,
        starter: ProcessStarter,
        confinement: Confinement,
        options: ShellOptions,
        folders: PrivateFolders,
        queue: StartQueue | None = None,
    ) -> None:
        super().__init__(starter, folders, options.max_concurrent, queue)
        self.options = options
        self._confinement = confinement
        self._environment = {name: value for name, value in options.environment.items() if name not in _STARTUP_FILES}

    async def make_ready(self, workspace: Workspace) -> None:
        await self._confinement.make_ready(workspace.roots)

    def site(self, workspace: Workspace, client_key: str) -> CommandSite:
        """Return what the view of a client's commands depends on: the sandbox, the network and `/tmp`. Blocking."""
        site = self._confinement.site(workspace.roots, self._environment.get("PATH", ""))
        scratch, folder = workspace.scratch, self._folders.folder(client_key)
        return replace(
            site,
            has_network=self.options.has_network,
            has_session=bool(client_key),
            scratch=scratch.path if isinstance(scratch, Scratch) else None,
            outputs=(folder.outputs,) if folder is not None else (),
        )

    async def run(self, request: CommandRequest, jobs: JobTable | None, progress: Progress) -> FinishedCommand:
        """Run a command until its shell has exited or it reaches a limit. Remaining processes become a job if possible.

        Raises a `ToolError` if the command was not started: `shell_execute_error`, `shell_timed_out` if it waited too
        long for a slot, `sandbox_unavailable`, or `resources_exhausted`.
        """
        deadline = time.monotonic() + request.timeout_seconds
        full = ToolError(
            ToolErrorType.SHELL_TIMED_OUT,
            f"The command was not started: it waited {request.timeout_seconds:g} s, but the maximum number "
            f"of commands ({self.options.max_concurrent}) was running. Try again when one has ended, or give a longer "
            "timeout.",
        )
        async with self._slot(request.timeout_seconds, full):
            running = await self._begin(request, jobs, deadline)
            left_running: tuple[int, ...] = ()
            job: Job | None = None
            try:
                silence = self.options.silence_seconds or float("inf")
                ending, status = await _watch(running, running.output, progress, deadline, silence=silence)
                seconds = time.monotonic() - running.started_at
                if ending is Ending.EXITED:
                    await running.read_to_end()
                    left_running = await running.left_running() if not running.has_overfilled else ()
                    if left_running and jobs is not None:
                        with suppress(ToolError), jobs.starting():
                            job = jobs.add(request, running)
                if job is None:
                    await running.end()
                shown_output = await running.output.shown(OUTPUT_CHARS if ending is Ending.EXITED else ENDED_CHARS)
                _check_has_run(running, status, shown_output.text, jobs)
            finally:
                if job is None:
                    await running.end()
                    await running.close()
        others = (other for other in (jobs.running() if jobs is not None else ()) if other is not job)
        online = tuple(other.id for other in others if other.running.confined_command.network is Network.HOST)
        return FinishedCommand(request, running, ending, status, shown_output, seconds, left_running, job, online)

    async def start_job(self, request: CommandRequest, jobs: JobTable) -> Job:
        """Start a command in the background, and watch it for a moment. Raises the same errors as `run`."""
        deadline = time.monotonic() + request.timeout_seconds
        with jobs.starting():
            job = jobs.add(request, await self._begin(request, jobs, deadline))
        with anyio.move_on_after(EARLY_EXIT_SECONDS):
            await job.is_over.wait()
            _check_has_run(job.running, job.exit, newest_text(job.running.output), jobs)
        return job

    async def _begin(self, request: CommandRequest, jobs: JobTable | None, deadline: float) -> RunningProgram:
        try:
            return await self._queue.start(partial(self._start_command, request), deadline)
        except ToolError as error:
            if error.code in (ToolErrorType.RESOURCES_EXHAUSTED, ToolErrorType.SANDBOX_UNAVAILABLE):
                raise ToolError(error.code, f"{error.message}{_about_jobs(jobs)}") from None
            raise

    async def _start_command(self, request: CommandRequest) -> RunningProgram:
        def refusal(number: int) -> ToolError:
            reason = (
                "commands cannot run on this system. Use the file tools, or ask the user to run it."
                if number == errno.ENOSYS
                else f"{os.strerror(number)}. Give an existing directory, put a long command into a script, write "
                "unusual characters as escapes such as printf '\\x00', or tell the user."
            )
            message = f"The command was not started: {reason}" if number else STARTER_LOST.format("command")
            return ToolError(ToolErrorType.SHELL_EXECUTE_ERROR, message)

        shell = find_program("bash", self._environment.get("PATH", ""), request.roots) or POSIX_SHELL
        limits = await THREADS.run(default_limits)
        spec = ProcessSpec((shell, "-c", request.command), request.folder, self._environment, limits)
        folder = self._folders.folder(request.client_key)
        make_folder = folder.make if folder is not None else None
        confined_command = await self._confinement.confine(
            spec, request.roots, request.view, make_folder, request.client_key
        )
        return await self._start(confined_command, request.client_key, refusal)


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    argv: tuple[str, ...] = field(repr=False)  # the program's absolute path, and its arguments
    folder: str  # real path of the working directory
    environment: Mapping[str, str] = field(repr=False)
    client_key: str  # the client that gets the output; empty for an anonymous client
    timeout_seconds: float  # time limit, including the time in the queue
    standard_input: bytes = field(default=b"", repr=False)
    whole_bytes: int = TAIL_BYTES  # output up to this length is kept in memory
    most_bytes: float = float("inf")  # limit for each stream


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """A program that has exited, together with all its processes."""

    ending: Ending
    exit: ExitStatus | None  # how the program exited; `None` if it was stopped at a limit
    tail: bytes = field(repr=False)  # the whole output, or at least its last `ProgramRequest.whole_bytes`
    is_whole: bool  # whether `tail` is the complete output
    shown_output: ShownOutput  # the output, as shown in a result
    errors: str  # the end of standard error, without surrounding blank lines
    seconds: float  # the program's running time, excluding time in the queue


class ProgramRunner(Runner):
    """Runs the operator's programs for all clients."""

    async def run(self, request: ProgramRequest, progress: Progress) -> ProgramOutcome:
        """Run a program until it has exited or reached a limit. Reports its standard error as progress.

        Raises a `ToolError` if it was not started (`execution_failed`, `resources_exhausted`).
        """

        def refusal(number: int) -> ToolError:
            if not number:
                return ToolError(ToolErrorType.EXECUTION_FAILED, STARTER_LOST.format("program"))
            name = one_line(os.path.basename(request.argv[0]))
            reason = "programs cannot run on this system" if number == errno.ENOSYS else os.strerror(number)
            message = (
                f"The program '{name}' was not started: {reason}. If it keeps failing, tell the user to check it and "
                "the interpreter in its first line."
            )
            return ToolError(ToolErrorType.EXECUTION_FAILED, message)

        deadline = time.monotonic() + request.timeout_seconds
        full = ToolError(
            ToolErrorType.EXECUTION_FAILED,
            f"The program was not started: it waited {request.timeout_seconds:g} s while too many other programs were "
            "running. Try again later.",
        )
        attachments = {0: request.standard_input} if request.standard_input else {}
        spec = ProcessSpec(
            request.argv, request.folder, request.environment, attachments=attachments, separates_errors=True
        )
        start = partial(self._start, ConfinedCommand(spec), request.client_key, refusal, request.whole_bytes)
        async with self._slot(request.timeout_seconds, full):
            running = await self._queue.start(start, deadline)
            errors = Output(None)
            errors_reader = OutputReader(running.process.errors, errors)
            try:
                ending, status = await _watch(running, errors, progress, deadline, most_bytes=request.most_bytes)
                seconds = time.monotonic() - running.started_at
                await running.read_to_end()
                await running.end()
                errors_reader.read_present()
                snapshot = running.output.snapshot()
                return ProgramOutcome(
                    ending=ending,
                    exit=status,
                    tail=snapshot.tail,
                    is_whole=snapshot.is_whole,
                    shown_output=await running.output.shown(),
                    errors=(await THREADS.run(partial(errors.snapshot().text, ERRORS_CHARS)))[0],
                    seconds=seconds,
                )
            finally:
                await running.end()
                errors_reader.stop()
                await running.close()
