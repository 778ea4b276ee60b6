"""Forks writers of one file, one after the other; each kills itself at a different step of its write.

python killed_writer.py ROOT WRITERS     prints how each writer ended: `killed` or `wrote`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.files.change.writer import Disk, rename_in, replace_file
from tools.files.path_opener import Folder, identity_of
from tools.files.workspace import Workspace

PIECE = 4096
STEPS = 14
"""A write has twelve steps, so a few writers survive."""


class DeadlyDisk:
    """Writes in small pieces, and kills the process at one of its steps."""

    def __init__(self, last_step: int) -> None:
        self.remaining_steps = last_step

    def step(self) -> None:
        self.remaining_steps -= 1
        if self.remaining_steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, descriptor: int, data: memoryview) -> int:
        self.step()
        return os.write(descriptor, data[:PIECE])

    def sync(self, descriptor: int) -> None:
        self.step()
        os.fsync(descriptor)

    def rename(self, folder: Folder, source: str, target: str, replacing: bool) -> None:
        self.step()
        rename_in(folder, source, target, replacing)
        self.step()


def write(root: Path, number: int, last_step: int) -> NoReturn:
    workspace = Workspace([str(root)])
    disk = DeadlyDisk(last_step)
    content = bytes([ord("a") + number % 26]) * (8 * PIECE)
    old_identity = identity_of((root / "file.txt").stat())
    replace_file(
        workspace, workspace.locate("file.txt"), content, old_identity, Disk(disk.write, disk.sync, disk.rename)
    )
    os._exit(0)


def main() -> None:
    root, writers = Path(sys.argv[1]), int(sys.argv[2])
    for number in range(writers):
        pid = os.fork()
        if pid == 0:
            write(root, number, number % STEPS)
        _, status = os.waitpid(pid, 0)
        print("killed" if os.WIFSIGNALED(status) else "wrote", flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
