"""The work of `run_shell_command`: a command is handed to the runner, and what came of it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.builtin.background_jobs import jobs_of
from tools.call.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.results import ToolResult
from tools.shell.command import OUTPUT_CHARS, CommandRequest, Ending
from tools.shell.result_text import (
    job_content,
    run_content,
    run_display,
    run_facts,
    timed_out_message,
)
from tools.shell.status_text import job_facts

if TYPE_CHECKING:
    from tools.builtin.run_shell_command import ShellParams
    from tools.shell.runner import CommandRunner


async def run_command(params: ShellParams, folder: str, context: ToolContext) -> ToolResult:
    """Run a command, or start it in the background.

    Args:
        params: The call's.
        folder: The real path of the folder that it starts in.
        context: For whom.

    Raises:
        ToolError: It could not be started, or was ended at a limit.
    """
    runner = _runner(context)
    request = CommandRequest(
        command=params.script,
        folder=folder,
        roots=context.workspace.roots,
        client_key=context.client.key,
        timeout_seconds=params.timeout / 1000 if params.timeout is not None else runner.options.timeout_seconds,
        description=params.description or "",
        waiver=context.waiver,
    )
    if params.is_background:
        return await _in_background(runner, request, context)
    finished = await runner.run(request, context.client.jobs, context.progress)
    if finished.ending is not Ending.EXITED:
        raise ToolError(
            ToolErrorType.SHELL_TIMED_OUT,
            timed_out_message(finished, request, runner.options.silence_seconds),
        )
    return ToolResult(
        llm_content=run_content(finished, request, params.directory),
        return_display=run_display(finished),
        facts=run_facts(finished),
    )


async def _in_background(runner: CommandRunner, request: CommandRequest, context: ToolContext) -> ToolResult:
    job = await runner.start_job(request, jobs_of(context))
    shown = await job.running.shown(OUTPUT_CHARS)
    return ToolResult(
        llm_content=job_content(job, shown),
        return_display=f"Background job {job.id}: {job.status}",
        facts=job_facts(job),
    )


def _runner(context: ToolContext) -> CommandRunner:
    if context.services.commands is None:
        raise ToolError(
            ToolErrorType.SHELL_EXECUTE_ERROR,
            "Commands cannot be run here. Use the file tools, or ask the user to run it.",
        )
    return context.services.commands()
