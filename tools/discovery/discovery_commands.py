"""The operator's two commands: one declares the custom tools, the other runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.machine.threads import THREADS
from tools.text.file_names import one_line

if TYPE_CHECKING:
    from tools.shell.command_runner import ProgramRequest, ProgramRunner

MAX_BYTES = 10 << 20  # maximum size of a command's output (as in Gemini CLI and Qwen Code)
# The names of the settings that contain the commands
DISCOVERY_COMMAND = "tools.discoveryCommand"
CALL_COMMAND = "tools.callCommand"


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    # Prints the declarations: a program and its arguments, or `None` if there are no custom tools.
    discovery_command: tuple[str, ...] | None = field(default=None, repr=False)
    call_command: tuple[str, ...] | None = field(default=None, repr=False)  # runs a tool; the tool's name is appended
    discovery_seconds: float = 60.0  # how long the discovery command may take
    call_seconds: float = 600.0
    strict: bool = False  # whether output on standard error means failure, as in Qwen Code and Gemini CLI

    @property
    def commands(self) -> tuple[tuple[str, ...] | None, ...]:
        """The settings that determine which custom tools exist and what they do."""
        return self.discovery_command, self.call_command


@dataclass(frozen=True, slots=True)
class ProgramSite:
    """How the commands run: in the operator's folder, without a shell or a sandbox, like upstream servers."""

    runner: Callable[[], ProgramRunner]  # creates the program runner on first use
    environment: Mapping[str, str] = field(repr=False)
    folder: str  # the working directory: the operator's first workspace folder, or else the server's working directory
    # Real paths of the operator's workspace folders. A program that is named without a folder is never taken from
    # these folders.
    roots: tuple[str, ...] = ()

    async def request(self, setting: str, command: tuple[str, ...], seconds: float) -> ProgramRequest:
        """Prepare a request to run a command without input and without saving its output to a file.

        Messages name the setting. The time limit includes the wait in the queue.
        """
        from tools.files.child_process import find_configured  # noqa: PLC0415 - loaded on first use
        from tools.shell.command_runner import ProgramRequest  # noqa: PLC0415 - as above

        name, *arguments = command
        search_path = self.environment.get("PATH", "")
        program = await THREADS.run(partial(find_configured, name, search_path, self.folder, self.roots))
        if program is None:
            where = "at that path" if os.path.basename(name) != name else "on the PATH outside the workspace"
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The program '{one_line(name)}' of {setting} was not found {where}, or cannot be run. The operator "
                "can install it, make it executable, or give its absolute path.",
            )
        return ProgramRequest(
            argv=(program, *arguments),
            folder=self.folder,
            environment=self.environment,
            client_key="",
            timeout_seconds=seconds,
            whole_bytes=MAX_BYTES,
        )


@dataclass(frozen=True, slots=True)
class CallCommand:
    argv: tuple[str, ...] = field(repr=False)  # the program and its arguments; the tool's name is appended
    seconds: float
    strict: bool  # whether output on standard error means failure
    site: ProgramSite = field(compare=False)
