"""The shell tools of one client on a real runner, and what every test of them does."""

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
from tools.contract.limits import Limits
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
    """The processes of a session that still run; those that have ended and wait for their parent do not count."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == pid and state not in "ZX":
                found.append(int(entry.name))
    return tuple(sorted(found))


def text_of(result: ToolResult) -> str:
    """The text for the model."""
    if isinstance(result.llm_content, str):
        return result.llm_content
    assert isinstance(result.llm_content, list)
    (text,) = [part for part in result.llm_content if isinstance(part, TextPart)]
    return text.text


def output_of(result: ToolResult) -> str:
    """What the command printed, as the model is told."""
    _, label, output = text_of(result).partition("Output:\n")
    assert label, text_of(result)
    return output


def link_of(result: ToolResult) -> FileDataPart | None:
    """The link to the whole output."""
    assert isinstance(result.llm_content, list)
    links = [part for part in result.llm_content if isinstance(part, FileDataPart)]
    return links[0] if links else None


class RecordingStarter:
    """Remembers what was started, so that a test can see that nothing is left."""

    def __init__(self) -> None:
        self.asked: list[ProcessSpec] = []
        self.started: list[Process] = []
        self._starter = BrokeredStarter()

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program."""
        self.asked.append(spec)
        process = await self._starter.start(spec)
        self.started.append(process)
        return process

    async def aclose(self) -> None:
        """Close what starts."""
        await self._starter.aclose()


@dataclass
class Shell:
    """One client with its runner.

    Args:
        context: What tools are given.
        starter: Knows all processes that were started.
        runner: Runs commands.
        folders: Keeps long outputs.
        told: The progress that the client was told: bytes and message.
    """

    context: ToolContext
    starter: RecordingStarter
    runner: CommandRunner
    folders: PrivateFolders
    told: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    @property
    def jobs(self) -> JobTable:
        """The client's jobs."""
        assert self.context.client.jobs is not None
        return self.context.client.jobs

    @property
    def job(self) -> Job:
        """The only job."""
        (job,) = self.jobs.all()
        return job

    async def call(self, tool: BaseTool[Any], **arguments: Any) -> ToolResult:
        """Call a tool as the flow does."""
        return await tool.execute(tool.validate_tool_params(arguments), self.context)

    async def run(self, command: str, **arguments: Any) -> ToolResult:
        """Run a command."""
        return await self.call(ShellTool(), command=command, **arguments)

    async def error_of(self, command: str, **arguments: Any) -> ToolError:
        """Run a command that fails as a call."""
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
        """The message of a command that takes too long."""
        error = await self.error_of(command, timeout=milliseconds, **arguments)
        assert error.code is ToolErrorType.SHELL_TIMED_OUT
        return error.message

    def anonymous(self) -> Shell:
        """The same runner for a client that cannot be told from others."""
        return replace(self, context=replace(self.context, client=ClientState("")))

    def running(self) -> list[int]:
        """All processes that run of what was started."""
        return [pid for process in self.starter.started for pid in session_of(process.pid)]


@asynccontextmanager
async def shell_in(
    root: Path, folders_parent: Path, *, confinement: Confinement | None = None, **options: Any
) -> AsyncGenerator[Shell]:
    """A client with a workspace; at the end nothing of it may run."""
    starter = RecordingStarter()
    environment = options.pop("environment", ENVIRONMENT)
    quotas = {name: options.pop(name) for name in ("file_bytes", "client_bytes") if name in options}
    folders = PrivateFolders(str(folders_parent), **quotas)
    runner = CommandRunner(starter, confinement or NoSandbox(), ShellOptions(environment, **options), folders)
    jobs = JobTable()
    told: list[tuple[float, str]] = []

    async def progress(done: float, total: float | None, message: str) -> None:
        assert total is None
        told.append((done, message))

    context = ToolContext(
        workspace=Workspace([str(root)]),
        limits=Limits(),
        client=ClientState("test", jobs=jobs),
        services=Services(lambda: runner),
        progress=progress,
    )
    shell = Shell(context, starter, runner, folders, told)
    try:
        yield shell
    finally:
        with anyio.fail_after(CEILING, shield=True):
            await jobs.aclose()
            await folders.aclose()
            left = shell.running()
            await starter.aclose()
    assert left == []
    assert not Path(folders.path).exists()
