"""What an engine is asked and what it answers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import FolderFiles
from tools.filesystem.search.cost import bounds, required_text
from tools.filesystem.search.tree import Pattern
from tools.filesystem.workspace import Location


@dataclass(frozen=True)
class Query:
    """What to search for.

    Args:
        pattern: Read from what the model wrote.
        ignore_case: Whether upper and lower case are the same.
        most: Lines wanted of each file, or `None` for all.
    """

    pattern: Pattern
    ignore_case: bool
    most: int | None = None

    @cached_property
    def needle(self) -> str:
        """A text that every match holds; empty if none is certain."""
        return required_text(self.pattern.tree)

    @cached_property
    def width(self) -> int | None:
        """Characters that a match covers at most, or `None` if matching may take more than linear time."""
        found = bounds(self.pattern.tree)
        return found.width if found else None


class Hits(NamedTuple):
    """The matching lines of one file.

    Args:
        path: The file, below the folder searched.
        lines: Line numbers from 1, rising.
    """

    path: str
    lines: Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some of the files to search.

    Args:
        folder: What the paths start from.
        groups: The files, by folder.
        files: How many there are.
    """

    folder: Location
    groups: Sequence[FolderFiles]
    files: int


@dataclass(slots=True)
class Tally:
    """What became of the files.

    Args:
        searched: Files that were searched.
        huge: Files too large to be searched.
    """

    searched: int = 0
    huge: int = 0


MAX_RUNAWAYS = 2
"""Files on which a pattern may run away before the search is ended: on more of that kind it would, too."""


@dataclass(frozen=True, slots=True)
class Runaway:
    """A file that was not searched to its end, since a pattern took too long on it.

    Args:
        folder: The folder searched.
        path: The file below it.
        query: What was searched for.
    """

    folder: Location
    path: str
    query: Query


@dataclass(slots=True)
class Runaways:
    """Those of one call."""

    files: list[Runaway] = field(default_factory=list[Runaway])

    @property
    def are_too_many(self) -> bool:
        """Whether the search has to end."""
        return len(self.files) >= MAX_RUNAWAYS


class EngineFailedError(Exception):
    """The engine cannot do this search; another one may. The text is for the log."""


class Run(Protocol):
    """A batch that is being searched."""

    @property
    def tally(self) -> Tally:
        """Right once all hits were taken, in a search that had enough time."""
        ...

    def hits(self) -> Generator[Hits]:
        """The files with matches; in the order of the batch if the engine keeps it. To be called once.

        Ends early, without a sign, when the deadline is over.

        Raises:
            EngineFailedError: The engine cannot do this search.
            ToolError: `cancelled`.
        """
        ...

    def close(self) -> None:
        """End it, wherever it is. Nothing is left behind."""
        ...


class Engine(Protocol):
    """Finds matching lines."""

    @property
    def name(self) -> str:
        """What it is called in facts and logs."""
        ...

    @property
    def at_once(self) -> int:
        """How many batches it may be given before the hits of the first are taken."""
        ...

    def start(self, batch: Batch, query: Query, deadline: Deadline) -> Run:
        """Begin to search a batch; what can work by itself does so from now on.

        Args:
            batch: The files.
            query: What to search for.
            deadline: Budget and cancellation.

        Raises:
            ChildFailedError: Its process cannot be run.
            EngineFailedError: It cannot do this search.
        """
        ...
