"""A PDF as lines of text; where it has none, or nothing can take it out, as the file it is.

A child process takes the text out, since a PDF can be made to cost any time and memory. The child is given the open
file, not its path, and nothing of our environment. It is killed when the call is cancelled, when its time is over, or
when there is enough text.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import AbortSignal, MediaHandling
from tools.contract.results import TextPart
from tools.files.child_process import ChildFailedError, DocumentWorker, document_worker_for
from tools.files.document_worker import MAX_PAGE_CHARS
from tools.files.line_endings import count_lines
from tools.files.opener import OpenedFile
from tools.files.read.line_window import MemorySource, Reading, Wanted, reading_of, window
from tools.files.read.media import PDF, FileKind, media_parts
from tools.files.text_encodings import UTF_8
from tools.files.workspace import Location

MAX_SECONDS = 20.0
"""Time for one document: some hundred ordinary pages (about 30 ms each), and short enough to wait for."""

MAX_MEMORY = 512 << 20
"""Address space of the child: several times what a large ordinary document takes, and no machine is lost by it."""

MAX_CHARS = 4_000_000
"""Characters taken from one document; the longest books have about as many."""

MAX_AT_ONCE = 2
"""Children that run at the same time, so that many calls together do not take all memory."""

MAX_WAIT_SECONDS = 60.0
"""How long a call waits for its turn: with `MAX_AT_ONCE` others before it, three times as long as they may take."""

MAX_LINE_BYTES = 8 * MAX_PAGE_CHARS
"""A line of the child: UTF-8 takes up to 4 bytes, JSON a second one for what it escapes."""

TURN_SECONDS = 0.05
"""How often a call that waits for its turn looks whether it was cancelled."""

_PAGES = re.compile(r"\s*(\d{1,7})\s*(-)?\s*(\d{1,7})?\s*")

MAX_WAITING = 4
"""Calls that wait for their turn; more are refused at once."""

_places = threading.BoundedSemaphore(MAX_AT_ONCE)
_waiting = threading.BoundedSemaphore(MAX_WAITING)

INSTALL = "pip install 'coretools-mcp[pdf]'"
"""How the reader of PDF comes onto a machine."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a document, counted from 1; `last` is `None` for the end of the document."""

    first: int = 1
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> Pages:
        """Understand `5`, `2-7` and `8-`.

        Raises:
            ValueError: It is none of these.
        """
        found = _PAGES.fullmatch(text)
        if found is None or (found[3] and not found[2]):
            raise ValueError(text)
        first = int(found[1])
        last = int(found[3]) if found[3] else None if found[2] else first
        if first < 1 or (last is not None and last < first):
            raise ValueError(text)
        return cls(first, last)


