"""Our own engine, in the worker thread of the call: for patterns that cannot run away."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines.engine import EngineFailedError, Hits, Query
from tools.filesystem.search.engines.scan import Scanner
from tools.filesystem.workspace import Location, Workspace


class _OutOfTimeError(Exception):
    """Ends the search of a file."""


class InProcessEngine:
    """Reads each file through the workspace and searches it here.

    Args:
        workspace: Opens the files.
    """

    name = "in-process"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def search(
        self, folder: str, files: Sequence[str], query: Query, most: int | None, deadline: Deadline, *, ordered: bool
    ) -> Generator[Hits]:
        """Search files one after the other."""
        del ordered
        if query.width is None:
            raise EngineFailedError("the pattern may take more than linear time")
        try:
            start = self._workspace.locate(folder)
        except ToolError:
            return  # it has gone, or was exchanged
        scanner = Scanner(
            query.pattern.written(),
            query.pattern.written(tolerant=True),
            ignore_case=query.ignore_case,
            needle=query.needle,
            width=query.width,
        )

        def checkpoint() -> None:
            if deadline.check():
                raise _OutOfTimeError

        try:
            for index, path in enumerate(files):
                checkpoint()
                lines = self._lines(scanner, self._workspace.below(start, path), most, checkpoint)
                if lines:
                    yield Hits(index, lines)
        except _OutOfTimeError:
            return

    def _lines(
        self, scanner: Scanner, location: Location, most: int | None, checkpoint: Callable[[], None]
    ) -> list[int]:
        try:
            with self._workspace.open_file(location) as opened:
                return scanner.lines(opened.stream.read, most, checkpoint)
        except OSError:
            return []
        except ToolError as error:
            if error.code is ToolErrorType.CANCELLED:
                raise
            return []  # it has gone, or may not be read
