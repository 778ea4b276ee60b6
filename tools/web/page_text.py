"""A page of HTML as text, by a process that is killed when it takes too long."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from tools.contract.context import AbortSignal
from tools.filesystem.child import ChildFailedError, unnamed_file
from tools.filesystem.documents import document_worker_for

logger = logging.getLogger(__name__)

MAX_SECONDS = 5.0
"""Time for one page; two megabytes of an ordinary one take a tenth of a second."""

MAX_MEMORY = 1 << 30
"""Address space of the process; the largest page that is taken (10 MiB) needs half of it."""

MAX_TEXT_BYTES = 64 << 20
"""A text that is longer was made to be."""


@dataclass(frozen=True, slots=True)
class PageText:
    """What a page says.

    Args:
        title: Its title, on one line; empty where it has none.
        text: Its text as Markdown.
        is_partial: Whether elements are missing that are nested too deep.
    """

    title: str
    text: str
    is_partial: bool = False


class Unconverted(StrEnum):
    """Why a page is not there as text; each ends a sentence about the page."""

    LATE = "that takes too long"
    ENDED = "the process that does it came to an end, perhaps because the page takes too much memory"
    NOT_STARTED = "the process that does it cannot be started"


def page_text(
    page: str, url: str, signal: AbortSignal, seconds: float = MAX_SECONDS, memory: int = MAX_MEMORY
) -> PageText | Unconverted:
    """Turn HTML into text. Blocking: call it in a worker thread.

    Args:
        page: The HTML.
        url: Where it came from; its links become absolute by it. Empty for text without links.
        signal: The process is killed as soon as it is set.
        seconds: How long it may run.
        memory: Bytes of address space that it may take.

    Returns:
        The text, or why there is none.

    Raises:
        ToolError: `cancelled`.
    """
    with unnamed_file() as document:
        document.write(page.encode("utf-8", "replace"))
        document.seek(0)
        try:
            with document_worker_for(
                "html", url, document=document, memory=memory, seconds=seconds, signal=signal
            ) as worker:
                said = next(worker.messages(MAX_TEXT_BYTES), None)
                is_late = worker.deadline.is_over
        except ChildFailedError as error:
            logger.warning("a page is shown as it came: %s", error)
            return Unconverted.NOT_STARTED
    signal.raise_if_aborted()
    if said is None or said["end"] != "done":
        return Unconverted.LATE if is_late else Unconverted.ENDED
    return PageText(said["title"], said["text"], said["is_partial"])
