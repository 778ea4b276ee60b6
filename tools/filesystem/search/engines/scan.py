"""The lines of a file that an expression matches. Standard library only: it is also run as a script of its own.

As a script it reads one JSON line with what to search for, then the paths, each ended by NUL, from stdin, and writes
`number of the path, colon, line numbers with commas` for each file with matches. It is meant to be killed when it
takes too long, which is why expressions that may run away are searched for here.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator

BLOCK_BYTES = 1 << 17
"""Read and searched at once: the least that keeps the calls cheap, the most that one uninterruptible match sees."""

WINDOW_CHARS = 1 << 16
"""A longer line is searched in overlapping pieces, where the expression's width is known."""

_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_FOLDS_BEYOND_ASCII = frozenset(b"iks")
"""ASCII letters that are also the lower case of other characters (dotted I, Kelvin sign, long s)."""

Read = Callable[[int], bytes]


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
        self._width = width
        self._needle = needle.encode() if needle.isascii() or not ignore_case else b""
        if ignore_case:
            self._needle = self._needle.lower()
        self._is_safe_needle = not (ignore_case and _FOLDS_BEYOND_ASCII.intersection(self._needle))

    def lines(self, read: Read, most: int | None, checkpoint: Callable[[], None]) -> list[int]:
        """The numbers of the matching lines, from 1.

        Args:
            read: Reads up to so many bytes of the file; nothing at its end.
            most: How many are wanted.
            checkpoint: Called between blocks; what it raises ends the search.
        """
        found: list[int] = []
        number = 1
        for block in _blocks(read):
            checkpoint()
            if self._may_match(block):
                wanted = None if most is None else most - len(found)
                found += (number + line for line in self._matching(block, wanted))
                if most is not None and len(found) >= most:
                    break
            number += block.count(b"\n")
        return found

    def _may_match(self, block: bytes) -> bool:
        if not self._needle or not (self._is_safe_needle or block.isascii()):
            return True
        return self._needle in (block.lower() if self._ignore_case else block)

    def _matching(self, block: bytes, most: int | None) -> Iterator[int]:
        """The matching lines of a block, counted from 0."""
        expression = self._strict
        try:
            text = block.decode()
        except UnicodeDecodeError:
            text = block.decode("utf-8", "surrogateescape")
            expression = re.compile(*self._tolerant)
        at = line = counted = 0
        while most is None or most > 0:
            start = self._search(expression, text, at)
            if start < 0 or (start == len(text) and (not text or text[-1] == "\n")):
                return
            line += text.count("\n", counted, start)
            counted = start
            yield line
            most = None if most is None else most - 1
            at = text.find("\n", start) + 1
            if at == 0:
                return

    def _search(self, expression: re.Pattern[str], text: str, at: int) -> int:
        """Where the next match begins, or -1."""
        if self._width is None:
            match = expression.search(text, at)
            return match.start() if match else -1
        while True:
            end = min(at + WINDOW_CHARS, len(text))
            cut = text.rfind("\n", at, end) + 1 if end < len(text) else 0
            end = cut or end
            match = expression.search(text, at, end)
            is_last = end == len(text)
            if match and (is_last or (match.start() < end if cut else match.end() < end or match.start() == at)):
                return match.start()
            if is_last:
                return -1
            # Within a line the next window begins where a match could still reach over the end of this one.
            at = end if cut else min(match.start() if match else end, end - self._width - 2)


def _blocks(read: Read) -> Iterator[bytes]:
    """The content in pieces that end with a line, as UTF-8 without a mark."""
    first = read(BLOCK_BYTES)
    if first.startswith(_UTF_16_MARKS):
        text = b"".join([first, *iter(lambda: read(BLOCK_BYTES), b"")]).decode("utf-16", "replace")
        yield text.encode("utf-8", "replace")
        return
    waiting = [first.removeprefix(_UTF_8_MARK)]
    chunk = waiting.pop()
    while chunk:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*waiting, chunk[:cut]])
            waiting = [chunk[cut:]] if cut < len(chunk) else []
        else:
            waiting.append(chunk)
        chunk = read(BLOCK_BYTES)
    if waiting:
        yield b"".join(waiting)


def _lines_of(scanner: Scanner, path: bytes, most: int | None) -> list[int]:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return []
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        return scanner.lines(lambda size: os.read(descriptor, size), most, _go_on)
    except OSError:
        return []
    finally:
        os.close(descriptor)


def _go_on() -> None:
    """The script has no checkpoint: it is killed from outside."""


def main() -> None:
    """Serve one search over stdin and stdout."""
    request = json.loads(sys.stdin.buffer.readline())
    scanner = Scanner(
        request["expression"],
        request["tolerant"],
        ignore_case=request["ignore_case"],
        needle=request["needle"],
        width=None,
    )
    paths = sys.stdin.buffer.read().split(b"\0")[:-1]
    for index, path in enumerate(paths):
        lines = _lines_of(scanner, path, request["most"])
        if lines:
            sys.stdout.buffer.write(f"{index}:{','.join(map(str, lines))}\n".encode())
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
