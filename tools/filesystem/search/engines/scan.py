"""The lines of a file that an expression matches. Standard library only: it is also run as a script of its own.

As a script it serves one search after the other until its input ends: a JSON line with what to search for, then as
many bytes of paths, each ended by NUL, as that line says. It writes `number of the path, colon, line numbers with
commas` for each file with matches, and at the end a JSON line with what became of the files. Before it searches some
text it writes `number of the path, bytes of that text, files searched so far, files too large so far`, and when it is
done with the file an empty line. It is meant to be killed when it takes too long, which is why expressions that may
run away are searched for here.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

BLOCK_BYTES = 1 << 17
"""Read and searched at once: the least that keeps the calls cheap, the most that one uninterruptible match sees."""

WINDOW_CHARS = 1 << 16
"""A longer line is searched in overlapping pieces, where the expression's width is known."""

LONG_LINE_BYTES = 1 << 19
"""A longer line is not held in memory, where the expression's width is known."""

MAX_FILE_BYTES = 100_000_000
"""Larger files are not searched; the result says how many."""

_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_CHARACTER = 4
_FIRST_LEAD = 0xC0
_FIRST_CONTINUATION = 0x80
"""Bytes of UTF-8: how many a character has, the least that begins several, the least that follows one."""

_FOLDS_BEYOND_ASCII = frozenset(b"iks")
"""ASCII letters that are also the lower case of other characters (dotted I, Kelvin sign, long s)."""

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)

Read = Callable[[int], bytes]

Checkpoint = Callable[[int], None]
"""Told how many bytes are searched next."""


class HugeFileError(Exception):
    """The file is larger than `MAX_FILE_BYTES`."""


def is_huge(path: str) -> bool:
    """Whether a file is too large to be searched; a link is not followed, and what cannot be looked at is not."""
    try:
        return os.lstat(path).st_size > MAX_FILE_BYTES
    except OSError:
        return False


