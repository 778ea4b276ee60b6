"""`list_background_jobs`: what this client has running, and what has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool
from tools.contract.context import ToolContext
from tools.contract.names import shown_whole_path
from tools.contract.parameters import ToolParams
from tools.contract.result import ToolResult
from tools.execution.job_access import jobs_of
from tools.execution.job_report import JOB_PROPERTIES, status_text, structured_job
from tools.execution.jobs import Job, JobStatus
from tools.execution.report_text import command_line, size

MAX_TEXT_BYTES = 8_000
"""The text beside structured content stays below this; the jobs that started last come first, so they are in it."""

COMMAND_CHARS = 100
STRUCTURED_COMMAND_CHARS = 500


_PROPERTIES: Mapping[str, Any] = {
    **JOB_PROPERTIES,
    "pid": {"type": "integer"},
    "command": {"type": "string"},
    "description": {"type": "string"},
    "directory": {"type": "string"},
    "duration_ms": {"type": "integer"},
    "output_bytes": {"type": "integer"},
}


class ListJobsParams(ToolParams):
    """Nothing to choose."""


class ListJobsTool(BuiltinTool[ListJobsParams]):
    """Lists background jobs."""

    name = "list_background_jobs"
    display_name = "ListBackgroundJobs"
    aliases = ("ListJobsTool", "ListBackgroundJobs", "list_background_processes")
    description = (
        "List the background jobs of this session (started with is_background, or left running by a command): id, "
        "status, process id, running time, bytes printed and command, the newest first."
    )
    kind = Kind.READ
    behaviour = READS
    params_model = ListJobsParams
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "jobs": {
                "type": "array",
                "items": {"type": "object", "properties": _PROPERTIES, "required": list(_PROPERTIES)},
            }
        },
        "required": ["jobs"],
    }

    def get_description(self, params: ListJobsParams, context: ToolContext) -> str:
        """Always the same."""
        del params, context
        return "List background jobs"

    async def execute(self, params: ListJobsParams, context: ToolContext) -> ToolResult:
        """Look at the table."""
        del params
        context.signal.raise_if_aborted()
        jobs = list(reversed(jobs_of(context).all()))
        running = sum(job.status is JobStatus.RUNNING for job in jobs)
        return ToolResult(
            llm_content=_text(jobs, running),
            return_display=f"{running} of {len(jobs)} background jobs running",
            structured={"jobs": [_structured(job) for job in jobs]},
        )


def _text(jobs: Sequence[Job], running: int) -> str:
    if not jobs:
        return "There are no background jobs."
    lines = [f"{running} of {len(jobs)} background jobs are running:"]
    room = MAX_TEXT_BYTES - len(lines[0]) - COMMAND_CHARS
    for number, job in enumerate(jobs):
        line = _line(job)
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            lines.append(f"... and {len(jobs) - number} older ones.")
            break
        lines.append(line)
    return "\n".join(lines)


def _line(job: Job) -> str:
    request = job.running.request
    command = command_line(request.command, COMMAND_CHARS)
    return (
        f"{job.id}: {status_text(job)}; PID {job.running.process.pid}, {job.seconds:.0f} s, "
        f"{size(job.running.output.total)} printed: {command} [in {shown_whole_path(request.folder)}]"
    )


def _structured(job: Job) -> dict[str, Any]:
    request = job.running.request
    return {
        **structured_job(job),
        "pid": job.running.process.pid,
        "command": command_line(request.command, STRUCTURED_COMMAND_CHARS),
        "description": command_line(request.description, STRUCTURED_COMMAND_CHARS),
        "directory": request.folder,
        "duration_ms": round(job.seconds * 1000),
        "output_bytes": job.running.output.total,
    }
