"""A shell command that was started: a program, and the place where it is confined."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.execution.command import CommandRequest
from tools.execution.confinement import Confined, SandboxChanges
from tools.execution.running_program import RunningProgram


@dataclass(slots=True)
class RunningCommand(RunningProgram):
    """A command between its start and the end of all that it started. To be closed by whoever holds it.

    Args:
        request: What was asked for.
        shell: The absolute path of the shell that runs it.
        confined: What was started, and where.
        changes: What is known of files that steer programs outside the sandbox, once it is closed.
    """

    request: CommandRequest
    shell: str
    confined: Confined
    changes: SandboxChanges = field(default_factory=SandboxChanges, init=False)

    async def _leave_place(self) -> None:
        self.changes = await self.confined.release()
