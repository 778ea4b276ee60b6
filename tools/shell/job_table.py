"""A client's background jobs: commands started as jobs, and processes that a command left running."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tools.contract.tool_errors import ToolError, ToolErrorType

if TYPE_CHECKING:
    from tools.shell.process_spec import ExitStatus
    from tools.shell.running_program import CommandRequest, RunningProgram

logger = logging.getLogger(__name__)
MAX_RUNNING = 16
MAX_KEPT = 100  # jobs remembered per client; the job that finished first is forgotten first, with its output
STOP_SECONDS = 10.0  # time limit for stopping a job, so that nothing waits forever for a hung disk
STOP_GRACE_SECONDS = 2.0  # pause between SIGTERM and SIGKILL, because a background process may have something to save
_JOB_ID = re.compile(r"bg_[0-9a-f]{8}(@.*)?")
KEPT_BYTES = 1 << 15  # bytes of a finished job's output kept in memory; the whole output is in the file


class JobStatus(StrEnum):
    """The status of a job, in Qwen Code's words."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class Job:
    id: str  # `bg_` and 8 hexadecimal digits; with several replicas also `@` and the name of the replica
    request: CommandRequest
    running: RunningProgram  # the command, with its process and its output
    exit: ExitStatus | None = None  # how the shell exited, if it has; other processes may continue
    ended_at: float | None = None  # monotonic time when the job's last process exited
    is_stopped: bool = False  # whether the job was stopped on request
    is_over: asyncio.Event = field(default_factory=asyncio.Event)  # set when the job's last process has exited

    @property
    def status(self) -> JobStatus:
        if self.ended_at is None:
            return JobStatus.RUNNING
        if self.is_stopped:
            return JobStatus.STOPPED
        return JobStatus.COMPLETED if self.exit is not None and self.exit.code == 0 else JobStatus.FAILED

    @property
    def seconds(self) -> float:
        return (self.ended_at or time.monotonic()) - self.running.started_at


class JobTable:
    """The jobs of one client. Close the table when the client is forgotten or the server shuts down."""

    def __init__(self, replica: str = "") -> None:
        # `replica` is this process's name among those that serve the same clients; empty if it is the only one.
        self._mark = f"@{replica}" if replica else ""
        self._jobs: dict[str, Job] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._is_closed = False

    def all(self) -> Sequence[Job]:
        return tuple(self._jobs.values())

    def running(self) -> Sequence[Job]:
        return tuple(job for job in self._jobs.values() if job.ended_at is None)

    def get(self, job_id: str) -> Job:
        """Return the job with this id. Raises a `ToolError` (`job_not_found`) if there is none."""
        job = self._jobs.get(job_id.strip())
        if job is not None:
            return job
        _, at, replica = job_id.strip().partition("@")
        if self._mark and at and f"@{replica}" != self._mark:
            raise ToolError(
                ToolErrorType.JOB_NOT_FOUND,
                f"This job runs on replica '{replica:.80}' of this server, but another replica received the call. "
                "Nothing was done; repeat the call. If it keeps failing, that replica and its jobs are probably gone, "
                "so start the command again if you still need it.",
            )
        ids = ", ".join(self._jobs)
        known = f"Known jobs: {ids}. list_background_jobs shows more about them." if ids else "There are no jobs."
        if _JOB_ID.fullmatch(job_id.strip()):
            known += (
                " A job ends with the server or the client's session, so start the command again if you still need it."
            )
        raise ToolError(
            ToolErrorType.JOB_NOT_FOUND,
            f"There is no background job '{job_id:.40}'. {known}",
        )

    @contextmanager
    def starting(self) -> Generator[None]:
        """Count a job while it is starting. Raises a `ToolError` if the limit is reached or the table is closed."""
        if self._is_closed:
            raise ToolError(
                ToolErrorType.SHELL_EXECUTE_ERROR,
                "The server is shutting down, so nothing was started. Repeat the call when the server is back.",
            )
        if len(self.running()) + self._starting >= MAX_RUNNING:
            raise ToolError(
                ToolErrorType.SHELL_EXECUTE_ERROR,
                f"{MAX_RUNNING} background jobs are running, which is the limit. Nothing was started. End one with "
                "stop_background_job; list_background_jobs shows them.",
            )
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    def add(self, request: CommandRequest, running: RunningProgram) -> Job:
        """Add a started command. From now on, all its output is kept."""
        running.output.keep_all()
        job = Job(f"bg_{os.urandom(4).hex()}{self._mark}", request, running)
        self._jobs[job.id] = job
        while len(self._jobs) > MAX_KEPT:
            oldest = min(
                (job for job in self._jobs.values() if job.ended_at is not None), key=lambda job: job.ended_at or 0
            )
            del self._jobs[oldest.id]
            if (file := oldest.running.output.file) is not None:
                file.folder.discard(file)
        watch = asyncio.create_task(self._watch(job))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return job

    async def stop(self, job: Job) -> None:
        """Stop a job and all its processes. Does nothing if all of them have exited."""
        if job.ended_at is None:
            job.is_stopped = True
            await job.running.end(STOP_GRACE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await job.is_over.wait()

    async def aclose(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(self.stop(job) for job in self.running()))
        for watch in tuple(self._watches):
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    async def _watch(self, job: Job) -> None:
        running = job.running
        try:
            job.exit = await running.process.wait()
            await running.process.wait_gone()
            await running.read_to_end()
        except Exception as error:  # noqa: BLE001 - the job must end whatever happens
            # The supervisor died, and its job died with it.
            logger.warning("background job %s was lost: %s", job.id, type(error).__name__)
        finally:
            try:
                await running.close()
                running.output.keep_only_end(KEPT_BYTES)
            finally:
                job.ended_at = time.monotonic()
                job.is_over.set()
