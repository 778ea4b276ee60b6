"""Stops a program that fills the file system of its temporary folders."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from tools.contract.tool_errors import ExhaustedError
from tools.machine.threads import THREADS
from tools.shell.private_folders import measured
from tools.shell.process_spec import Process

LOOK_SECONDS = 1.0  # pause between checks of the free space
STEPS = 8  # the folders are measured whenever the free space has changed by about 1/8 of the size limit
FILES_STEP = 10_000  # the folders are also measured whenever this many inodes have been used or freed


async def overfull(folders: Sequence[str], most_bytes: int, process: Process) -> None:
    """Wait until the folders of a running program are too large.

    Deleted files that the program's processes still have open count too.
    """
    rooms: list[tuple[int, int]] = []
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        with suppress(OSError, ExhaustedError):  # try again at the next check
            now = await THREADS.run(partial(_rooms, folders, most_bytes // STEPS))
            if now == rooms:
                continue
            rooms = now
            pids = await process.left_running()
            if await THREADS.run(partial(_are_overfull, folders, most_bytes, pids)):
                return


def _rooms(folders: Iterable[str], step: int) -> list[tuple[int, int]]:
    """Return the free space of each folder's file system, in steps of `step` bytes and of `FILES_STEP` files."""
    if sys.platform == "win32":
        raise NotImplementedError
    found = map(os.statvfs, folders)
    return [(room.f_bavail * room.f_frsize // step, room.f_favail // FILES_STEP) for room in found]


def _are_overfull(folders: Sequence[str], most_bytes: int, pids: Iterable[int]) -> bool:
    held = 0
    for folder in folders:
        size, is_too_much = measured(folder, most_bytes)
        if is_too_much:
            return True
        held += size
    return held + _removed_and_open({os.stat(folder).st_dev for folder in folders}, pids) > most_bytes


def _removed_and_open(devices: set[int], pids: Iterable[int]) -> int:
    """Return the bytes of deleted files on these file systems that the processes have open."""
    if sys.platform == "win32":
        raise NotImplementedError
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    info = os.stat(f"/proc/{pid}/fd/{number}")
                    if not info.st_nlink and info.st_dev in devices:
                        sizes[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(sizes.values())
