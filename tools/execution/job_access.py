"""The way from a call to the background jobs of its client."""

from __future__ import annotations

from pydantic import Field

from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.parameters import ToolParams
from tools.execution.jobs import JobTable
from tools.execution.time_limit import MAX_TIMEOUT

JOB_ALIASES = {"id": "job_id", "task_id": "job_id", "shell_id": "job_id", "bash_id": "job_id"}
"""Other spellings of the parameter that names a job."""


class JobParams(ToolParams):
    """Which job."""

    job_id: str = Field(
        max_length=100, description="The job's id, such as bg_1a2b3c4d, as run_shell_command or the list gave it."
    )


def jobs_of(context: ToolContext) -> JobTable:
    """The jobs of the calling client.

    Raises:
        ToolError: The client cannot be told from others, so it has none (`shell_execute_error`).
    """
    if context.client.jobs is None:
        raise ToolError(
            ToolErrorType.SHELL_EXECUTE_ERROR,
            "There are no background jobs for this client: it has no session, so nobody could say later whose they "
            f"are. Run the command in the foreground; timeout may be up to {MAX_TIMEOUT} milliseconds.",
        )
    return context.client.jobs
