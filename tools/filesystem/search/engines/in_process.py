"""Our own engine, in the worker thread of the call: for patterns that cannot run away."""

from __future__ import annotations

import os
from collections.abc import Generator

from tools.contract.errors import PathNotInWorkspaceError
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines.engine import Batch, EngineFailedError, Hits, Query, Tally
from tools.filesystem.search.engines.scan import HugeFileError, Scanner
from tools.filesystem.workspace import Workspace


class _OutOfTimeError(Exception):
    """Ends the search of a file."""


class InProcessEngine:
    """Opens each folder through the workspace and searches its files here, in their order.

    Args:
        workspace: Opens the folders.
    """

    name = "in-process"
    at_once = 1

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._scanner: tuple[Query, Scanner] | None = None

    def start(self, batch: Batch, query: Query, deadline: Deadline) -> InProcessRun:
        """Prepare the search; it is done when its hits are asked for."""
        if query.width is None:
            raise EngineFailedError("the pattern may take more than linear time")
        if self._scanner is None or self._scanner[0] is not query:
            self._scanner = (query, _scanner(query, query.width))
        return InProcessRun(self._workspace, batch, self._scanner[1], query.most, deadline)


def _scanner(query: Query, width: int) -> Scanner:
    return Scanner(
        query.pattern.written(),
        query.pattern.written(tolerant=True),
        ignore_case=query.ignore_case,
        needle=query.needle,
        width=width,
    )


class InProcessRun:
    """One batch.

    Args:
        workspace: Opens the folders.
        batch: What is searched.
        scanner: Searches the content of a file.
        most: Lines wanted of each file.
        deadline: Looked at before each file and within long ones.
    """

    def __init__(
        self, workspace: Workspace, batch: Batch, scanner: Scanner, most: int | None, deadline: Deadline
    ) -> None:
        self.tally = Tally()
        self._workspace = workspace
        self._batch = batch
        self._scanner = scanner
        self._most = most
        self._deadline = deadline

    def hits(self) -> Generator[Hits]:
        """The files with matches, in the order of the batch."""
        scanner, most, tally = self._scanner, self._most, self.tally
        for prefix, names, _ in self._batch.groups:
            try:
                opened = self._workspace.open_folder(os.path.join(self._batch.folder.path, prefix.rstrip("/")))
            except (OSError, PathNotInWorkspaceError):
                continue  # it has gone, or was exchanged
            with opened:
                for name in names:
                    try:
                        self._checkpoint(0)
                        lines = scanner.file(opened.named(name), opened.descriptor, most, self._checkpoint)
                    except HugeFileError:
                        tally.huge += 1
                        continue
                    except _OutOfTimeError:
                        return
                    tally.searched += lines is not None
                    if lines:
                        yield Hits(prefix + name, lines)

    def close(self) -> None:
        """Nothing runs by itself."""

    def _checkpoint(self, size: int) -> None:
        del size  # what is searched here takes no longer than its size tells
        if self._deadline.check():
            raise _OutOfTimeError
