"""Single lines of a file with their neighbours, as a search shows them. Read through the workspace, streamed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from tools.contract.context import AbortSignal
from tools.filesystem.descriptors import OpenedFile
from tools.filesystem.reading.line_window import CUT_MARK
from tools.filesystem.text import SNIFFED_BYTES, looks_binary, marked_encoding

MAX_LINE_BYTES = 1 << 16
"""More of one line is never kept."""

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
    wanted = iter(lines)
    coming = next(wanted, None)
    shown_until = 0
    for number, text in enumerate(_lines(opened), 1):
        if number % CHECK_EVERY == 0:
            signal.raise_if_aborted()
        is_match = number == coming
        if is_match:
            shown_until = number + neighbours.after
            coming = next(wanted, None)
        if number <= shown_until or (coming is not None and number >= coming - neighbours.before):
            cut = text if len(text) <= line_chars else f"{text[:line_chars]}{CUT_MARK}"
            yield ExcerptLine(number, cut, is_match)
        elif coming is None:
            return


def _lines(opened: OpenedFile) -> Iterator[str]:
    encoding = marked_encoding(opened.head(4))
    if encoding is not None and encoding.is_wide:
        text = opened.stream.read()[len(encoding.bom) :].decode(encoding.codec, "replace")
        yield from (line.removesuffix("\r") for line in text.split("\n"))
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


def _skip_line(read_line: Callable[[int], bytes]) -> None:
    """Go behind the end of a line of which only the beginning was kept."""
    while (rest := read_line(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass
