"""Paired measurements: ours and the SDK's in turn, in one run; what counts is the ratio, not the milliseconds.

python bench/run.py [--rounds N]     exit code 1 if a bar is missed
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.line_client import LineClient  # noqa: E402 - found through the line above

SDK = [sys.executable, str(HERE / "servers" / "sdk_lowlevel.py")]
LAUNCHER = [sys.executable, str(HERE.parent / "coretools_mcp.py"), "serve"]
CALLS = 1500
IN_FLIGHT = 16


@dataclass(frozen=True)
class Row:
    """One figure: a name, the bar, and how to measure one round of it as (ours, theirs)."""

    name: str
    bar: float
    at_least: bool
    measure: Callable[[Path], tuple[float, float]]


def ours(folder: Path) -> list[str]:
    return [sys.executable, str(HERE / "servers" / "ours_with_noop.py"), str(folder)]


def start(folder: Path) -> tuple[float, float]:
    with LineClient([*LAUNCHER, "--workspace", str(folder)]) as mine:
        pass
    with LineClient(SDK) as theirs:
        pass
    return mine.seconds_to_first_answer, theirs.seconds_to_first_answer


def noop_call(folder: Path) -> tuple[float, float]:
    with LineClient(ours(folder)) as mine, LineClient(SDK) as theirs:
        mine.call_median("hello", {"name": "x"}, 200)
        theirs.call_median("hello", {"name": "x"}, 200)
        return mine.call_median("hello", {"name": "x"}, CALLS), theirs.call_median("hello", {"name": "x"}, CALLS)


def read_small(folder: Path) -> tuple[float, float]:
    path = str(folder / "small.txt")
    with LineClient(ours(folder)) as mine, LineClient(SDK) as theirs:
        mine.call_median("read_file", {"absolute_path": path}, 200)
        theirs.call_median("hello", {"name": "x"}, 200)
        taken = mine.call_median("read_file", {"absolute_path": path}, CALLS)
        return taken, theirs.call_median("hello", {"name": "x"}, CALLS)


def in_flight(folder: Path) -> tuple[float, float]:
    with LineClient(ours(folder)) as mine, LineClient(SDK) as theirs:
        mine.calls_per_second("hello", {"name": "x"}, 500, IN_FLIGHT)
        theirs.calls_per_second("hello", {"name": "x"}, 500, IN_FLIGHT)
        rate = mine.calls_per_second("hello", {"name": "x"}, CALLS * 2, IN_FLIGHT)
        return rate, theirs.calls_per_second("hello", {"name": "x"}, CALLS * 2, IN_FLIGHT)


ROWS = [
    Row("start to first answer, of the SDK's minimal server", 1.15, at_least=False, measure=start),
    Row("call without file work, of the SDK's server on its stock transport", 0.6, at_least=False, measure=noop_call),
    Row("read_file of 6 bytes, of the SDK's no-op call", 1.2, at_least=False, measure=read_small),
    Row("calls per second with 16 in flight, of the SDK's", 2.0, at_least=True, measure=in_flight),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "small.txt").write_text("small\n")
        for row in ROWS:
            pairs = [row.measure(folder) for _ in range(rounds)]
            ratio = statistics.median(mine / theirs for mine, theirs in pairs)
            is_met = ratio >= row.bar if row.at_least else ratio <= row.bar
            missed += not is_met
            bound = "at least" if row.at_least else "at most"
            print(f"{'ok  ' if is_met else 'MISS'} {ratio:6.2f}  ({bound} {row.bar:g})  {row.name}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
