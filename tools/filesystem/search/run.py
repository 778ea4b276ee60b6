"""Searching the content of files: which files, by which engine, and which of the matches are shown.

The files come from the one walk, so ignore files mean here what they mean everywhere, and they are searched while it
goes on. The first are searched here: that is quicker than starting a process, and a frequent pattern has all its
matches there. Of a large tree ripgrep tells which files can match, on a walk of its own that ours has to agree with
(`narrowing`); only those are looked into. Where that is not possible, all others go to an engine in batches that grow.
Whatever the engine, the answer is the same, in the order of the paths.
"""

from __future__ import annotations

import heapq
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.starts import Start
from tools.filesystem.finding.walk import Everything, FolderFiles, Selection, Walk
from tools.filesystem.search.batches import MAX_FILES, Batches, grouped
from tools.filesystem.search.engines.chain import Begun, Chain
from tools.filesystem.search.engines.engine import Engine, Hits, Query, Runaways, Tally
from tools.filesystem.search.engines.in_process import InProcessEngine
from tools.filesystem.search.engines.ripgrep import RipgrepEngine, find_ripgrep
from tools.filesystem.search.engines.worker import WorkerEngine, Workers
from tools.filesystem.search.narrowing import Narrower, Narrowing
from tools.filesystem.workspace import Location, Workspace

SMALL_TREE = 150
"""Up to so many files our own engine is quicker than starting ripgrep, which takes some five milliseconds."""

FIRST_FILES = 16
"""Files searched before a process is started; if a pattern is in one of them, the other first ones are as well."""

FIRST_BATCH = 1_000
"""Files of the first batch that leaves the process."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is to be searched below one folder.

    Args:
        folder: The folder.
        groups: The files, by folder, in the order of their paths; perhaps found only as they are asked for.
        walk: The walk that finds them, if it is for everything below the folder.
    """

    folder: Location
    groups: Iterable[FolderFiles]
    walk: Walk | None = None


def parts_of(walk: Walk, starts: Sequence[Start], selection: Selection) -> Iterator[Part]:
    """What is to be searched below every start, or the one file that a start is.

    Raises:
        OSError: A start cannot be read; also as its groups are asked for.
        ToolError: `cancelled`, and why a file that was named outright cannot be read.
    """
    roots = [start.location.path for start in starts]
    for start in starts:
        if start.is_file:
            folder, name = os.path.split(start.location.path)
            with walk.workspace.open_file(start.location):
                pass  # what was named outright has to be readable
            yield Part(walk.workspace.locate(folder), [FolderFiles("", [name], is_whole=False)])
        else:
            groups = walk.folders(start.location, selection, roots)
            yield Part(start.location, groups, walk if isinstance(selection, Everything) else None)


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


_Step = tuple[Sequence[Hits], str | None]
"""More hits, and the path before which nothing comes any more; `None` if nothing comes at all."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept from one search to the next."""

    workers: Workers = field(default_factory=Workers)
    narrower: Narrower = field(default_factory=Narrower)


