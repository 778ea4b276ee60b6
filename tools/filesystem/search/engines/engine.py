"""What an engine is asked and what it answers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.cost import bounds, required_text
from tools.filesystem.search.tree import Pattern


@dataclass(frozen=True)
class Query:
    """What to search for.

    Args:
        pattern: Read from what the model wrote.
        ignore_case: Whether upper and lower case are the same.
    """

    pattern: Pattern
    ignore_case: bool

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
        file: Which of the files, from 0.
        lines: Line numbers from 1, rising.
    """

    file: int
    lines: list[int]


class EngineFailedError(Exception):
    """The engine cannot do this search; another one may. The text is for the log."""


class Engine(Protocol):
    """Finds matching lines."""

    @property
    def name(self) -> str:
        """What it is called in facts and logs."""
        ...

    def search(
        self, folder: str, files: Sequence[str], query: Query, most: int | None, deadline: Deadline, *, ordered: bool
    ) -> Generator[Hits]:
        """Search files.

        Ends early, without a sign, when the deadline is over. An iterator that is closed leaves nothing behind.

        Args:
            folder: Where the files lie; a real path.
            files: Their paths below it.
            query: What to search for.
            most: Lines wanted of each file, or `None` for all.
            deadline: Budget and cancellation.
            ordered: Whether the files must come in their order; other orders may be faster.

        Raises:
            EngineFailedError: It cannot do this search.
            ToolError: `cancelled`.
        """
        ...
