"""Runs the server so that a test can count its tasks and set its clock.

python watched_server.py ARGUMENT...

WATCHED names a folder. At SIGUSR2, the server reads from the file `offset` there by how many seconds its clock is to be
wrong, and writes its counts as JSON to `counts.PID`. The monotonic clock stays as it is.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[2] / "coretools_mcp.py"
FOLDER = os.environ.pop("WATCHED")
OFFSET = [0.0]


def name_of(task: asyncio.Task[object]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_coro()))


def write_counts(_number: int, _frame: object) -> None:
    try:
        OFFSET[0] = float(Path(FOLDER, "offset").read_text())
        tasks = collections.Counter(map(name_of, asyncio.all_tasks(asyncio.get_running_loop())))
        counts_file = Path(FOLDER, f"counts.{os.getpid()}")
        new = counts_file.with_name(f"new.{os.getpid()}")
        new.write_text(json.dumps(tasks))
        new.rename(counts_file)
    except (OSError, RuntimeError):  # the server is starting or ending, or a fault took its memory or descriptors
        pass


if __name__ == "__main__":
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + OFFSET[0]
    time.time_ns = lambda: nanoseconds() + int(OFFSET[0] * 1_000_000_000)
    signal.signal(signal.SIGUSR2, write_counts)
    sys.path.insert(0, str(LAUNCHER.parent))
    runpy.run_path(str(LAUNCHER), run_name="__main__")
