"""ripgrep as an engine: it is told which folders and files to look into and tells line numbers, nothing else.

It never decides what is searched (ignore files have one meaning, ours): a folder all of whose files are wanted is
named as such, and searched without those below; of any other, the files are named. What it finds beside the list, for
instance in a file that came up meanwhile, is dropped. It never delivers text: lines that are shown are read through
the workspace, so a folder exchanged for a link while it searches discloses nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from tools.filesystem.child import Child, ChildFailedError, Watch
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.programs import find_program, is_program
from tools.filesystem.search.engines.engine import Batch, EngineFailedError, Hits, Query, Run, Tally
from tools.filesystem.search.engines.scan import MAX_FILE_BYTES, is_huge

_PROGRAM = "rg.exe" if os.name == "nt" else "rg"

_OPTIONS = (
    "--no-config",
    "--no-ignore",
    "--hidden",
    "--max-depth=1",
    "--text",  # what is binary is decided by us, for all engines alike
    "--no-messages",
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--null",
    "--max-columns=1",  # the text of a line is left out
    "--color=never",
    "--no-mmap",  # a file cut short meanwhile would end the process
    f"--max-filesize={MAX_FILE_BYTES}",
    "--stats",  # for the number of files searched
)

SEARCHED = re.compile(rb"^(\d{1,18}) files searched$", re.MULTILINE)
"""What `--stats` tells of the number of files; without it, ripgrep has not come to its end."""

MAX_RECORD_BYTES = 1 << 16
"""More than the longest path and what `--stats` tells take together."""

_LINE_NUMBER = re.compile(rb"([1-9]\d{0,17}):")

DONE = (0, 1)
_ERROR = 2
"""Exit codes of ripgrep: with matches, without, and for a failure, also if it is only that a file has gone."""


def find_ripgrep(roots: Sequence[str]) -> str | None:
    """The ripgrep binary: from `PATH`, never from inside a root; else the one installed beside our Python.

    Args:
        roots: Real paths of the workspace's folders, where anybody may have put a program.
    """
    program = find_program(_PROGRAM, os.environ.get("PATH", ""), roots)
    beside = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    return program or (beside if sys.executable and is_program(beside) else None)


class RipgrepEngine:
    """Runs one process for each batch.

    Args:
        program: Absolute path of the binary.
    """

    name = "ripgrep"
    at_once = 2
    """While one batch is searched, the files of the next are found."""

    def __init__(self, program: str) -> None:
        self._program = program

    def start(self, batch: Batch, query: Query, deadline: Deadline) -> Run:
        """Start a process."""
        options = [*_OPTIONS, "--ignore-case" if query.ignore_case else "--case-sensitive"]
        options += [f"--max-count={query.most}"] if query.most is not None else []
        huge = {path for path in _named_files(batch) if _is_huge(batch, path)}
        # "./" because a lone dash would mean the standard input.
        paths = [f"./{path}" for path in _named(batch) if path not in huge]
        if not paths:
            return _NothingLeft(Tally(huge=len(huge)))
        child = Child([self._program, *options, "-e", query.pattern.written(), "--", *paths], batch.folder.path)
        return RipgrepRun(child, batch, huge, deadline)


def _named(batch: Batch) -> Iterator[str]:
    """The folders and files that ripgrep is told of."""
    for prefix, names, is_whole in batch.groups:
        if is_whole:
            yield prefix
        else:
            yield from (prefix + name for name in names)


def _named_files(batch: Batch) -> Iterator[str]:
    """The files among them, for which ripgrep does not keep to its `--max-filesize`."""
    return (group.prefix + name for group in batch.groups if not group.is_whole for name in group.names)


def _is_huge(batch: Batch, path: str) -> bool:
    return is_huge(os.path.join(batch.folder.path, path))


@dataclass(frozen=True, slots=True)
class _NothingLeft:
    """A batch of which no file is to be searched."""

    tally: Tally

    def hits(self) -> Generator[Hits]:
        """None."""
        yield from ()

    def close(self) -> None:
        """Nothing runs."""


class RipgrepRun:
    """One process of ripgrep.

    Args:
        child: The process.
        batch: What it searches.
        huge: Files of the batch that it was not told of.
        deadline: When it has to be gone.
    """

    def __init__(self, child: Child, batch: Batch, huge: Collection[str], deadline: Deadline) -> None:
        self.tally = Tally(huge=len(huge))
        self._child = child
        self._batch = batch
        self._deadline = deadline
        self._watch = Watch(child, deadline)
        self._rest = b""
        try:
            self._watch.start()
        except ChildFailedError:
            child.close()
            raise

    def hits(self) -> Generator[Hits]:
        """The files with matches, in no order."""
        names = {group.prefix: group.names for group in self._batch.groups}
        wanted: tuple[str, frozenset[str]] = ("", frozenset(names.get("", ())))
        # ripgrep finishes one file before it writes of another.
        for path, records in groupby(self._records(), itemgetter(0)):
            lines = [line for _, line in records]
            if self._deadline.check():
                return
            prefix, slash, name = path.rpartition("/")
            if prefix + slash != wanted[0]:
                wanted = (prefix + slash, frozenset(names.get(prefix + slash, ())))
            if name in wanted[1]:
                yield Hits(path, lines)
        if not self._deadline.check():
            code, said = self._child.finish()
            searched = SEARCHED.search(self._rest)
            if searched is None or not (code in DONE or (code == _ERROR and not said)):
                raise EngineFailedError(f"ripgrep ended with {code}: {said[:500]!r}")
            self._count(int(searched[1]))

    def close(self) -> None:
        """End the process."""
        self._watch.end()
        self._child.close()

    def _records(self) -> Iterator[tuple[str, int]]:
        """Path and line number of each match, from `path NUL number : rest LF`; a path may hold a line feed.

        Raises:
            EngineFailedError: That is not what is written.
        """
        buffer = b""
        path, shown = b"", ""
        while chunk := self._child.read():
            buffer += chunk
            at = 0
            while (nul := buffer.find(b"\0", at)) >= 0 and (end := buffer.find(b"\n", nul)) >= 0:
                if buffer[at:nul] != path:
                    path = buffer[at:nul]
                    shown = os.fsdecode(path).replace(os.sep, "/").removeprefix("./")
                number = _LINE_NUMBER.match(buffer, nul + 1, end)
                if number is None:
                    raise EngineFailedError(f"ripgrep tells no line number: {buffer[at:end][:500]!r}")
                yield shown, int(number[1])
                at = end + 1
            buffer = buffer[at:]
            if len(buffer) > MAX_RECORD_BYTES:
                raise EngineFailedError(f"ripgrep tells no path: {buffer[:500]!r}")
        self._rest = buffer

    def _count(self, searched: int) -> None:
        """Count what was searched, and look at the sizes only where something was not."""
        expected = self._batch.files - self.tally.huge
        self.tally.searched = min(searched, expected)
        if self.tally.searched < expected:
            whole = [group for group in self._batch.groups if group.is_whole]
            paths = (prefix + name for prefix, names, _ in whole for name in names)
            self.tally.huge += sum(_is_huge(self._batch, path) for path in paths)
