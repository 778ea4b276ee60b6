"""The shell tools of one client on a real runner, with helpers for tests that run commands."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from tests.processes import NoSandbox
from tests.waiting import CEILING
from tools.builtin.background_jobs import ListJobsTool, ReadOutputTool, StopJobTool
from tools.builtin.run_shell_command import ShellTool
from tools.call.base_tool import BaseTool, ClientState, Services, ToolContext
from tools.contract.call_options import Limits
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import FileDataPart, TextPart, ToolResult
from tools.files.workspace import Workspace
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.command_runner import CommandRunner, ShellOptions
from tools.shell.job_table import Job, JobTable
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import Confinement, Process, ProcessSpec

ENVIRONMENT: Mapping[str, str] = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}


def session_of(pid: int) -> tuple[int, ...]:
    """Return the processes of a session that are still running, without zombies."""
    pids: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == pid and state not in "ZX":
                pids.append(int(entry.name))
    return tuple(sorted(pids))


def text_of(result: ToolResult) -> str:
    """Return the text for the model."""
    if isinstance(result.llm_content, str):
        return result.llm_content
    assert isinstance(result.llm_content, list)
    (text,) = [part for part in result.llm_content if isinstance(part, TextPart)]
    return text.text


def output_of(result: ToolResult) -> str:
    """Return the command's output as the model sees it."""
    _, label, output = text_of(result).partition("Output:\n")
    assert label, text_of(result)
    return output


def link_of(result: ToolResult) -> FileDataPart | None:
    """Return the link to the complete output, or None."""
    assert isinstance(result.llm_content, list)
    links = [part for part in result.llm_content if isinstance(part, FileDataPart)]
    return links[0] if links else None


class RecordingStarter:
    """Records each process that it starts, so that a test can check that none is left."""

    def __init__(self) -> None:
        self.specs: list[ProcessSpec] = []
        self.processes: list[Process] = []
        self._starter = BrokeredStarter()

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program."""
        self.specs.append(spec)
        process = await self._starter.start(spec)
        self.processes.append(process)
        return process

    async def aclose(self) -> None:
        """Close the real starter."""
        await self._starter.aclose()


@dataclass
class Shell:
    """One client with its runner.

    Args:
        context: The context of each tool call.
        starter: Starts and records all processes.
        runner: Runs commands.
        folders: Store long outputs.
        progress_reports: The progress that the client received: byte counts and messages.
    """

    context: ToolContext
    starter: RecordingStarter
    runner: CommandRunner
    folders: PrivateFolders
    progress_reports: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    @property
    def jobs(self) -> JobTable:
        """The client's job table."""
        assert self.context.client.jobs is not None
        return self.context.client.jobs

    @property
    def job(self) -> Job:
        """The only job."""
        (job,) = self.jobs.all()
        return job

    async def call(self, tool: BaseTool[Any], **arguments: Any) -> ToolResult:
        """Validate the arguments and call a tool, as the call flow does."""
        return await tool.execute(tool.validate_tool_params(arguments), self.context)

    async def run(self, command: str, **arguments: Any) -> ToolResult:
        """Run a command."""
        return await self.call(ShellTool(), command=command, **arguments)

    async def error_of(self, command: str, **arguments: Any) -> ToolError:
        """Run a command whose call fails, and return the error."""
        try:
            result = await self.run(command, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(text_of(result))

    async def list(self) -> ToolResult:
        """List the jobs."""
        return await self.call(ListJobsTool())

    async def read(self, job: Job, **arguments: Any) -> ToolResult:
        """Read a job's output."""
        return await self.call(ReadOutputTool(), job_id=job.id, **arguments)

    async def stop(self, job: Job) -> ToolResult:
        """End a job."""
        return await self.call(StopJobTool(), job_id=job.id)

    async def timed_out(self, command: str, milliseconds: int, **arguments: Any) -> str:
        """Run a command that exceeds its time limit, and return the error message."""
        error = await self.error_of(command, timeout=milliseconds, **arguments)
        assert error.code is ToolErrorType.SHELL_TIMED_OUT
        return error.message

    def anonymous(self) -> Shell:
        """Return a shell with the same runner, for a client that the server cannot tell from others."""
        return replace(self, context=replace(self.context, client=ClientState("")))

    def running(self) -> list[int]:
        """Return all running processes in the sessions of the started commands."""
        return [pid for process in self.starter.processes for pid in session_of(process.pid)]


@asynccontextmanager
async def shell_in(
    root: Path, folders_parent: Path, *, confinement: Confinement | None = None, **options: Any
) -> AsyncGenerator[Shell]:
    """Yield the shell of a client with a workspace. At the end, none of its processes may be running."""
    starter = RecordingStarter()
    environment = options.pop("environment", ENVIRONMENT)
    quotas = {name: options.pop(name) for name in ("file_bytes", "client_bytes") if name in options}
    folders = PrivateFolders(str(folders_parent), **quotas)
    runner = CommandRunner(starter, confinement or NoSandbox(), ShellOptions(environment, **options), folders)
    jobs = JobTable()
    progress_reports: list[tuple[float, str]] = []

    async def progress(byte_count: float, total: float | None, message: str) -> None:
        assert total is None
        progress_reports.append((byte_count, message))

    context = ToolContext(
        workspace=Workspace([str(root)]),
        limits=Limits(),
        client=ClientState("test", jobs=jobs),
        services=Services(lambda: runner),
        progress=progress,
    )
    shell = Shell(context, starter, runner, folders, progress_reports)
    try:
        yield shell
    finally:
        with anyio.fail_after(CEILING, shield=True):
            await jobs.aclose()
            await folders.aclose()
            leftovers = shell.running()
            await starter.aclose()
    assert leftovers == []
    assert not Path(folders.path).exists()
