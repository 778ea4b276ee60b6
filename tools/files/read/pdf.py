"""Reads a PDF as lines of text. If it has no text, or if no PDF reader is installed, the PDF is returned as a file.

A child process extracts the text, because a PDF can be built to exhaust time and memory. It is killed when the call is
cancelled, when its time is up, or when there is enough text.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tools.contract.call_options import AbortSignal, MediaHandling
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import TextPart
from tools.files.child_process import ChildFailedError, DocumentWorker
from tools.files.html_and_pdf_worker import MAX_PAGE_CHARS
from tools.files.path_opener import OpenedFile
from tools.files.read.line_window import LineRequest, Reading, Source, reading_of, window
from tools.files.read.media_files import PDF, FileKind, media_parts
from tools.files.text_encodings import UTF_8, count_lines
from tools.files.workspace import Location

# Time limit per document: enough for several hundred ordinary pages (about 30 ms each), and not too long a wait
MAX_SECONDS = 20.0
# Address space of the child: several times what a large ordinary document needs, and acceptable on any machine
MAX_MEMORY = 512 << 20
MAX_CHARS = 4_000_000  # maximum number of characters extracted from one document, as many as in the longest books
MAX_AT_ONCE = 2  # maximum number of children at once, so that many calls do not use up all memory
MAX_WAITING = 4  # maximum number of waiting calls; more are refused immediately
# How long a call waits in the queue: three times the limit for a document, because others may be ahead in the queue
MAX_WAIT_SECONDS = 60.0
TURN_SECONDS = 0.05  # how often a waiting call checks for cancellation
# Longest line from the child: UTF-8 has up to 4 bytes per character, and JSON escapes may double them
MAX_LINE_BYTES = 8 * MAX_PAGE_CHARS
_PAGES = re.compile(r"\s*(\d{1,7})\s*(?:(-)\s*(\d{1,7})?\s*)?")
_running = threading.BoundedSemaphore(MAX_AT_ONCE)
_waiting = threading.BoundedSemaphore(MAX_WAITING)


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a document, counted from 1. `last` is `None` for the end of the document."""

    first: int = 1
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> Pages:
        """Parse `5`, `2-7` or `8-`. Blank means all pages (as in Qwen Code). Raises a `ValueError` for other text."""
        if not text.strip():
            return cls()
        match = _PAGES.fullmatch(text)
        if match is None:
            raise ValueError(text)
        first = int(match[1])
        last = int(match[3]) if match[3] else None if match[2] else first
        if first < 1 or (last is not None and last < first):
            raise ValueError(text)
        return cls(first, last)


