"""Reading a file of the workspace as the reading tools do, and the text of what comes."""

from __future__ import annotations

from tools.contract.context import AbortSignal, Limits, MediaHandling, ToolContext
from tools.contract.result import TextPart
from tools.filesystem.reading.content import read
from tools.filesystem.reading.outcome import Reading
from tools.filesystem.reading.pdf import ALL_PAGES, MAX_SECONDS, Pages


def read_file(
    context: ToolContext,
    name: str,
    offset: int = 0,
    limit: int | None = None,
    limits: Limits | None = None,
    *,
    media: MediaHandling = MediaHandling.INLINE,
    signal: AbortSignal | None = None,
    pages: Pages = ALL_PAGES,
    seconds: float = MAX_SECONDS,
) -> Reading:
    """Read a file of the context's workspace."""
    location = context.workspace.locate(name)
    with context.workspace.open_file(location) as opened:
        return read(
            opened,
            location,
            offset=offset,
            limit=limit,
            limits=limits or Limits(),
            media=media,
            signal=signal or AbortSignal(),
            pages=pages,
            pdf_seconds=seconds,
        )


def text_of(reading: Reading) -> str:
    """The one part of a reading, which has to be text."""
    (part,) = reading.parts
    assert isinstance(part, TextPart)
    return part.text