ALL_PAGES = Pages()


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of a document, or of the pages that were wanted and could be had.

    Args:
        text: For each page a line that names it, then its text.
        count: Pages of the document.
        first: The first page that is there.
        last: The last page that is there.
        is_complete: Every page that was wanted is there.
        cut: Why it is not complete, as an end of a sentence; empty where there was enough text before.
        has_words: There is any text on any page.
    """

    text: str
    count: int
    first: int
    last: int
    is_complete: bool
    cut: str
    has_words: bool


def is_installed() -> bool:
    """Whether the reader of PDF is there. It is not imported here, only in the child."""
    return importlib.util.find_spec("pypdf") is not None


def extract(
    opened: OpenedFile,
    spelled: str,
    *,
    pages: Pages,
    is_enough: Callable[[str], bool],
    signal: AbortSignal,
    seconds: float = MAX_SECONDS,
) -> PdfText | None:
    """Take the text out of a PDF. Blocking: call it in a worker thread.

    Args:
        opened: The file; it is handed to the child, and its position is moved.
        spelled: What the file is called in errors.
        pages: Which pages.
        is_enough: Told the text of each page as it comes; true if no further page is needed.
        signal: The child is killed as soon as it is set.
        seconds: How long the child may run.

    Returns:
        The text, or `None` if the child has no reader of PDF.

    Raises:
        ToolError: `read_content_failure`: it is encrypted, damaged, or not one page was read within the limits;
            `invalid_tool_params`: it has no such page; `cancelled`.
    """
    taken = _Taken(pages)
    opened.stream.seek(0)
    wanted = (str(pages.first), str(pages.last or 0))
    with _place(spelled, signal):
        try:
            with document_worker_for(
                "pdf", *wanted, document=opened.stream, memory=MAX_MEMORY, seconds=seconds, signal=signal
            ) as worker:
                end = _take(worker, taken, is_enough)
        except ChildFailedError:
            raise ToolError(
                ToolErrorType.READ_CONTENT_FAILURE,
                "The process that reads PDF files does not start on this machine, so the file was not read. "
                "Tell the user that the server cannot start Python.",
            ) from None
    signal.raise_if_aborted()
    if end == "missing":
        return None
    return taken.result(end, spelled, seconds)


def _take(worker: DocumentWorker, taken: _Taken, is_enough: Callable[[str], bool]) -> str:
    """Take pages until there are enough; returns why there are no more."""
    for message in worker.messages(MAX_LINE_BYTES):
        if "end" in message:
            return cast("str", message["end"])
        text = taken.add(message)
        if taken.chars > MAX_CHARS:
            return "size"
        if text and is_enough(text):
            return "enough"
    return "time" if worker.child.was_killed else "broken"


@contextmanager
def _place(spelled: str, signal: AbortSignal) -> Generator[None]:
    if not _places.acquire(blocking=False):
        _wait_for_place(spelled, signal)
    try:
        yield
    finally:
        _places.release()


def _wait_for_place(spelled: str, signal: AbortSignal) -> None:
    """Wait for a turn. Whoever waits holds a thread that others need, so few may wait."""
    busy = ToolError(
        ToolErrorType.READ_CONTENT_FAILURE,
        f"'{spelled}' was not read: {MAX_AT_ONCE} other PDF files are being read and take long. Try again in a minute.",
    )
    if not _waiting.acquire(blocking=False):
        raise busy
    try:
        until = time.monotonic() + MAX_WAIT_SECONDS
        while not _places.acquire(timeout=TURN_SECONDS):
            signal.raise_if_aborted()
            if time.monotonic() > until:
                raise busy
    finally:
        _waiting.release()


class _Taken:
    """What came so far."""

    def __init__(self, wanted: Pages) -> None:
        self.chars = 0
        self._wanted = wanted
        self._pieces: list[str] = []
        self._count: int | None = None
        self._last = 0
        self._has_words = False
        self._has_failed = False

    def add(self, message: dict[str, Any]) -> str:
        """Take a message; returns the text of a page."""
        if "pages" in message:
            self._count = message["pages"]
            return ""
        text = cast("str", message.get("text", "")).strip("\n")
        self._has_words |= bool(text.strip())
        self._has_failed |= "failed" in message
        if not text.strip():
            text = "[This page could not be read.]" if "failed" in message else "[No text on this page.]"
        elif message.get("cut"):
            text += f"\n[This page was cut at {MAX_PAGE_CHARS:,} characters.]"
        self._last = message["page"]
        piece = f"--- Page {self._last} of {self._count} ---\n\n{text}\n\n"
        self._pieces.append(piece)
        self.chars += len(piece)
        return piece

    def result(self, end: str, spelled: str, seconds: float) -> PdfText:
        """The text, or a `ToolError` that says why there is none."""
        limits = {
            "time": f"it takes longer than {seconds:.0f} seconds",
            "memory": f"it takes more than {MAX_MEMORY >> 20} MB of memory",
            "size": f"their text is longer than {MAX_CHARS:,} characters",
        }
        if self._count and self._wanted.first > self._count:
            raise ToolError(
                ToolErrorType.INVALID_TOOL_PARAMS,
                f"'{spelled}' has {_pages(self._count)}, so there is no page {self._wanted.first}.",
            )
        if not self._count or not self._pieces or (self._has_failed and not self._has_words):
            raise _no_text(end, spelled, limits.get(end))
        text = "".join(self._pieces)
        is_complete = self._last == min(self._wanted.last or self._count, self._count)
        return PdfText(
            text=text.removesuffix("\n") if is_complete else text,
            count=self._count,
            first=self._wanted.first,
            last=self._last,
            is_complete=is_complete,
            cut="" if end == "enough" else limits.get(end, "the file is damaged there"),
            has_words=self._has_words,
        )


def _no_text(end: str, spelled: str, limit: str | None) -> ToolError:
    """Why not one page was read, and what to do."""
    if end == "encrypted":
        reason = (
            "is encrypted with a password, so its text cannot be read. Ask the user for a copy without a password, "
            "or for what is in it."
        )
    elif limit is not None:
        reason = (
            f"was not read: {limit} to read it. Ask for other pages, for example pages='2-5', or ask the user for a "
            "simpler copy or for what is in it."
        )
    else:
        reason = (
            "is a damaged PDF file, or one that unpacks to far more than it should, so its text cannot be read. "
            "Ask the user to open it and save it anew, or for what is in it."
        )
    return ToolError(ToolErrorType.READ_CONTENT_FAILURE, f"'{spelled}' {reason}")


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count:,} pages"


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