class Scanner:
    """Finds matching lines in one file after the other.

    Args:
        expression: For valid UTF-8; matches within a line.
        tolerant: The same for text with undecodable bytes, which are surrogates.
        ignore_case: Whether upper and lower case are the same.
        needle: Text that every match holds, or nothing; what does not hold it is not searched.
        width: Characters that a match covers at most (a repetition at its end aside), or `None` if not known.
    """

    def __init__(self, expression: str, tolerant: str, *, ignore_case: bool, needle: str, width: int | None) -> None:
        flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
        self._strict = re.compile(expression, flags)
        self._tolerant = (tolerant, flags)
        self._ignore_case = ignore_case
        self.width = width
        self._needle = needle.encode() if needle.isascii() or not ignore_case else b""
        if ignore_case:
            self._needle = self._needle.lower()
        self._is_safe_needle = not (ignore_case and _FOLDS_BEYOND_ASCII.intersection(self._needle))

    def file(
        self, path: str | bytes, folder: int | None, most: int | None, checkpoint: Checkpoint
    ) -> Sequence[int] | None:
        """Open a file and search it, a link in its place not followed.

        Args:
            path: The file.
            folder: Descriptor of the folder that the path starts from.
            most: As for `lines`.
            checkpoint: As for `lines`.

        Returns:
            As `lines`; `None` if there is no regular file that can be read.

        Raises:
            HugeFileError: It is too large.
        """
        try:
            descriptor = os.open(path, _FLAGS, dir_fd=folder)
        except OSError:
            return None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return None
            if info.st_size > MAX_FILE_BYTES:
                raise HugeFileError
            first = os.read(descriptor, min(info.st_size + 1, BLOCK_BYTES))
            if len(first) == info.st_size and first[:2] not in _UTF_16_MARKS and not self._may_match(first):
                return ()  # most files end here
            read = partial(os.read, descriptor)
            return self.lines(read, most, checkpoint, first)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def lines(self, read: Read, most: int | None, checkpoint: Checkpoint, first: bytes | None = None) -> list[int]:
        """The numbers of the matching lines, from 1.

        Args:
            read: Reads up to so many bytes of the file; nothing at its end.
            most: How many are wanted.
            checkpoint: Called before each block is searched; what it raises ends the search.
            first: What was read already.
        """
        found: list[int] = []
        number = 1
        cut = _CutLine(self)
        for block, is_cut in _blocks(read, first, cuts=self.width is not None):
            if block:
                checkpoint(len(block))
            whole_lines = block
            if cut.is_open or is_cut:
                end = len(block) if is_cut else block.find(b"\n") + 1 or len(block)
                if cut.matches(block[:end], goes_on=is_cut):
                    found.append(number)
                number += block.count(b"\n", 0, end)
                whole_lines = block[end:]
            if most is not None and len(found) >= most:
                break
            if whole_lines and self._may_match(whole_lines):
                wanted = None if most is None else most - len(found)
                found += (number + line for line in self._matching(whole_lines, wanted))
            number += whole_lines.count(b"\n")
        return found

    def _may_match(self, block: bytes) -> bool:
        if not self._needle or not (self._is_safe_needle or block.isascii()):
            return True
        return self._needle in (block.lower() if self._ignore_case else block)

    def piece(self, data: bytes, at: int, *, goes_on: bool) -> tuple[int, str, int]:
        """Search a piece of one line: where the first match begins, or -1; the text; where to go on in it."""
        expression, text = self._decoded(data)
        if not self._may_match(data):
            return -1, text, max(0, len(text) - (self.width or 0) - 2)
        start, at = self._search(expression, text, at, goes_on=goes_on)
        return start, text, at

    def _decoded(self, block: bytes) -> tuple[re.Pattern[str], str]:
        """The text of a block, and the expression for it."""
        try:
            return self._strict, block.decode()
        except UnicodeDecodeError:
            return re.compile(*self._tolerant), block.decode("utf-8", "surrogateescape")

    def _matching(self, block: bytes, most: int | None) -> Iterator[int]:
        """The matching lines of a block, counted from 0."""
        expression, text = self._decoded(block)
        at = line = counted = 0
        while most is None or most > 0:
            start, _ = self._search(expression, text, at, goes_on=False)
            if start < 0 or (start == len(text) and (not text or text[-1] == "\n")):
                return
            line += text.count("\n", counted, start)
            counted = start
            yield line
            most = None if most is None else most - 1
            at = text.find("\n", start) + 1
            if at == 0:
                return

    def _search(self, expression: re.Pattern[str], text: str, at: int, *, goes_on: bool) -> tuple[int, int]:
        """Where the next match begins, or -1; and where to go on if the text does.

        Args:
            expression: What matches.
            text: Whole lines, but for the last if it goes on.
            at: Where to begin.
            goes_on: Whether more of the last line follows after this text.
        """
        if self.width is None:
            match = expression.search(text, at)
            return (match.start() if match else -1), len(text)
        while True:
            end = min(at + WINDOW_CHARS, len(text))
            cut = text.rfind("\n", at, end) + 1 if end < len(text) else 0
            end = cut or end
            match = expression.search(text, at, end)
            is_last = end == len(text) and not goes_on
            if match and (is_last or (match.start() < end if cut else match.end() < end or match.start() == at)):
                return match.start(), at
            if is_last:
                return -1, at
            # Within a line the next window begins where a match could still reach over the end of this one.
            behind = end if cut else min(match.start() if match else end, end - self.width - 2)
            if end == len(text):
                return -1, max(behind, 0)
            at = behind


