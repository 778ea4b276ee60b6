"""A shell command: what is asked for, and the program that runs until all it started has ended."""

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

GRACE_SECONDS = 0.2  # between SIGTERM and SIGKILL (Qwen Code's and Gemini CLI's number)
DRAIN_SECONDS = 0.05  # after its end, for the end of the output: others of a pipeline may end a little later
LEAVING_SECONDS = 0.2  # how long after its end what it started may take to end
CLEAN_UP_SECONDS = 10.0  # ending and closing are abandoned after this, so that nothing waits for a hung disk for ever


@dataclass(frozen=True, slots=True)
class CommandRequest:
    command: str  # as the shell reads it
    folder: str  # the real path of the folder it starts in
    roots: Sequence[str]  # real paths of the workspace's folders
    client_key: str  # whose output it is; empty for a client that cannot be told from others
    timeout_seconds: float  # how long it may take, including the time in the queue; in the background its start alone
    description: str = ""  # what it is for, in the model's words
    folder_name: str = ""  # what people and models call that folder, where it is not its path
    view: CommandView = UNCONFINED  # what it will be able to see and to change


class Ending(StrEnum):
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    SILENT = "silent"
    OVERFLOWED = "overflowed"


@dataclass(slots=True)
class RunningProgram:
    """A program between its start and the end of all that it started. To be closed by whoever holds it."""

    process: Process
    output: Output  # what it has printed so far
    reader: OutputReader
    confined: ConfinedCommand  # what was started, and where
    started_at: float  # monotonic seconds
    on_closed: Callable[[], None]  # called when it holds nothing any more
    # What is known of auto-run files, once it is closed.
    changes: SandboxChanges = field(default_factory=SandboxChanges, init=False)
    # Whether its end was begun since the folders that it may write in held too much
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
        """After it has ended: take over what it printed before, though others may go on printing."""
        # Mostly the end is found at once, without a turn of the event loop.
        self.reader.read_present()
        if not await self.reader.wait_ended(DRAIN_SECONDS):
            self.reader.read_present()

    async def left_running(self) -> tuple[int, ...]:
        """After it has ended: the ids of what it left running, without what ends a moment later, as a sandbox does."""
        if await self.process.left_running():
            with anyio.move_on_after(LEAVING_SECONDS):
                await self.process.wait_gone()
            return await self.process.left_running()
        return ()

    async def end(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End it with all it started, and take over the last it printed. Shielded and bounded."""
        with anyio.move_on_after(grace_seconds + CLEAN_UP_SECONDS, shield=True):
            await self.process.end(grace_seconds)
            self.reader.read_present()

    async def close(self) -> None:
        """After the end of all it started: let go of everything but the output. Shielded and bounded."""
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
