"""The request to run a shell command, and a running program. A program that fills its temporary folders is stopped."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import anyio

from tools.contract.command_views import UNCONFINED, CommandView
from tools.contract.tool_errors import ExhaustedError
from tools.machine.threads import THREADS
from tools.shell.private_folders import measure_folder
from tools.shell.process_spec import ConfinedCommand, Process, SandboxChanges
from tools.shell.program_output import Output, OutputReader

GRACE_SECONDS = 0.2  # pause between SIGTERM and SIGKILL (as in Qwen Code and Gemini CLI)
# How long to wait for the rest of the output after the shell has exited, because parts of a pipeline may exit later
DRAIN_SECONDS = 0.05
LEAVING_SECONDS = 0.2  # how long other processes may take to exit after the program
CLEAN_UP_SECONDS = 10.0  # time limit for stopping or closing a program, so that nothing waits forever for a hung disk
SPACE_CHECK_SECONDS = 1.0  # pause between checks of the free space
STEPS = 8  # the folders are measured whenever the free space has changed by about 1/8 of the size limit
FILES_STEP = 10_000  # the folders are also measured whenever this many inodes have been used or freed


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
    confined_command: ConfinedCommand  # what was started, and how it is confined
    started_at: float  # monotonic seconds
    on_closed: Callable[[], None]  # `StartQueue.end`, called when all resources are released
    # The changes to auto-run files and temporary files; known after `close`
    changes: SandboxChanges = field(default_factory=SandboxChanges, init=False)
    # Whether the program was stopped because its writable folders became too large
    has_overfilled: bool = field(default=False, init=False)
    _watch: asyncio.Task[None] | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        folders, most_bytes = self.confined_command.limited_folders()
        if folders:
            self._watch = asyncio.create_task(self._end_if_overfull(folders, most_bytes))

    async def _end_if_overfull(self, folders: Sequence[str], most_bytes: int) -> None:
        """Stop the program when its writable folders, with deleted files that it still has open, are too large."""
        free_space: list[tuple[int, int]] = []
        while not self.has_overfilled:
            await asyncio.sleep(SPACE_CHECK_SECONDS)
            with suppress(OSError, ExhaustedError):  # try again at the next check
                current_space = await THREADS.run(partial(_free_space, folders, most_bytes // STEPS))
                if current_space != free_space:
                    free_space = current_space
                    pids = await self.process.left_running()
                    self.has_overfilled = await THREADS.run(partial(_are_overfull, folders, most_bytes, pids))
        await self.end()

    async def read_to_end(self) -> None:
        """Read the remaining output after the program's exit. Waits only briefly if other processes keep it open."""
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
        """Stop all the program's processes, then read the remaining output. Shielded and bounded."""
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
                self.changes = replace(await self.confined_command.release(), has_overfilled=self.has_overfilled)
        finally:
            self.on_closed()
            if self.output.file is not None:
                with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                    await self.output.file.close()


def _free_space(folders: Iterable[str], step: int) -> list[tuple[int, int]]:
    """Return the free space of each folder's file system, in units of `step` bytes and of `FILES_STEP` inodes."""
    if sys.platform == "win32":
        raise NotImplementedError
    disks = map(os.statvfs, folders)
    return [(disk.f_bavail * disk.f_frsize // step, disk.f_favail // FILES_STEP) for disk in disks]


def _are_overfull(folders: Sequence[str], most_bytes: int, pids: Iterable[int]) -> bool:
    """Return True if the folders, plus deleted files that the processes still have open, exceed `most_bytes`."""
    if sys.platform == "win32":
        raise NotImplementedError
    folder_bytes = 0
    for folder in folders:
        size, _, is_too_large = measure_folder(folder, most_bytes)
        if is_too_large:
            return True
        folder_bytes += size
    devices = {os.stat(folder).st_dev for folder in folders}
    deleted_files: dict[tuple[int, int], int] = {}  # bytes, keyed by device and inode
    for pid in pids:
        with suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    info = os.stat(f"/proc/{pid}/fd/{number}")
                    if not info.st_nlink and info.st_dev in devices:
                        deleted_files[info.st_dev, info.st_ino] = info.st_blocks * 512
    return folder_bytes + sum(deleted_files.values()) > most_bytes
