"""`stop_background_job`: ends a job with all that it started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.contract.base import Behaviour, Kind
from tools.contract.builtin_tool import BuiltinTool
from tools.contract.context import ToolContext
from tools.contract.result import ToolResult
from tools.execution.job_access import JOB_ALIASES, JobParams, jobs_of
from tools.execution.job_report import JOB_PROPERTIES, status_text, structured_job
from tools.execution.jobs import JobStatus
from tools.execution.report_text import command_line

COMMAND_CHARS = 500

_PROPERTIES: Mapping[str, Any] = {**JOB_PROPERTIES, "was_running": {"type": "boolean"}}


class StopJobParams(JobParams):
    """Which job to end."""


class StopJobTool(BuiltinTool[StopJobParams]):
    """Ends a background job."""

    name = "stop_background_job"
    display_name = "StopBackgroundJob"
    aliases = ("StopJobTool", "StopBackgroundJob", "task_stop", "KillShell")
    description = (
        "End (kill, terminate) a background job together with all processes it started. They may finish within two "
        "seconds (SIGTERM), then they are killed. Its output can still be read. Ending a job that has ended already "
        "changes nothing."
    )
    kind = Kind.EXECUTE
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=True)
    params_model = StopJobParams
    parameter_aliases = JOB_ALIASES
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": _PROPERTIES,
        "required": list(_PROPERTIES),
    }

    def get_description(self, params: StopJobParams, context: ToolContext) -> str:
        """The job, and nothing about it that may change."""
        del context
        return f"Stop background job {command_line(params.job_id, len(params.job_id))}"

    async def execute(self, params: StopJobParams, context: ToolContext) -> ToolResult:
        """End it, and wait until nothing of it runs. Nobody is asked: whoever may run a command may end it."""
        context.signal.raise_if_aborted()
        jobs = jobs_of(context)
        job = jobs.get(params.job_id)
        was_running = job.status is JobStatus.RUNNING
        await jobs.stop(job)
        said = f"Job {job.id} was ended" if was_running else f"Job {job.id} had ended before"
        return ToolResult(
            llm_content=f"{said} ({status_text(job)}): {command_line(job.running.request.command, COMMAND_CHARS)}",
            return_display=f"{said} ({status_text(job)})",
            structured={**structured_job(job), "was_running": was_running},
        )
