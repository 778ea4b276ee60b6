"""`read_background_output`: what a job prints, its end or what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError
from tools.contract.names import shown_whole_path
from tools.contract.result import ToolResult
from tools.execution.job_access import JOB_ALIASES, JobParams, jobs_of
from tools.execution.job_report import job_facts, status_text
from tools.execution.jobs import Job, JobStatus
from tools.execution.report_text import command_line, sandbox_notes, size

if TYPE_CHECKING:
    from tools.execution.output_window import Window

MAX_LINES = 10_000


class ReadOutputParams(JobParams):
    """Which part of which job's output."""

    lines: int = Field(default=100, ge=1, le=MAX_LINES, description="How many lines to show at most; 100 by default.")
    offset: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Where to read on, in bytes: the next offset that the call before told, so that only what is new is shown. "
            "0 is the beginning. Without it the last lines are shown."
        ),
    )


class ReadOutputTool(BuiltinTool[ReadOutputParams]):
    """Shows what a background job prints."""

    name = "read_background_output"
    display_name = "ReadBackgroundOutput"
    aliases = ("ReadOutputTool", "ReadBackgroundOutput", "BashOutput")
    description = (
        "Show what a background job has printed (logs of a server, watcher or long task) and how it stands: the last "
        "lines, or with offset the lines from there on. Each answer tells the next offset, which reads only what is "
        "new since then. Works for jobs that have ended, too."
    )
    kind = Kind.READ
    behaviour = READS
    params_model = ReadOutputParams
    parameter_aliases = JOB_ALIASES

    def get_description(self, params: ReadOutputParams, context: ToolContext) -> str:
        """The job, and the place."""
        del context
        place = f"from byte {params.offset}" if params.offset is not None else f"last {params.lines} lines"
        return f"Read output of background job {command_line(params.job_id, len(params.job_id))} ({place})"

    async def execute(self, params: ReadOutputParams, context: ToolContext) -> ToolResult:
        """Read from memory, or from the file."""
        from tools.execution.output_window import last_lines, lines_from  # noqa: PLC0415 - with the first job

        context.signal.raise_if_aborted()
        job = jobs_of(context).get(params.job_id)
        output = job.running.output
        if params.offset is not None and params.offset > output.total:
            raise InvalidToolParamsError(
                self.name,
                f"'offset' {params.offset} lies past the end: {output.total} bytes have been printed so far. Give at "
                "most that, or leave it out to see the last lines.",
            )
        facts = job_facts(job)
        if output.is_binary:
            return ToolResult(llm_content=_binary(job), return_display=_binary(job), facts=facts)
        is_over = job.status is not JobStatus.RUNNING
        if params.offset is None:
            window = await last_lines(output, params.lines, is_over=is_over)
        else:
            window = await lines_from(output, params.offset, params.lines, is_over=is_over)
        return ToolResult(
            llm_content=_text(job, window),
            return_display=f"{job.id} is {job.status.value}; {size(window.end - window.start)} shown",
            facts={**facts, "start": window.start, "nextOffset": window.end},
        )


def _text(job: Job, window: Window) -> str:
    lines = [f"Status: {status_text(job)}", *sandbox_notes(job.running.changes)]
    if window.lost:
        lines.append(f"Note: {size(window.lost)} before this are not kept any more.")
    if window.end > window.start:
        lines.append(
            f"Bytes {window.start}-{window.end} of {window.total}; offset {window.end} reads on.",
        )
        lines.append(f"Output:\n{window.text}")
    else:
        lines.append(f"Nothing new: {window.total} bytes were printed; offset {window.end} reads on.")
        lines.append("Output: (empty)")
    return "\n".join(lines)


def _binary(job: Job) -> str:
    output = job.running.output
    where = f", kept in {shown_whole_path(output.spill.path)}" if output.spill is not None else ""
    return f"Status: {status_text(job)}\nOutput: (binary, {size(output.total)}{where})"
