"""Runs the server with a wall clock whose readings are, in turn, right, an hour ahead and an hour behind.

python jumping_clock.py ARGUMENT...

Only the wall clock jumps. The monotonic clock, which measures durations, is unchanged.
"""

from __future__ import annotations

import itertools
import runpy
import sys
import time
from pathlib import Path

HOUR = 3_600
LAUNCHER = Path(__file__).resolve().parents[2] / "coretools_mcp.py"

if __name__ == "__main__":
    seconds, nanoseconds = time.time, time.time_ns
    offsets = itertools.cycle((0, HOUR, -HOUR))
    time.time = lambda: seconds() + next(offsets)
    time.time_ns = lambda: nanoseconds() + next(offsets) * 1_000_000_000
    sys.path.insert(0, str(LAUNCHER.parent))
    runpy.run_path(str(LAUNCHER), run_name="__main__")
