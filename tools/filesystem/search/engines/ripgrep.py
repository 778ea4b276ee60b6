"""ripgrep as an engine: it is given our list of files and tells line numbers, nothing else.

It never decides what is searched (ignore files have one meaning, ours) and never delivers text: lines that are shown
are read through the workspace, so a folder exchanged for a link while it searches discloses nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines.child import Child, running
from tools.filesystem.search.engines.engine import EngineFailedError, Hits, Query
from tools.filesystem.workspace import contains

_PROGRAM = "rg.exe" if os.name == "nt" else "rg"

_OPTIONS = (
    "--no-config",
    "--no-ignore",
    "--hidden",
    "--text",  # what is binary is decided by us, for all engines alike
    "--no-messages",
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--null",
    "--max-columns=1",  # the text of a line is left out
    "--color=never",
    "--no-mmap",  # a file cut short meanwhile would end the process
)

_ERROR = 2
"""Exit code of ripgrep for a failure, also if it is only that a file has gone."""


def find_ripgrep(roots: Sequence[str]) -> str | None:
    """The ripgrep binary: from `PATH`, never from inside a root; else the one installed beside our Python.

    Args:
        roots: Real paths of the workspace's folders, where anybody may have put a program.
    """
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if not os.path.isabs(folder):
            continue
        program = os.path.join(folder, _PROGRAM)
        real = (os.path.realpath(folder), os.path.realpath(program))
        if _is_program(program) and not any(contains(root, path) for root in roots for path in real):
            return program
    beside = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    return beside if sys.executable and _is_program(beside) else None


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


class RipgrepEngine:
    """Runs one process for each list of files.

    Args:
        program: Absolute path of the binary.
    """

    name = "ripgrep"

    def __init__(self, program: str) -> None:
        self._program = program

    def search(
        self, folder: str, files: Sequence[str], query: Query, most: int | None, deadline: Deadline, *, ordered: bool
    ) -> Generator[Hits]:
        """Search files, in parallel unless they must come in order."""
        indexes = {os.fsencode(path): index for index, path in enumerate(files)}
        # A lone dash would mean the standard input.
        names = [b"./-" if path == b"-" else path for path in indexes]
        indexes.setdefault(b"./-", indexes.get(b"-", 0))
        options = [*_OPTIONS, "--ignore-case" if query.ignore_case else "--case-sensitive"]
        options += [f"--max-count={most}"] if most is not None else []
        options += ["--threads=1"] if ordered else []
        arguments = [self._program, *options, "-e", query.pattern.written(), "--", *names]
        with running(arguments, folder, deadline) as child:
            for path, lines in _grouped(_records(child)):
                if deadline.check():
                    return
                yield Hits(indexes[path], lines)
            deadline.check()
            if child.was_killed:
                return
            code, said = child.finish()
            if code < 0 or (code == _ERROR and said):
                raise EngineFailedError(f"ripgrep ended with {code}: {said[:500]!r}")


def _records(child: Child) -> Iterator[tuple[bytes, int]]:
    """Path and line number of each match, from `path NUL number : rest LF`; a path may hold a line feed."""
    buffer = b""
    while chunk := child.read():
        buffer += chunk
        at = 0
        while (nul := buffer.find(b"\0", at)) >= 0 and (end := buffer.find(b"\n", nul)) >= 0:
            yield buffer[at:nul], int(buffer[nul + 1 : end].partition(b":")[0])
            at = end + 1
        buffer = buffer[at:]


def _grouped(records: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, list[int]]]:
    """The line numbers of each file together: ripgrep finishes one file before it writes of another."""
    current: bytes | None = None
    lines: list[int] = []
    for path, line in records:
        if path != current:
            if current is not None:
                yield current, lines
            current, lines = path, []
        lines.append(line)
    if current is not None:
        yield current, lines
