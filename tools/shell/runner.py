"""The one runner of shell commands: starts, reads, limits, ends, and keeps what is left running.

A command waits for one of a few places, in the order of arrival. It is over as soon as its shell has ended; what it
left running becomes a background job of its client, so that nothing is lost. At a limit, and when its call is
cancelled, it is ended with all that it started.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.exhaustion import NOTHING_DONE, exhaustion_of
from tools.contract.names_on_one_line import one_line
from tools.contract.threads import THREADS
from tools.files.programs import find_program
from tools.shell.command import OUTPUT_CHARS, POSIX_SHELL, CommandRequest, Ending, Finished, Shown
from tools.shell.confinement import Confined, Confinement, SandboxChanges
from tools.shell.jobs import Job, JobTable
from tools.shell.output import TAIL_BYTES, LiveOutput, Output, OutputReader
from tools.shell.output_files import SpillStore
from tools.shell.process import ExitStatus, Process, ProcessSpec, ProcessStarter, StartFailedError
from tools.shell.resource_limits import default_limits
from tools.shell.turns import Turns

if TYPE_CHECKING:
    from tools.contract.limits import Progress


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


@dataclass(slots=True)
class RunningCommand(RunningProgram):
    """A command between its start and the end of all that it started. To be closed by whoever holds it.

    Args:
        request: What was asked for.
        shell: The absolute path of the shell that runs it.
        confined: What was started, and where.
        changes: What is known of auto-run files, once it is closed.
    """

    request: CommandRequest
    shell: str
    confined: Confined
    changes: SandboxChanges = field(default_factory=SandboxChanges, init=False)

    async def _leave_place(self) -> None:
        self.changes = await self.confined.release()


TICK_SECONDS = 0.25
"""How often a running program is looked at for something to report."""

MAX_CONCURRENT = 8
"""Programs that run at once; as many as commands by default."""

ERRORS_CHARS = 4_000
"""Characters shown of what came on standard error."""

_WHY_NOT_STARTED = {
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
            why = _WHY_NOT_STARTED.get(error.number, "the operating system refused it")
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
