"""ripgrep walks by itself: much quicker than our walk, but by its own reading of the ignore files.

So it also has to tell of every file and folder that it leaves out (`--debug`), and the caller judges each of them. What
it tells is read strictly: a line that is not understood means that nothing is known. That this works with the binary
at hand is tried once, on a small tree of our own.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Self

from tools.contract.context import AbortSignal
from tools.filesystem.child import Child, ChildFailedError, Watch
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.dialect import literal_pattern
from tools.filesystem.search.engines.engine import Query
from tools.filesystem.search.engines.ripgrep import DONE, SEARCHED

MAX_TOLD_BYTES = 8_000_000
"""What ripgrep may tell of what it leaves out: some 40,000 files. Our own walk is better where there are more."""

MAX_FOUND_BYTES = 32_000_000
"""What it may tell of files that match: several hundred thousand of them."""

_OPTIONS = (
    "--no-config",
    "--no-ignore-dot",
    "--no-ignore-global",
    "--hidden",
    "--text",  # what is binary is decided by us, for all engines alike
    "--no-mmap",  # a file cut short meanwhile would end the process
    "--color=never",
    "--files-with-matches",
    "--null",
    "--stats",
    "--debug",
)

_LEFT_OUT = re.compile(
    rb"(?:rg: )?DEBUG\|ignore::walk\|[^|]*:\d+: ignoring \./(.+): Ignore\(IgnoreMatch\((?:Override|Gitignore)\(.*\)\)\)"
)
_TOO_LARGE = re.compile(rb"(?:rg: )?DEBUG\|ignore::walk\|[^|]*:\d+: ignoring \./(.+): \d+ bytes")
_NOT_LEFT_OUT = re.compile(
    rb"(?:rg: )?DEBUG\|(?:(?!ignore::walk\|)[a-z_:]+\|.*|ignore::walk\|[^|]*:\d+: whitelisting .*)"
)
_BYTES = re.compile(rb"^(\d+) bytes searched$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OwnWalk:
    """What ripgrep found on its own walk.

    Args:
        matching: Files that match, in no order.
        left_out: Files and folders that it left out by their name or an ignore file.
        too_large: Files that it left out by their size.
        searched: The number of files searched.
        size: Bytes searched; of a matching file only those up to the match.
    """

    matching: Sequence[str]
    left_out: Collection[str]
    too_large: Collection[str]
    searched: int
    size: int


class RipgrepWalk:
    """ripgrep searches a folder, all that is below it and not left out; from now on, by itself.

    Args:
        program: Absolute path of the binary.
        folder: Real path of the folder.
        options: What is left out beside what git's ignore files say.
        query: What to search for.
        deadline: When it is ended.

    Raises:
        ChildFailedError: It does not start.
    """

    def __init__(self, program: str, folder: str, options: Sequence[str], query: Query, deadline: Deadline) -> None:
        case = "--ignore-case" if query.ignore_case else "--case-sensitive"
        arguments = [program, *_OPTIONS, case, *options, "-e", query.pattern.written(), "--", "./"]
        self._deadline = deadline
        with ExitStack() as started:
            # To take what is told line by line from a pipe would cost a tenth of the search.
            self._child = started.enter_context(Child(arguments, folder, most_said=MAX_TOLD_BYTES))
            started.enter_context(Watch(self._child, deadline))
            self._started = started.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def found(self) -> OwnWalk | None:
        """What it has found, once it is done; `None` if that is not known for certain, or the time did not suffice.

        Raises:
            ToolError: `cancelled`.
        """
        output = bytearray()
        try:
            while some := self._child.read():
                output += some
                if len(output) > MAX_FOUND_BYTES:
                    return None
            self._deadline.check()
            code, told = self._child.finish()
        except (OSError, ChildFailedError):
            return None
        return _understood(bytes(output), told) if code in DONE and not self._child.says_too_much else None

    def close(self) -> None:
        """End it, wherever it is."""
        self._started.close()


def _understood(output: bytes, told: bytes) -> OwnWalk | None:
    *matching, end = output.split(b"\0")
    searched, size = SEARCHED.search(end), _BYTES.search(end)
    left_out: set[str] = set()
    too_large: set[str] = set()
    for line in told.removesuffix(b"\n").split(b"\n"):
        if _NOT_LEFT_OUT.fullmatch(line):
            continue
        found = _LEFT_OUT.fullmatch(line) or _TOO_LARGE.fullmatch(line)
        path = _path_in(found[1]) if found else None
        if found is None or path is None:
            return None
        (left_out if found.re is _LEFT_OUT else too_large).add(path)
    if not searched or not size:
        return None
    paths = [os.fsdecode(path).replace(os.sep, "/").removeprefix("./") for path in matching]
    return OwnWalk(paths, left_out, too_large, int(searched[1]), int(size[1]))


def _path_in(told: bytes) -> str | None:
    """A path that ripgrep tells of, if it is certain where it ends and how it is spelled."""
    if b": Ignore(" in told:
        return None
    try:
        path = told.decode()
    except UnicodeDecodeError:
        return None
    return None if "\ufffd" in path else path.replace(os.sep, "/")


@cache
def tells_what_it_leaves_out(program: str) -> bool:
    """Whether this binary tells what we have to know, in the words that we understand. Tried once.

    Args:
        program: Its absolute path.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="coretools-probe-") as folder:
            for path, text in _PROBE.items():
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                with open(os.path.join(folder, path), "w", encoding="utf-8") as stream:
                    stream.write(text)
            query = Query(literal_pattern("foo"), ignore_case=False)
            deadline = Deadline(AbortSignal(), _PROBE_SECONDS)
            with RipgrepWalk(program, folder, ["--glob=!.git", "--max-filesize=99"], query, deadline) as walk:
                found = walk.found()
    except (OSError, ChildFailedError):
        return False
    return found == OwnWalk(["b/kept"], {".git", "a", "b/c", "b/hidden"}, {"b/large"}, searched=3, size=_PROBE_SIZE)


_PROBE = {
    ".git/HEAD": "foo\n",
    ".gitignore": "hidden\n/a\n",
    "a/d": "foo\n",
    "b/.gitignore": "c/\n",
    "b/c/d": "foo\n",
    "b/hidden": "foo\n",
    "b/kept": "foo\n",
    "b/large": "foo\n" * 25,
}
"""Files of the trial, and what is in them."""

_PROBE_SIZE = sum(len(_PROBE[path]) for path in (".gitignore", "b/.gitignore", "b/kept"))
_PROBE_SECONDS = 10.0
