"""The request to run a shell command, and a running program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import anyio

from tools.contract.command_views import UNCONFINED, CommandView
from tools.shell.process_spec import ConfinedCommand, Process, SandboxChanges
from tools.shell.program_output import Output, OutputReader
from tools.shell.temporary_watch import overfull

GRACE_SECONDS = 0.2  # pause between SIGTERM and SIGKILL (as in Qwen Code and Gemini CLI)
# How long to wait for the rest of the output after the shell has exited, because parts of a pipeline may exit later
DRAIN_SECONDS = 0.05
LEAVING_SECONDS = 0.2  # how long other processes may take to exit after the program
CLEAN_UP_SECONDS = 10.0  # limit for stopping and closing, so that nothing waits forever for a hung disk


@dataclass(frozen=True, slots=True)
class CommandRequest:
    command: str  # the text for the shell
    folder: str  # real path of the working directory
    roots: Sequence[str]  # real paths of the workspace folders
    client_key: str  # the client that gets the output; empty for an anonymous client
    timeout_seconds: float  # time limit, including the time in the queue; for a background command, only for its start
    description: str = ""  # the command's purpose, as described by the model
    folder_name: str = ""  # the folder's name for people and models, if different from its path
    view: CommandView = UNCONFINED  # what the command will be able to see and change


class Ending(StrEnum):
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    SILENT = "silent"
    OVERFLOWED = "overflowed"


@dataclass(slots=True)
class RunningProgram:
    """A program from its start until all its processes have exited. The owner must close it."""

    process: Process
    output: Output  # the program's output so far
    reader: OutputReader
    confined: ConfinedCommand  # what was started, and how it is confined
    started_at: float  # monotonic seconds
    on_closed: Callable[[], None]  # called when all resources are released
    # The changes to auto-run files and temporary files; known after `close`
    changes: SandboxChanges = field(default_factory=SandboxChanges, init=False)
    # Whether the program was stopped because its writable folders became too large
    has_overfilled: bool = field(default=False, init=False)
    _watch: asyncio.Task[None] | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        folders, most_bytes = self.confined.limited_folders()
        if folders:
            self._watch = asyncio.create_task(self._end_if_overfull(folders, most_bytes))

    async def _end_if_overfull(self, folders: Sequence[str], most_bytes: int) -> None:
        await overfull(folders, most_bytes, self.process)
        self.has_overfilled = True
        await self.end()

    async def read_to_end(self) -> None:
        """Read the remaining output after the program's exit. Waits only briefly if other processes still print."""
        # Usually the end of the output is found immediately, without a turn of the event loop.
        self.reader.read_present()
        if not await self.reader.wait_ended(DRAIN_SECONDS):
            self.reader.read_present()

    async def left_running(self) -> tuple[int, ...]:
        """Return the ids of processes left running after the program's exit. Waits briefly for them to exit."""
        if await self.process.left_running():
            with anyio.move_on_after(LEAVING_SECONDS):
                await self.process.wait_gone()
            return await self.process.left_running()
        return ()

    async def end(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop all the program's processes, and read the last output. Shielded and bounded."""
        with anyio.move_on_after(grace_seconds + CLEAN_UP_SECONDS, shield=True):
            await self.process.end(grace_seconds)
            self.reader.read_present()

    async def close(self) -> None:
        """Release everything except the output, after all processes have exited. Shielded and bounded."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        self.reader.stop()
        self.process.close()
        try:
            with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                self.changes = replace(await self.confined.release(), has_overfilled=self.has_overfilled)
        finally:
            self.on_closed()
            if self.output.file is not None:
                with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                    await self.output.file.close()
