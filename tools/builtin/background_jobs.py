"""The tools that list background jobs, read their output and stop them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tools.call.base_tool import READS, Behaviour, BuiltinTool, ToolContext
from tools.contract.call_options import MAX_COMMAND_TIMEOUT
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_parameters import ForeignParameter, ToolParams
from tools.contract.tool_results import ToolResult
from tools.shell.job_table import Job, JobStatus, JobTable
from tools.text.file_names import sendable_name, shortened_line, shown_whole_path

MAX_LINES = 10_000
# Maximum size of the text that accompanies the structured content. The newest jobs come first, so only the oldest are
# omitted.
MAX_TEXT_BYTES = 8_000
LISTED_COMMAND_CHARS = 100
STRUCTURED_COMMAND_CHARS = 500
JOB_ALIASES = {"id": "job_id", "task_id": "job_id", "shell_id": "job_id", "bash_id": "job_id"}


class JobParams(ToolParams):
    job_id: str = Field(max_length=100, description="Such as bg_1a2b3c4d.")


def jobs_of(context: ToolContext) -> JobTable:
    """Return the client's jobs. Raises `shell_execute_error` for an anonymous client, which cannot have any jobs."""
    if context.client.jobs is None:
        raise ToolError(
            ToolErrorType.SHELL_EXECUTE_ERROR,
            "This client cannot have background jobs: it has no session, so they could not be assigned to it later. "
            f"Run the command in the foreground; timeout may be up to {MAX_COMMAND_TIMEOUT} milliseconds.",
        )
    return context.client.jobs


def _status_of(job: Job) -> dict[str, Any]:
    """Return a job's id, status and exit, for structured results."""
    code, signal = (job.exit.code, job.exit.signal) if job.exit is not None else (None, None)
    return {"job_id": job.id, "status": job.status.value, "exit_code": code, "signal": signal}


class ListJobsTool(BuiltinTool[ToolParams]):
    name = "list_background_jobs"
    title = "List background jobs"
    display_name = "ListBackgroundJobs"
    aliases = ("ListJobsTool", "ListBackgroundJobs", "list_background_processes")
    description = (
        "List this session's background jobs (ps, jobs), newest first: id, status, time, bytes printed, command."
    )
    kind = ToolKind.READ
    behaviour = READS
    params_model = ToolParams

    def get_description(self, params: ToolParams, context: ToolContext) -> str:
        return "List background jobs"

    async def execute(self, params: ToolParams, context: ToolContext) -> ToolResult:
        from tools.shell.result_text import size, status_text  # noqa: PLC0415 - loaded on first use

        context.signal.raise_if_aborted()
        jobs = list(reversed(jobs_of(context).all()))
        running = sum(job.status is JobStatus.RUNNING for job in jobs)
        summary = f"Background jobs: {len(jobs)} ({running} running)"
        lines = [summary if jobs else "There are no background jobs."]
        room = MAX_TEXT_BYTES - len(lines[0]) - LISTED_COMMAND_CHARS
        for number, job in enumerate(jobs):
            command = shortened_line(job.request.command, LISTED_COMMAND_CHARS)
            line = (
                f"{job.id}: {status_text(job)}; PID {job.running.process.pid}, {job.seconds:.0f} s, "
                f"{size(job.running.output.total)} printed: {command} "
                f"[in {shown_whole_path(job.request.folder_name or job.request.folder)}]"
            )
            room -= len(line.encode("utf-8", "replace")) + 1
            if room < 0:
                lines.append(f"Older jobs not shown: {len(jobs) - number}")
                break
            lines.append(line)
        entries = [
            {
                **_status_of(job),
                "pid": job.running.process.pid,
                "command": shortened_line(job.request.command, STRUCTURED_COMMAND_CHARS),
                "description": shortened_line(job.request.description, STRUCTURED_COMMAND_CHARS),
                "directory": sendable_name(job.request.folder_name or job.request.folder),
                "duration_ms": round(job.seconds * 1000),
                "output_bytes": job.running.output.total,
            }
            for job in jobs
        ]
        return ToolResult("\n".join(lines), summary, {"jobs": entries})


class ReadOutputParams(JobParams):
    lines: int = Field(default=100, ge=1, le=MAX_LINES, description="Line limit.")
    offset: int | None = Field(default=None, ge=0, description="Byte to continue from.")