class Search:
    """One search with whatever engines it takes.

    Args:
        workspace: Opens the folders for our own engine; no program from inside its roots is run.
        deadline: Budget and cancellation.
        kept: What is kept from search to search.
    """

    def __init__(self, workspace: Workspace, deadline: Deadline, kept: Kept) -> None:
        self._deadline = deadline
        self._kept = kept
        self._own = InProcessEngine(workspace)
        self._workspace = workspace
        self.used: set[str] = set()
        """Names of the engines that have searched."""
        self.tally = Tally()
        """What became of the files; in a search that ended early, of those that it came to."""
        self.runaways = Runaways()
        """Files that were not searched, since the pattern took too long on them; too many of them end the search."""
        self.timed_out = False

    @cached_property
    def _ripgrep(self) -> str | None:
        return find_ripgrep(self._workspace.roots)

    def _is_over(self) -> bool:
        """Whether no more is searched."""
        return self._deadline.check() or self.runaways.are_too_many

    def engines(self, query: Query) -> list[Engine]:
        """The engines for many files, the next for where one fails."""
        own: Engine = WorkerEngine(self._kept.workers, self.runaways) if query.width is None else self._own
        return [RipgrepEngine(self._ripgrep), own] if self._ripgrep else [own]

    def find(self, parts: Iterable[Part], query: Query, exclude: Query | None) -> Generator[FileHits]:
        """The files with matches, in the order of their paths. Afterwards `timed_out` tells whether that is all.

        Args:
            parts: What to search.
            query: What to search for.
            exclude: Lines that match this too are left out.

        Raises:
            OSError: A folder where the search begins cannot be read.
            ToolError: `grep_execution_error`, `cancelled`.
        """
        asked = replace(query, most=None) if exclude else query
        for part in parts:
            with closing(self._found(part, asked, exclude)) as found:
                for hit in found:
                    yield FileHits(part.folder, hit.path, hit.lines[: query.most])
            if self._is_over():
                break
        self.timed_out = self._deadline.check()

    def _found(self, part: Part, query: Query, exclude: Query | None) -> Generator[Hits]:
        """The hits of one part in order: each as soon as nothing can come before it any more."""
        held: list[Hits] = []
        with closing(self._steps(part, query, exclude)) as steps:
            for found, frontier in steps:
                for hit in found:
                    heapq.heappush(held, hit)
                while held and (frontier is None or held[0].path < frontier):
                    yield heapq.heappop(held)
        while held:  # the time did not suffice
            yield heapq.heappop(held)

    def _steps(self, part: Part, query: Query, exclude: Query | None) -> Generator[_Step]:
        """The first files, then the others: ripgrep tells which of them can match, if it can."""
        before, walk = replace(self.tally), part.walk
        left_out = walk.left_out if walk else None
        batches = Batches(part.folder, part.groups)
        is_found = yield from self._here(batches, query, exclude, FIRST_FILES)
        if is_found:  # perhaps so often that this is all that is wanted
            yield from self._here(batches, query, exclude, SMALL_TREE - FIRST_FILES)
        few = 0 if is_found else SMALL_TREE - FIRST_FILES
        narrowing = self._narrowing(part, batches, query, few)
        with closing(narrowing) if narrowing else nullcontext():
            yield from self._here(batches, query, exclude, few)
            if narrowing and query.width is None:
                yield from self._elsewhere(batches, query, exclude, most=1)
            narrowed = narrowing.result() if narrowing and not self._is_over() else None
        if narrowed is None or walk is None or left_out is None:
            yield from self._elsewhere(batches, query, exclude)
            return
        walk.left_out = left_out + narrowed.left_out
        self.used.add(RipgrepEngine.name)
        others = Batches(part.folder, grouped(set(narrowed.paths).difference(batches.taken())))
        try:
            yield from self._here(others, query, exclude, SMALL_TREE)
            yield from self._elsewhere(others, query, exclude)
        finally:
            self.tally = Tally(before.searched + narrowed.searched, before.huge + narrowed.huge)

    def _narrowing(self, part: Part, batches: Batches, query: Query, few: int) -> Narrowing | None:
        """Let ripgrep find what can match, unless there are only a few more files; meanwhile we go on."""
        few = FIRST_BATCH if query.width is None else few
        narrower = self._kept.narrower
        if part.walk is None or batches.at_end or self._is_over():
            return None
        if not narrower.expects_much(part.walk, part.folder) and not batches.holds_more_than(few):
            return None
        return narrower.begin(self._ripgrep, part.walk, part.folder, query) if self._ripgrep else None

    def _here(self, batches: Batches, query: Query, exclude: Query | None, most: int) -> Generator[_Step, None, bool]:
        """Search the first files in this thread, so many at most, if nothing can run away; whether there are hits."""
        is_found = False
        if query.width is None or (exclude and exclude.width is None):
            return is_found
        for batch in batches.first(most):
            self.used.add(self._own.name)
            run = self._own.start(batch, query, self._deadline)
            with closing(run.hits()) as hits:
                for hit in hits:
                    is_found = True
                    # What comes later in this folder has a later path.
                    behind = f"{hit.path}\0"
                    frontier = batches.frontier
                    kept = self._without(batch.folder, [hit], exclude, [self._own])
                    yield kept, behind if frontier is None else min(behind, frontier)
            self._count(run.tally)
            if self._is_over():
                break
            yield [], batches.frontier
        return is_found

    def _elsewhere(
        self, batches: Batches, query: Query, exclude: Query | None, most: int | None = None
    ) -> Generator[_Step]:
        """Search further files in batches, so many at most; while some are searched, the next are found."""
        if batches.at_end or self._is_over():
            return
        chain = Chain(self.engines(query), query, self._deadline)
        excluding = self.engines(exclude) if exclude else ()
        running: deque[tuple[Begun, str | None]] = deque()

        def oldest() -> _Step:
            begun, frontier = running.popleft()
            return self._without(begun.batch.folder, chain.hits(begun), exclude, excluding), frontier

        try:
            for batch in islice(batches.growing(FIRST_BATCH), most):
                if self._is_over():
                    break
                while len(running) >= chain.at_once:
                    yield oldest()
                running.append((chain.start(batch), batches.frontier))
            while running:
                yield oldest()
        finally:
            for begun, _ in running:
                begun.run.close()
            self.used |= chain.used
            self._count(chain.tally)

    def _count(self, tally: Tally) -> None:
        self.tally.searched += tally.searched
        self.tally.huge += tally.huge

    def _without(
        self, folder: Location, hits: Sequence[Hits], exclude: Query | None, engines: Sequence[Engine]
    ) -> Sequence[Hits]:
        """The hits without the lines that another query finds."""
        if exclude is None or not hits:
            return hits
        chain = Chain(engines, exclude, self._deadline)
        excluded: dict[str, frozenset[int]] = {}
        for batch in Batches(folder, grouped(hit.path for hit in hits)).growing(MAX_FILES):
            excluded.update({hit.path: frozenset(hit.lines) for hit in chain.hits(chain.start(batch))})
        self.used |= chain.used
        if self._is_over():
            return []  # what would have to be left out of them is not known
        unknown = {file.path for file in self.runaways.files if file.folder == folder and file.query is exclude}
        kept = (
            Hits(hit.path, [line for line in hit.lines if line not in excluded.get(hit.path, ())])
            for hit in hits
            if hit.path not in unknown
        )
        return [hit for hit in kept if hit.lines]
