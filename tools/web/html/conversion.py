"""A page as text, by a process that is killed when it takes too long."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum

from tools.contract.context import AbortSignal
from tools.filesystem.child import Child, ChildFailedError, Watch
from tools.filesystem.finding.deadline import Deadline
from tools.web.html import child as child_script

logger = logging.getLogger(__name__)

MAX_SECONDS = 5.0
"""Time for one page; two megabytes of an ordinary one take a quarter of a second."""

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
    """

    title: str
    text: str


class Unconverted(StrEnum):
    """Why a page is not there as text; each ends a sentence about the page."""

    LATE = "that takes too long"
    ENDED = "the process that does it came to an end, perhaps because the page takes too much memory"
    NOT_STARTED = "the process that does it cannot be started"


def convert(
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
    given = f"{url}\n{page}".encode("utf-8", "replace")
    script = os.path.abspath(child_script.__file__)
    arguments = [sys.executable, "-P", "-S", script, *map(str, (memory, round(seconds + 1), len(given)))]
    deadline = Deadline(signal, seconds)
    try:
        with (
            Child(arguments, os.path.dirname(script), given=subprocess.PIPE, errors=subprocess.DEVNULL) as child,
            Watch(child, deadline),
        ):
            said = _converse(child, given)
    except ChildFailedError as error:
        logger.warning("a page is shown as it came: %s", error)
        return Unconverted.NOT_STARTED
    signal.raise_if_aborted()
    if not said.endswith(b"\0"):
        return Unconverted.LATE if deadline.is_over else Unconverted.ENDED
    title, _, text = said[:-1].decode("utf-8", "replace").partition("\n")
    return PageText(title, text)


def _converse(child: Child, given: bytes) -> bytes:
    try:
        child.write(given)
    except OSError:
        return b""  # it has ended, or was killed
    said = bytearray()
    while len(said) <= MAX_TEXT_BYTES and (piece := child.read()):
        said += piece
        if piece.endswith(b"\0"):
            return bytes(said)
    return b""
