"""The rows of the benchmark, and the means to measure them."""

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
from bench.trees import Tree, built_tree

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "coretools_mcp.py"
SERVERS = ROOT / "bench" / "servers"


class Pair(NamedTuple):
    """The result of one round.

    Args:
        ours: Our value, in the unit of the row.
        theirs: The value of the floor or of another server; `None` if there is nothing to compare with.
        note: A note for people.
    """

    ours: float
    theirs: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The value to compare with the bar: the ratio, or our value if there is no other."""
        return self.ours if self.theirs is None else self.ours / self.theirs


Round = Callable[[], Pair]
"""Measures one round: our server and the other in turn."""

MEGABYTE = 1_000_000


class NotRunError(Exception):
    """A row cannot be measured on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The environment of the measurements.

    Args:
        trees: The folder that stores the trees.
        scratch: An empty folder that is deleted at the end.
    """

    trees: Path
    scratch: Path

    def tree(self, tree: Tree) -> Path:
        """Return the folder of a tree."""
        return built_tree(tree, self.trees)

    def folder(self, name: str) -> Path:
        """Return a new folder for the files of one row."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def server(self, workspace: Path, *options: str, python: str = PYTHON) -> Start:
        """Return the command of our server over stdio."""
        return Start([python, str(LAUNCHER), "serve", "--workspace", str(workspace), *options])


Opener = Callable[[Scene], AbstractContextManager[Round]]
"""A context manager that prepares the measurement of a row, and yields a function for one round."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the benchmark.

    Args:
        name: What is measured, and what it is compared with.
        bar: The limit for the median of the rounds.
        open: A context manager that starts servers, makes files, and checks once that the answers are right.
        unit: Unit of the values of both sides.
        at_least: Whether more is better.
        informative: Whether a missed bar is only shown and is no failure.
        most_rounds: Maximum number of rounds, for rows whose rounds consist of many measurements.
    """

    name: str
    bar: float
    open: Opener
    unit: str = "ms"
    at_least: bool = False
    informative: bool = False
    most_rounds: int | None = None

    def measure(self, scene: Scene, rounds: int) -> list[Pair]:
        """Measure all rounds of this row."""
        with self.open(scene) as one_round:
            return [one_round() for _ in range(min(rounds, self.most_rounds or rounds))]

    def is_met(self, value: float) -> bool:
        """Return whether a median is good enough."""
        return value >= self.bar if self.at_least else value <= self.bar


def in_turn(ours: Callable[[], float], theirs: Callable[[], object], times: int = 1) -> Pair:
    """Measure one round: alternate between ours and theirs, and return the medians.

    Args:
        ours: Returns the milliseconds of one call.
        theirs: The floor, which is timed here.
        times: Number of repetitions; more than one for work of only a few milliseconds.
    """
    own_times: list[float] = []
    floors: list[float] = []
    for _ in range(times):
        own_times.append(ours())
        start = time.perf_counter()
        theirs()
        floors.append((time.perf_counter() - start) * 1000)
    return Pair(statistics.median(own_times), statistics.median(floors))


def memory_of(pid: int, figure: str) -> float:
    """Return a memory figure of a process in megabytes: `VmRSS` is current, `VmHWM` the peak since the last reset.

    Raises:
        NotRunError: This system is not Linux.
    """
    if sys.platform != "linux":
        raise NotRunError("memory is measured on Linux only")
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{figure}:")[2].split()[0]) * 1024 / MEGABYTE


def ripgrep() -> str:
    """Return the path of the ripgrep to compare with, which our server also finds.

    Raises:
        NotRunError: There is no ripgrep.
    """
    path = shutil.which("rg") or shutil.which("rg", path=str(Path(PYTHON).parent))
    if path is None:
        raise NotRunError("there is no ripgrep on this machine")
    return path