ALL_PAGES = Pages()


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of the requested pages that could be read."""

    text: str  # a heading and the text of each page
    count: int
    first: int
    last: int
    is_complete: bool  # whether the text has every requested page
    # Why no more pages were read, worded as the end of a sentence; empty if `is_enough` returned True, meaningless if
    # `is_complete`
    stop_reason: str
    has_words: bool  # whether any page has text

    @property
    def page_range(self) -> str:
        """The range of the pages, for example `pages 2-5 of 9`."""
        pages = f"pages {self.first}-{self.last}" if self.last > self.first else f"page {self.first}"
        return f"{pages} of {self.count}"


def is_installed() -> bool:
    """Return True if a PDF reader is installed. Only the child imports it."""
    return importlib.util.find_spec("pypdf") is not None


def extract(
    file: OpenedFile,
    name: str,
    *,
    pages: Pages,
    is_enough: Callable[[str], bool],
    signal: AbortSignal,
    seconds: float = MAX_SECONDS,
) -> PdfText | None:
    """Extract the text of a PDF, or return `None` if no PDF reader is installed. Blocking: call it in a worker thread.

    Moves the file position. `is_enough` is called with the text of each page, and returns True to stop.

    Raises:
        ToolError: `read_content_failure` if the PDF is encrypted or damaged, or if no page could be read within the
            limits; `invalid_tool_params` if the PDF has no such page; `cancelled`.
    """
    file.stream.seek(0)
    arguments = (str(pages.first), str(pages.last or 0))
    texts: list[str] = []
    count = last = chars = 0
    has_words = has_failed = False
    end = ""
    try:
        with (
            _reserved_slot(name, signal),
            DocumentWorker(
                "pdf", *arguments, document=file.stream, memory=MAX_MEMORY, seconds=seconds, signal=signal
            ) as worker,
        ):
            for message in worker.messages(MAX_LINE_BYTES):
                if "end" in message:
                    end = message["end"]
                    break
                if "pages" in message:
                    count = message["pages"]
                    continue
                text = message.get("text", "").strip("\n")
                has_words |= bool(text.strip())
                has_failed |= "failed" in message
                if not text.strip():
                    text = "[This page could not be read.]" if "failed" in message else "[No text on this page.]"
                elif message.get("cut"):
                    text += f"\n[This page was cut at {MAX_PAGE_CHARS:,} characters.]"
                last = message["page"]
                text = f"--- Page {last} of {count} ---\n\n{text}\n\n"
                texts.append(text)
                chars += len(text)
                end = "size" if chars > MAX_CHARS else "enough" if is_enough(text) else ""
                if end:
                    break
            end = end or ("time" if worker.was_killed else "broken")
    except ChildFailedError:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            "The process that reads PDF files could not be started, so the file was not read. Tell the user that the "
            "server cannot start Python.",
        ) from None
    signal.raise_if_aborted()
    if end == "missing":
        return None
    if count and pages.first > count:
        page_count = "1 page" if count == 1 else f"{count:,} pages"
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS, f"'{name}' has {page_count}, so there is no page {pages.first}."
        )
    limit = {
        "time": f"it would take longer than {seconds:.2g} s",
        "memory": f"it would take more than {MAX_MEMORY >> 20} MB of memory",
        "size": f"its text is longer than {MAX_CHARS:,} characters",
    }.get(end)
    if not texts or (has_failed and not has_words):
        if end == "encrypted":
            reason = (
                "is encrypted with a password, so its text cannot be read. Ask the user for a copy without a password, "
                "or for its content."
            )
        elif limit is not None:
            reason = (
                f"was not read: {limit}. Request other pages, for example pages='2-5', or ask the user for "
                "a simpler copy or for its content."
            )
        else:
            reason = (
                "is a damaged PDF file, or one that decompresses to far too much data, so its text cannot be read. "
                "Ask the user to open it and save it again, or to give you its content."
            )
        raise ToolError(ToolErrorType.READ_CONTENT_FAILURE, f"'{name}' {reason}")
    text = "".join(texts)
    is_complete = last == min(pages.last or count, count)
    return PdfText(
        text=text.removesuffix("\n") if is_complete else text,
        count=count,
        first=pages.first,
        last=last,
        is_complete=is_complete,
        stop_reason="" if end == "enough" else limit or "the file is damaged after that point",
        has_words=has_words,
    )


@contextmanager
def _reserved_slot(name: str, signal: AbortSignal) -> Generator[None]:
    """Wait for a slot, and occupy it. Only a few calls may wait, because each of them occupies a thread."""
    if not _running.acquire(blocking=False):
        busy_error = ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{name}' was not read: {MAX_AT_ONCE} other PDF files are being read, which can take a long time. Try "
            "again in a minute.",
        )
        if not _waiting.acquire(blocking=False):
            raise busy_error
        try:
            wait_end = time.monotonic() + MAX_WAIT_SECONDS
            while not _running.acquire(timeout=TURN_SECONDS):
                signal.raise_if_aborted()
                if time.monotonic() > wait_end:
                    raise busy_error
        finally:
            _waiting.release()
    try:
        yield
    finally:
        _running.release()


def read_pdf(
    file: OpenedFile, location: Location, media: MediaHandling, request: LineRequest, *, pages: Pages, seconds: float
) -> Reading:
    lines = chars = 0

    def is_enough(text: str) -> bool:
        nonlocal lines, chars
        if request.offset < 0:
            return False
        if lines >= request.offset:
            chars += len(text)
        lines += text.count("\n")
        return lines > request.offset + request.limit or chars > request.limits.read_chars

    pdf_text = None
    if is_installed():
        pdf_text = extract(
            file, location.shown, pages=pages, is_enough=is_enough, signal=request.signal, seconds=seconds
        )
    if pdf_text is None or not pdf_text.has_words:
        if pdf_text is None:
            from tools.machine.installation import install_command  # noqa: PLC0415 - needed only without the extra

            note = f"To see its text, install the server's 'pdf' extra: {install_command('pdf')}"
        else:
            note = f"There is no text on {pdf_text.page_range}; the document may be scanned."
        parts = (*media_parts(file, location, PDF, media, request.signal), TextPart(note))
        return Reading(parts, FileKind.PDF, is_text=False)
    line_window = window(Source.from_bytes(pdf_text.text.encode("utf-8", "replace")), request)
    if pdf_text.is_complete:
        return replace(reading_of(line_window, UTF_8, request.limits), kind=FileKind.PDF, pages=pdf_text.count)
    description = (
        f"Only {pdf_text.page_range} could be read: {pdf_text.stop_reason}"
        if pdf_text.stop_reason
        else f"This is {pdf_text.page_range}"
    )
    note = f"{description}; request other pages with, for example, pages='{pdf_text.last + 1}-'."
    known_lines = count_lines(pdf_text.text, "\n")
    if not line_window.count:
        text = (
            f"The text of {pdf_text.page_range} has {known_lines} {'line' if known_lines == 1 else 'lines'}; offset "
            f"{line_window.first} is past its end. {note}"
        )
        return Reading((TextPart(text),), FileKind.PDF, truncated=True, encoding=UTF_8.name, pages=pdf_text.count)
    # Further lines exist only if the remaining pages can be read.
    line_window = replace(
        line_window,
        total=None,
        at_least=known_lines,
        reaches_end=bool(pdf_text.stop_reason) and line_window.reaches_end,
    )
    reading = reading_of(line_window, UTF_8, request.limits, [note])
    return replace(reading, kind=FileKind.PDF, pages=pdf_text.count, truncated=True)
