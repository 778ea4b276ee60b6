"""Single lines of a file with their neighbours, as a search shows them. Read through the workspace, streamed."""

from __future__ import annotations

import codecs
import io
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from tools.contract.context import AbortSignal
from tools.filesystem.descriptors import BLOCK_BYTES, OpenedFile
from tools.filesystem.reading.line_window import CUT_MARK
from tools.filesystem.text import SNIFFED_BYTES, Encoding, looks_binary, marked_encoding

MAX_LINE_BYTES = 1 << 16
"""More of one line is never kept."""

WHOLE_BYTES = 1 << 20
"""A smaller file is read at once."""

CHECK_EVERY = 10_000
"""Lines between two looks at the signal."""


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """A line of a file.

    Args:
        number: From 1.
        text: Without its line ending, cut where it is very long.
        is_match: Whether it matched, or is a neighbour.
    """

    number: int
    text: str
    is_match: bool


def is_searchable(opened: OpenedFile) -> bool:
    """Whether a file is text that a search can show: no binary data, no UTF-32. The file is at its beginning again."""
    head = opened.head(SNIFFED_BYTES)
    encoding = marked_encoding(head)
    return not looks_binary(head) if encoding is None else not encoding.codec.startswith("utf-32")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """How many lines before and after a match are shown with it."""

    before: int = 0
    after: int = 0


def excerpt(
    opened: OpenedFile, lines: Sequence[int], neighbours: Neighbours, line_chars: int, signal: AbortSignal
) -> Iterator[ExcerptLine]:
    """The lines with these numbers, and so many before and after each.

    Args:
        opened: A searchable file at its beginning.
        lines: Line numbers, rising.
        neighbours: What is shown beside each of them.
        line_chars: Where a line is cut.
        signal: Looked at now and then.
    """
    for number, text in _texts(opened, _numbers(lines, neighbours), signal):
        shown = text if len(text) <= line_chars else f"{text[:line_chars]}{CUT_MARK}"
        yield ExcerptLine(number, shown, is_match=_is_in(lines, number))


def _numbers(lines: Sequence[int], neighbours: Neighbours) -> Iterator[int]:
    """The numbers of the lines to be shown, rising."""
    shown_until = 0
    for line in lines:
        yield from range(max(shown_until + 1, line - neighbours.before), line + neighbours.after + 1)
        shown_until = line + neighbours.after


def _is_in(lines: Sequence[int], number: int) -> bool:
    at = bisect_left(lines, number)
    return at < len(lines) and lines[at] == number


def _texts(opened: OpenedFile, numbers: Iterator[int], signal: AbortSignal) -> Iterator[tuple[int, str]]:
    """The texts of some lines; a line after the end is left out."""
    encoding = marked_encoding(opened.head(4))
    if opened.info.st_size <= WHOLE_BYTES and not (encoding and encoding.is_wide):
        # What may be read at most is set aside first, and where the size is known that is a waste.
        content = opened.stream.read(opened.info.st_size + 1 if opened.info.st_size else WHOLE_BYTES)
        all_lines = content[len(encoding.bom) if encoding else 0 :].removesuffix(b"\n").split(b"\n")
        for number in numbers:
            if number > len(all_lines):
                return
            yield number, all_lines[number - 1][:MAX_LINE_BYTES].rstrip(b"\r").decode("utf-8", "replace")
        return
    coming = next(numbers, None)
    for number, text in enumerate(_lines(opened, encoding), 1):
        if number % CHECK_EVERY == 0:
            signal.raise_if_aborted()
        if coming is None:
            return
        if number == coming:
            yield number, text
            coming = next(numbers, None)


def _lines(opened: OpenedFile, encoding: Encoding | None) -> Iterator[str]:
    if encoding is not None and encoding.is_wide:
        yield from _wide_lines(opened, encoding)
        return
    stream = io.BufferedReader(cast("io.RawIOBase", opened.stream), MAX_LINE_BYTES)
    try:
        if encoding is not None:
            stream.read(len(encoding.bom))
        while line := stream.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                _skip_line(stream.readline)
            yield line.rstrip(b"\r\n").decode("utf-8", "replace")
    finally:
        stream.detach()


def _wide_lines(opened: OpenedFile, encoding: Encoding) -> Iterator[str]:
    opened.stream.seek(len(encoding.bom))
    blocks = iter(lambda: opened.stream.read(BLOCK_BYTES), b"")
    line = ""
    for text in codecs.iterdecode(blocks, encoding.codec, "replace"):
        first, *others = text.split("\n")
        line = (line + first)[:MAX_LINE_BYTES]
        for other in others:
            yield line.removesuffix("\r")
            line = other[:MAX_LINE_BYTES]
    if line:
        yield line.removesuffix("\r")


def _skip_line(read_line: Callable[[int], bytes]) -> None:
    """Go behind the end of a line of which only the beginning was kept."""
    while (rest := read_line(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass
