"""Lines of a file by their numbers, read through the opener; no more of the file is held than is shown."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from tools.contract.limits import AbortSignal
from tools.files.opener import BLOCK_BYTES, OpenedFile
from tools.files.read.line_window import CUT_MARK
from tools.files.text_encodings import SNIFFED_BYTES, Encoding, looks_binary, marked_encoding

MAX_LINE_BYTES = 1 << 16  # more of one line is never kept
WHOLE_BYTES = 1 << 20  # a smaller file is read at once
CHECK_EVERY = 10_000  # lines between two looks at the signal


def is_searchable(opened: OpenedFile) -> bool:
    """Whether a file is text that a search can show: no binary data, no UTF-32. The file is at its beginning again."""
    head = opened.head(SNIFFED_BYTES)
    encoding = marked_encoding(head)
    return not looks_binary(head) if encoding is None else not encoding.codec.startswith("utf-32")


class ExcerptLine(NamedTuple):
    number: int  # from 1
    text: str  # without its line ending, cut where it is very long
    is_match: bool  # whether it matched, or is a neighbour


def excerpt(
    opened: OpenedFile, lines: Sequence[int], before: int, after: int, line_chars: int, signal: AbortSignal
) -> Iterator[ExcerptLine]:
    """The lines with these numbers, which rise, and so many before and after each, cut to `line_chars`."""
    matching = frozenset(lines)

    def numbers() -> Iterator[int]:
        shown_until = 0
        for line in lines:
            yield from range(max(shown_until + 1, line - before), line + after + 1)
            shown_until = line + after

    for number, text in _texts(opened, numbers(), signal):
        shown = text if len(text) <= line_chars else f"{text[:line_chars]}{CUT_MARK}"
        yield ExcerptLine(number, shown, number in matching)


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
    """All lines of a file, of each at most its beginning."""
    if encoding is not None and encoding.is_wide:
        opened.stream.seek(len(encoding.bom))
        blocks = iter(lambda: opened.stream.read(BLOCK_BYTES), b"")
        wide = ""
        for text in codecs.iterdecode(blocks, encoding.codec, "replace"):
            first, *others = text.split("\n")
            wide = (wide + first)[:MAX_LINE_BYTES]
            for other in others:
                yield wide.removesuffix("\r")
                wide = other[:MAX_LINE_BYTES]
        if wide:
            yield wide.removesuffix("\r")
        return
    stream = io.BufferedReader(cast("io.RawIOBase", opened.stream), MAX_LINE_BYTES)
    try:
        if encoding is not None:
            stream.read(len(encoding.bom))
        while line := stream.readline(MAX_LINE_BYTES):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES)
            yield line.rstrip(b"\r\n").decode("utf-8", "replace")
    finally:
        stream.detach()
