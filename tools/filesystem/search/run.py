"""Searching the content of files: which files, by which engine, and which of the matches are shown.

The files come from the one walk, so ignore files mean here what they mean everywhere. They are searched in the order
of their paths, in batches that grow: a frequent pattern ends after the first, a rare one soon keeps all processors
busy. Whatever the engine, the answer is the same.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.starts import Start
from tools.filesystem.finding.walk import Selection, Walk
from tools.filesystem.search.engines.engine import Engine, EngineFailedError, Hits, Query
from tools.filesystem.search.engines.in_process import InProcessEngine
from tools.filesystem.search.engines.ripgrep import RipgrepEngine, find_ripgrep
from tools.filesystem.search.engines.worker import WorkerEngine
from tools.filesystem.workspace import Location, Workspace

logger = logging.getLogger(__name__)

SMALL_TREE = 300
"""Up to so many files our own engine is quicker than starting ripgrep."""

MAX_FILE_BYTES = 100_000_000
"""Larger files are not searched; the result says how many."""

FIRST_BATCH = 500
"""Files searched strictly in order, so that the search can end with the last match that is wanted."""

MAX_BATCH_FILES = 20_000
MAX_BATCH_BYTES = 500_000 if os.name == "posix" else 24_000
"""Bytes of paths on one command line: a quarter of what Linux takes, and what Windows takes."""


@dataclass(frozen=True, slots=True)
class FileList:
    """The files to search below one folder.

    Args:
        folder: The folder.
        files: Paths below it, sorted.
    """

    folder: Location
    files: Sequence[str]


@dataclass(slots=True)
class Listing:
    """All files to search.

    Args:
        lists: One for each folder searched.
        huge: Files too large to be searched.
    """

    lists: list[FileList] = field(default_factory=list[FileList])
    huge: int = 0


def list_files(walk: Walk, starts: Sequence[Start], selection: Selection) -> Listing:
    """The files to search, below every start or the one file that a start is.

    Raises:
        OSError: A start cannot be read.
        ToolError: `cancelled`.
    """
    listing = Listing()
    roots = [start.location.path for start in starts]
    for start in starts:
        if start.is_file:
            folder, name = os.path.split(start.location.path)
            listing.lists.append(FileList(walk.workspace.locate(folder), (name,)))
            continue
        files: list[str] = []
        for found in walk.files(start.location, selection, roots):
            if found.info is None:
                continue  # it has gone meanwhile
            if found.info.st_size > MAX_FILE_BYTES:
                listing.huge += 1
            else:
                files.append(found.path)
        files.sort()
        listing.lists.append(FileList(start.location, files))
    return listing


@dataclass(frozen=True, slots=True)
class FileHits:
    """The matching lines of one file.

    Args:
        folder: The folder searched.
        path: The file below it.
        lines: Line numbers from 1, rising.
    """

    folder: Location
    path: str
    lines: Sequence[int]


class Search:
    """One search with whatever engines it takes.

    Args:
        workspace: Opens the files for our own engine; no program from inside its roots is run.
        deadline: Budget and cancellation.
    """

    def __init__(self, workspace: Workspace, deadline: Deadline) -> None:
        self._workspace = workspace
        self._deadline = deadline
        self.used: set[str] = set()
        self.timed_out = False

    def engines(self, query: Query, files: int) -> list[Engine]:
        """The engines for a query, the next for where one fails."""
        own = WorkerEngine() if query.width is None else InProcessEngine(self._workspace)
        if query.width is not None and files <= SMALL_TREE:
            return [own]
        program = find_ripgrep(self._workspace.roots)
        return [RipgrepEngine(program), own] if program else [own]

    def find(self, listing: Listing, query: Query, exclude: Query | None, most: int | None) -> Generator[FileHits]:
        """The files with matches, in the order of their paths. Afterwards `timed_out` tells whether that is all.

        Args:
            listing: What to search.
            query: What to search for.
            exclude: Lines that match this too are left out.
            most: Lines wanted of each file.

        Raises:
            ToolError: `grep_execution_error`, `cancelled`.
        """
        total = sum(len(part.files) for part in listing.lists)
        engines = self.engines(query, total)
        excluding = self.engines(exclude, total) if exclude else ()
        for part in listing.lists:
            for number, files in enumerate(_batches(part.files)):
                if self._deadline.check():
                    break
                batch = _Batch(part.folder.path, files, engines)
                wanted = None if exclude else most
                with closing(self._hits(batch, query, wanted, ordered=number == 0)) as found:
                    hits = self._without(batch, list(found), exclude, excluding) if exclude else found
                    for hit in hits:
                        yield FileHits(part.folder, files[hit.file], hit.lines[:most])
        self.timed_out = self._deadline.check()

    def _hits(self, batch: _Batch, query: Query, most: int | None, *, ordered: bool) -> Generator[Hits]:
        """The hits of one batch in order; from the next engine where one fails."""
        for engine in batch.engines:
            done = -1
            self.used.add(engine.name)
            try:
                search = engine.search(batch.folder, batch.files, query, most, self._deadline, ordered=ordered)
                with closing(search) as found:
                    for hit in found if ordered else sorted(found):
                        yield hit
                        done = hit.file
            except EngineFailedError as error:
                logger.warning("%s cannot search: %s", engine.name, error)
                self.used.discard(engine.name)
                if done >= 0:
                    raise _failed() from None
            else:
                return
        raise _failed()

    def _without(self, batch: _Batch, hits: Sequence[Hits], exclude: Query, engines: Sequence[Engine]) -> list[Hits]:
        """The hits without the lines that another query finds."""
        again = _Batch(batch.folder, [batch.files[hit.file] for hit in hits], engines)
        excluded: dict[int, set[int]] = {}
        if hits:
            with closing(self._hits(again, exclude, None, ordered=True)) as found:
                excluded = {hit.file: set(hit.lines) for hit in found}
        if self._deadline.check():
            return []  # what would have to be left out is not known
        kept = (
            Hits(hit.file, [line for line in hit.lines if line not in excluded.get(number, ())])
            for number, hit in enumerate(hits)
        )
        return [hit for hit in kept if hit.lines]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some files of one folder, and the engines to try on them."""

    folder: str
    files: Sequence[str]
    engines: Sequence[Engine]


def _failed() -> ToolError:
    return ToolError(
        ToolErrorType.GREP_EXECUTION_ERROR,
        "The search could not be carried out: no search engine could run this pattern here. "
        "Try a simpler pattern, or fixed_strings.",
    )


def _batches(files: Sequence[str]) -> Iterator[Sequence[str]]:
    start = 0
    most = FIRST_BATCH
    while start < len(files):
        end, size = start, 0
        while end < len(files) and end - start < most:
            size += len(files[end]) * (1 if files[end].isascii() else 4) + 9  # UTF-8 at its longest, a pointer
            if size > MAX_BATCH_BYTES and end > start:
                break
            end += 1
        yield files[start:end]
        start, most = end, MAX_BATCH_FILES