class ReadOutputTool(BuiltinTool[ReadOutputParams]):
    name = "read_background_output"
    title = "Read background output"
    display_name = "ReadBackgroundOutput"
    aliases = ("ReadOutputTool", "ReadBackgroundOutput", "BashOutput")
    description = (
        "Show the output (logs) and status of a background job: the last lines, or those from offset on. Each result "
        "gives the next offset."
    )
    kind = ToolKind.READ
    behaviour = READS
    params_model = ReadOutputParams
    parameter_aliases = JOB_ALIASES

    def get_description(self, params: ReadOutputParams, context: ToolContext) -> str:
        place = f"from byte {params.offset}" if params.offset is not None else f"the last lines, at most {params.lines}"
        return f"Read output of background job {shortened_line(params.job_id, len(params.job_id))} ({place})"

    async def execute(self, params: ReadOutputParams, context: ToolContext) -> ToolResult:
        from tools.shell.program_output import last_lines, lines_from  # noqa: PLC0415 - loaded on first use
        from tools.shell.result_text import job_facts, sandbox_notes, size, status_text  # noqa: PLC0415

        context.signal.raise_if_aborted()
        job = jobs_of(context).get(params.job_id)
        output = job.running.output
        if params.offset is not None and params.offset > output.total:
            raise InvalidToolParamsError(
                self.name,
                f"'offset' {params.offset} is past the end. Bytes printed so far: {output.total}. Give at most that "
                "number, or omit offset to see the last lines.",
            )
        facts = job_facts(job)
        lines = [f"Status: {status_text(job)}"]
        if output.is_binary:
            location = f", saved in {shown_whole_path(output.file.path)}" if output.file is not None else ""
            lines.append(f"Output: (binary, {size(output.total)}{location})")
            return ToolResult(llm_content="\n".join(lines), return_display="\n".join(lines), facts=facts)
        is_over = job.status is not JobStatus.RUNNING
        if params.offset is None:
            window = await last_lines(output, params.lines, is_over=is_over)
        else:
            window = await lines_from(output, params.offset, params.lines, is_over=is_over)
        lines += sandbox_notes(job.running.changes)
        if window.lost_bytes:
            lines.append(f"Note: the preceding {size(window.lost_bytes)} of output is no longer kept.")
        if window.note:
            lines.append(f"Note: {window.note}")
        if window.end > window.start:
            lines.append(f"Bytes {window.start}-{window.end} of {window.total}; continue with offset {window.end}.")
            lines.append(f"Output:\n{window.text}")
        else:
            lines.append(f"Nothing new. Bytes printed so far: {window.total}. Continue with offset {window.end}.")
            lines.append("Output: (empty)")
        return ToolResult(
            llm_content="\n".join(lines),
            return_display=f"{job.id} is {job.status.value}; {size(window.end - window.start)} shown",
            facts={**facts, "start": window.start, "nextOffset": window.end},
        )


class StopJobTool(BuiltinTool[JobParams]):
    name = "stop_background_job"
    title = "Stop background job"
    display_name = "StopBackgroundJob"
    aliases = ("StopJobTool", "StopBackgroundJob", "task_stop", "KillShell")
    description = (
        "Stop (kill) a background job and all its processes: SIGTERM, then SIGKILL after two seconds. Its output stays "
        "readable."
    )
    kind = ToolKind.EXECUTE
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=True)
    params_model = JobParams
    parameter_aliases = JOB_ALIASES
    foreign_parameters = {"force": ForeignParameter()}  # noqa: RUF012 - declared as a Mapping

    def get_description(self, params: JobParams, context: ToolContext) -> str:
        return f"Stop background job {shortened_line(params.job_id, len(params.job_id))}"

    async def execute(self, params: JobParams, context: ToolContext) -> ToolResult:
        """Stop the job and wait for its processes. Needs no consent, because the client was allowed to start it."""
        from tools.shell.result_text import status_text  # noqa: PLC0415 - loaded on first use

        context.signal.raise_if_aborted()
        jobs = jobs_of(context)
        job = jobs.get(params.job_id)
        was_running = job.status is JobStatus.RUNNING
        await jobs.stop(job)
        ending = "was ended" if was_running else "had already ended"
        message = f"Job {job.id} {ending} ({status_text(job)})"
        content = f"{message}: {shortened_line(job.request.command, STRUCTURED_COMMAND_CHARS)}"
        return ToolResult(content, message, {**_status_of(job), "was_running": was_running})