class _CutLine:
    """A line that is too long to be searched at once: whether it matches, from piece to piece.

    Args:
        scanner: Its width is known.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._kept = ""
        self._at = 0
        self._is_found = False
        self.is_open = False
        """The next piece belongs to the same line."""

    def matches(self, piece: bytes, *, goes_on: bool) -> bool:
        """Whether the line has its first match with this piece."""
        was_found, self.is_open = self._is_found, goes_on
        if not was_found:
            data = self._kept.encode("utf-8", "surrogateescape") + piece.removesuffix(b"\n")
            start, text, at = self._scanner.piece(data, self._at, goes_on=goes_on)
            self._is_found = start >= 0
            # One character more, since a word boundary looks back.
            self._kept, self._at = text[max(at - 1, 0) :], min(at, 1)
        is_first = self._is_found and not was_found
        if not goes_on:
            self._kept, self._at, self._is_found = "", 0, False
        return is_first


def _blocks(read: Read, first: bytes | None, *, cuts: bool) -> Iterator[tuple[bytes, bool]]:
    """The content as UTF-8 without a mark, in pieces that end with a line; with `cuts` also within a long one.

    Returns:
        Each with whether it ends within a line. Such a piece holds no line feed.
    """
    first = read(BLOCK_BYTES) if first is None else first
    if first.startswith(_UTF_16_MARKS):
        read = _as_utf_8(first, read)
        first = read(BLOCK_BYTES)
    waiting: list[bytes] = []
    chunk = first.removeprefix(_UTF_8_MARK)
    while chunk:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*waiting, chunk[:cut]]), False
            waiting = [chunk[cut:]] if cut < len(chunk) else []
        else:
            waiting.append(chunk)
        if cuts and sum(map(len, waiting)) >= LONG_LINE_BYTES:
            piece = b"".join(waiting)
            end = _character_end(piece)
            yield piece[:end], True
            waiting = [piece[end:]] if end < len(piece) else []
        chunk = read(BLOCK_BYTES)
    yield b"".join(waiting), False


def _character_end(piece: bytes) -> int:
    """Where the last character of a piece of UTF-8 ends, if it is not whole there."""
    for back in range(1, _LONGEST_CHARACTER):
        byte = piece[-back]
        if byte >= _FIRST_LEAD:
            return len(piece) - back
        if byte < _FIRST_CONTINUATION:
            break
    return len(piece)


def _as_utf_8(first: bytes, read: Read) -> Read:
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    waiting = [first]

    def read_as_utf_8(size: int) -> bytes:
        while True:
            data = waiting.pop() if waiting else read(size)
            text = decoder.decode(data, final=not data)
            if text or not data:
                return text.encode("utf-8", "replace")

    return read_as_utf_8


def _die_after(seconds: float) -> None:
    """End the process then, also within a match: nobody else does if our parent is gone by that time."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _serve(request: dict[str, Any]) -> None:
    """Answer one search."""
    paths = sys.stdin.buffer.read(request["size"]).split(b"\0")[:-1]
    scanner = Scanner(
        request["expression"],
        request["tolerant"],
        ignore_case=request["ignore_case"],
        needle=request["needle"],
        width=None,
    )
    output = sys.stdout.buffer
    folder = os.fsencode(request["folder"])
    index = searched = huge = 0
    is_marked = False

    def mark(size: int) -> None:
        nonlocal is_marked
        is_marked = True
        output.write(b"%d %d %d %d\n" % (index, size, searched, huge))
        output.flush()

    _die_after(request["seconds"])
    for index, path in enumerate(paths):
        try:
            lines = scanner.file(os.path.join(folder, path), None, request["most"], mark)
        except HugeFileError:
            huge += 1
            continue
        searched += lines is not None
        if lines:
            output.write(f"{index}:{','.join(map(str, lines))}\n".encode())
        if is_marked:
            output.write(b"\n")
            output.flush()
            is_marked = False
    _die_after(0)
    output.write(json.dumps({"searched": searched, "huge": huge}).encode() + b"\n")
    output.flush()


def main() -> None:
    """Serve searches over stdin and stdout."""
    while line := sys.stdin.buffer.readline():
        _serve(json.loads(line))


if __name__ == "__main__":
    main()
