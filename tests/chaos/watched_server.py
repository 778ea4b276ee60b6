"""Runs our server so that it can be asked from outside how many tasks it has, and so that its clock can be set.

python watched_server.py ARGUMENT...

At SIGUSR2 it takes `offset`, seconds, from the folder of the variable WATCHED, as what its clock is wrong by. It writes
what it counts as JSON into the file `counts.PID` there. What measures time that passes has a clock of its own, which
nobody sets.
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


def tell(_number: int, _frame: object) -> None:
    try:
        OFFSET[0] = float(Path(FOLDER, "offset").read_text())
        tasks = collections.Counter(map(name_of, asyncio.all_tasks(asyncio.get_running_loop())))
        told = Path(FOLDER, f"counts.{os.getpid()}")
        new = told.with_name(f"new.{os.getpid()}")
        new.write_text(json.dumps(tasks))
        new.rename(told)
    except (OSError, RuntimeError):  # it starts or ends, or lacks what it is tested without
        pass


if __name__ == "__main__":
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + OFFSET[0]
    time.time_ns = lambda: nanoseconds() + int(OFFSET[0] * 1_000_000_000)
    signal.signal(signal.SIGUSR2, tell)
    sys.path.insert(0, str(LAUNCHER.parent))
    runpy.run_path(str(LAUNCHER), run_name="__main__")
