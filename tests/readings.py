"""Reads files of the workspace as the reading tools do."""

from __future__ import annotations

from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal, Limits, MediaHandling
from tools.contract.tool_results import TextPart
from tools.files.read.file_reader import read, read_beginning
from tools.files.read.line_window import LineRequest, Reading
from tools.files.read.pdf import ALL_PAGES, MAX_SECONDS, Pages


def read_file(
    context: ToolContext,
    name: str,
    offset: int = 0,
    limit: int | None = None,
    limits: Limits | None = None,
    *,
    media: MediaHandling = MediaHandling.INLINE,
    pages: Pages = ALL_PAGES,
    seconds: float = MAX_SECONDS,
) -> Reading:
    """Read a file in the context's workspace."""
    location = context.workspace.locate(name)
    with context.workspace.open_file(location) as opened:
        limits = limits or Limits()
        line_request = LineRequest(offset, limit or limits.read_lines, limits, AbortSignal())
        return read(
            opened, location, *read_beginning(opened, location), line_request, media, pages=pages, pdf_seconds=seconds
        )


def text_of(reading: Reading) -> str:
    """Return the text of a reading that has one part."""
    (part,) = reading.parts
    assert isinstance(part, TextPart)
    return part.text
