"""A PDF as lines of text; where it has none, or nothing can take it out, as the file it is."""

from __future__ import annotations

from dataclasses import replace

from tools.contract.context import MediaHandling
from tools.contract.result import TextPart
from tools.filesystem.descriptors import OpenedFile
from tools.filesystem.reading.line_window import MemorySource, Wanted, window
from tools.filesystem.reading.media import PDF, FileKind, media_parts
from tools.filesystem.reading.outcome import Reading, reading_of
from tools.filesystem.reading.pdf import Pages, PdfText, extract, is_installed
from tools.filesystem.text import UTF_8, count_lines
from tools.filesystem.workspace import Location

INSTALL = "pip install 'coretools-mcp[pdf]'"
"""How the reader of PDF comes onto a machine."""


def read_pdf(
    opened: OpenedFile, location: Location, media: MediaHandling, wanted: Wanted, *, pages: Pages, seconds: float
) -> Reading:
    """Read a PDF for a model.

    Args:
        opened: The file; its position does not matter.
        location: Where it lies.
        media: What becomes of it where it is not shown as text.
        wanted: Lines of the text of these pages.
        pages: Which pages.
        seconds: How long taking the text out may last.

    Raises:
        ToolError: It cannot be read, or has no such page.
    """
    text = None
    if is_installed():
        text = extract(
            opened,
            location.shown,
            pages=pages,
            is_enough=_Need(wanted).is_met,
            signal=wanted.signal,
            seconds=seconds,
        )
    if text is not None and text.has_words:
        return _lines(text, wanted)
    if text is None:
        note = f"Its text can be shown once the server has the extra 'pdf': {INSTALL}"
    else:
        note = f"There is no text on {_run(text)}; they may be scanned pictures."
    parts = (*media_parts(opened, location, PDF, media, wanted.signal), TextPart(note))
    return Reading(parts, FileKind.PDF, 0, 0, None, False, False, 0, None, None)


class _Need:
    """When there are enough pages for a window of lines."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._lines = 0
        self._chars = 0

    def is_met(self, text: str) -> bool:
        """Whether the window is full, with this page behind the others."""
        wanted = self._wanted
        if wanted.offset < 0:
            return False
        if self._lines >= wanted.offset:
            self._chars += len(text)
        self._lines += text.count("\n")
        return self._lines > wanted.offset + wanted.limit or self._chars > wanted.limits.read_chars


def _lines(text: PdfText, wanted: Wanted) -> Reading:
    found = window(MemorySource(text.text.encode("utf-8", "replace")), wanted)
    if text.is_complete:
        return replace(reading_of(found, UTF_8, wanted.limits), kind=FileKind.PDF, pages=text.count)
    what = f"Only {_run(text)} could be read: {text.cut}" if text.cut else f"This is from {_run(text)}"
    note = f"{what}; other pages can be asked for, for example with pages='{text.last + 1}-'."
    # Counting on leads to no further line where the rest cannot be read.
    ends = bool(text.cut) and found.reaches_end
    found = replace(found, total=None, at_least=count_lines(text.text, "\n"), reaches_end=ends)
    if not found.count:
        return _past_end(text, found.first, found.at_least, note)
    reading = reading_of(found, UTF_8, wanted.limits, [note])
    return replace(reading, kind=FileKind.PDF, pages=text.count, truncated=True)


def _past_end(text: PdfText, offset: int, lines: int, note: str) -> Reading:
    """An offset behind what could be read."""
    said = f"The text of {_run(text)} has {lines} lines; offset {offset} lies past its end. {note}"
    return Reading(
        parts=(TextPart(said),),
        kind=FileKind.PDF,
        start=0,
        end=0,
        total=None,
        truncated=True,
        shortened=False,
        chars=0,
        encoding=UTF_8.name,
        sha256=None,
        pages=text.count,
    )


def _run(text: PdfText) -> str:
    run = f"pages {text.first}-{text.last}" if text.last > text.first else f"page {text.first}"
    return f"{run} of {text.count}"
