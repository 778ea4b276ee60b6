"""The operator's two commands: one tells which custom tools there are, the other one carries them out."""

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

MOST_BYTES = 10 << 20  # bytes of an output that are read as a whole (Gemini CLI's and Qwen Code's number for discovery)
# The settings that name the commands.
DISCOVERY_COMMAND = "tools.discoveryCommand"
CALL_COMMAND = "tools.callCommand"


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """What the operator has configured."""

    # Prints the declarations of tools; a program and its arguments, `None` for no custom tools.
    discovery_command: tuple[str, ...] | None = field(default=None, repr=False)
    call_command: tuple[str, ...] | None = field(default=None, repr=False)  # the tool's name is put at its end
    discovery_seconds: float = 60.0  # how long the first may take
    call_seconds: float = 600.0
    strict: bool = False  # whether a tool that writes to standard error has failed, as in Qwen Code and Gemini CLI

    @property
    def commands(self) -> tuple[tuple[str, ...] | None, ...]:
        """What decides which tools there are, and what they do."""
        return self.discovery_command, self.call_command


@dataclass(frozen=True, slots=True)
class ProgramSite:
    """Where the commands run: in the operator's folder, without a shell or a sandbox, as upstream servers do."""

    runner: Callable[[], ProgramRunner]  # gives what runs programs; called with the first one
    environment: Mapping[str, str] = field(repr=False)
    folder: str  # the folder they start in: the operator's first workspace folder, else the server's own
    # Real paths of the operator's workspace folders. A program that is named without a folder is not taken from there.
    roots: tuple[str, ...] = ()

    async def request(self, setting: str, command: tuple[str, ...], seconds: float) -> ProgramRequest:
        """What is to be run for a command, without anything to read and with no file of its output.

        Args:
            setting: What names the command, for sentences.
            command: The program, and its arguments.
            seconds: How long it may take, waiting for its turn included.
        """
        from tools.files.child_process import find_configured  # noqa: PLC0415 - as above
        from tools.shell.command_runner import ProgramRequest  # noqa: PLC0415 - with the first command

        name, *arguments = command
        search_path = self.environment.get("PATH", "")
        program = await THREADS.run(partial(find_configured, name, search_path, self.folder, self.roots))
        if program is None:
            where = "there" if os.path.basename(name) != name else "on the PATH outside the workspace"
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The program '{one_line(name)}' of {setting} is not {where}, or cannot be run. The operator can "
                "install it, make it executable, or give its absolute path.",
            )
        return ProgramRequest(
            argv=(program, *arguments),
            folder=self.folder,
            environment=self.environment,
            client_key="",
            timeout_seconds=seconds,
            whole_bytes=MOST_BYTES,
        )


@dataclass(frozen=True, slots=True)
class CallCommand:
    """What carries custom tools out."""

    argv: tuple[str, ...] = field(repr=False)  # the program and its arguments; the tool's name comes behind them
    seconds: float
    strict: bool  # whether a tool that writes to standard error has failed
    site: ProgramSite = field(compare=False)
