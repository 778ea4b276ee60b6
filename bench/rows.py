"""What one figure of the bench is, and what it is measured with."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.line_client import Start
from bench.trees import Tree, ready

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "coretools_mcp.py"
SERVERS = ROOT / "bench" / "servers"


class Pair(NamedTuple):
    """One round.

    Args:
        ours: Our figure, in the unit of the row.
        theirs: The floor's, or another server's; `None` where the figure counts by itself.
        note: What people should know besides.
    """

    ours: float
    theirs: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """What the bar is for: the ratio, or our figure where there is nothing beside it."""
        return self.ours if self.theirs is None else self.ours / self.theirs


Round = Callable[[], Pair]
"""Measures one round, ours and theirs in turn."""

MEGABYTE = 1_000_000


class NotRunError(Exception):
    """A row cannot be measured on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What rows are measured with.

    Args:
        trees: The folder that keeps the trees.
        scratch: An empty folder that goes away at the end.
    """

    trees: Path
    scratch: Path

    def tree(self, tree: Tree) -> Path:
        """The folder of a tree."""
        return ready(tree, self.trees)

    def folder(self, name: str) -> Path:
        """A new folder for the files of one row."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def server(self, workspace: Path, *options: str, python: str = PYTHON) -> Start:
        """Our server as it is installed, over stdio."""
        return Start([python, str(LAUNCHER), "serve", "--workspace", str(workspace), *options])


Opener = Callable[[Scene], AbstractContextManager[Round]]
"""Prepares the measuring of a row for as long as the context lasts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Args:
        name: What is measured, and beside what.
        bar: What the median of its rounds must reach.
        open: Prepares the measuring (starts servers, makes files, checks once that the answers are right) for as long
            as the context lasts.
        unit: Of the figures of both sides.
        at_least: Whether more is better.
        informative: Whether a missed bar is only shown.
        most_rounds: For rows whose one round is many measurements already.
    """

    name: str
    bar: float
    open: Opener
    unit: str = "ms"
    at_least: bool = False
    informative: bool = False
    most_rounds: int | None = None

    def measure(self, scene: Scene, rounds: int) -> list[Pair]:
        """All rounds of this row."""
        with self.open(scene) as one_round:
            return [one_round() for _ in range(min(rounds, self.most_rounds or rounds))]

    def is_met(self, value: float) -> bool:
        """Whether a median is good enough."""
        return value >= self.bar if self.at_least else value <= self.bar


def in_turn(ours: Callable[[], float], theirs: Callable[[], object], times: int = 1) -> Pair:
    """One round: ours and theirs alternating, the median of each.

    Args:
        ours: Milliseconds of one call.
        theirs: The floor; the clock runs while it does.
        times: How often each; more than once for what takes only a few milliseconds.
    """
    mine: list[float] = []
    floors: list[float] = []
    for _ in range(times):
        mine.append(ours())
        started = time.perf_counter()
        theirs()
        floors.append((time.perf_counter() - started) * 1000)
    return Pair(statistics.median(mine), statistics.median(floors))


def memory_of(pid: int, figure: str) -> float:
    """Megabytes of a process: `VmRSS` is what it has in memory, `VmHWM` the most it had since the last reset.

    Raises:
        NotRunError: Only Linux tells it.
    """
    if sys.platform != "linux":
        raise NotRunError("memory is measured on Linux only")
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{figure}:")[2].split()[0]) * 1024 / MEGABYTE


def ripgrep() -> str:
    """The ripgrep to measure against: the one our server finds, too.

    Raises:
        NotRunError: There is none.
    """
    found = shutil.which("rg") or shutil.which("rg", path=str(Path(PYTHON).parent))
    if found is None:
        raise NotRunError("there is no ripgrep on this machine")
    return found
