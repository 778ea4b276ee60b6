"""Converts an HTTP response to something that a model can read: text, media, or a sentence about the response.

Text is decoded as browsers decode it.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from tools.contract.call_options import AbortSignal, MediaHandling
from tools.contract.tool_errors import ToolError
from tools.contract.tool_results import FileDataPart, InlineDataPart, Part
from tools.files.child_process import ChildFailedError, DocumentWorker, unnamed_file
from tools.files.path_opener import OpenedFile
from tools.files.read.media_files import MAX_INLINE_BYTES, TEXT_KINDS, FileKind, FileType, detect
from tools.files.read.pdf import ALL_PAGES, extract, is_installed
from tools.files.text_encodings import SNIFFED_BYTES, guess, marked_encoding
from tools.web.address_guard import UrlError, parse_url
from tools.web.http_exchange import REDIRECTS, WebResponse
from tools.web.untrusted_text import sanitise

logger = logging.getLogger(__name__)

DECLARATION_BYTES = 4_096  # bytes searched for a page's encoding (the HTML standard requires it in the first 1,024)

_META = re.compile(rb"""(?i)<meta\s[^>]{0,400}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w:.-]{1,40})""")
_XML = re.compile(rb"""(?i)\A\s{0,9}<\?xml\s[^>]{0,200}?encoding\s{0,9}=\s{0,9}["']([\w:.-]{1,40})""")

# Common labels of the WHATWG encoding standard, each with the codec that decodes such text as browsers do
_LABELS = {
    **{name: name for name in ("koi8-r", "koi8-u", "euc-jp", "iso-2022-jp")},
    **{f"iso-8859-{part}": f"iso-8859-{part}" for part in range(2, 17) if part not in (9, 11, 12)},
    **{f"windows-{page}": f"windows-{page}" for page in range(1250, 1259)},
    **{f"cp{page}": f"windows-{page}" for page in range(1250, 1259)},
    **dict.fromkeys(("utf-8", "utf8", "unicode-1-1-utf-8"), "utf-8"),
    **dict.fromkeys(("utf-16", "utf-16le", "unicode"), "utf-16-le"),
    "utf-16be": "utf-16-be",
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1"), "windows-1252"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "windows-1254"),
    **dict.fromkeys(("iso-8859-11", "tis-620", "windows-874"), "cp874"),
    "macintosh": "mac-roman",
    "ibm866": "cp866",
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "x-gbk", "gb_2312-80"), "gb18030"),
    **dict.fromkeys(("big5", "big5-hkscs", "cn-big5", "x-x-big5"), "big5hkscs"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "ms_kanji"), "cp932"),
    "x-euc-jp": "euc-jp",
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean", "windows-949"), "cp949"),
}

# The multibyte codecs, except those for Unicode encodings
_MULTIBYTE = frozenset({"gb18030", "big5hkscs", "cp932", "euc-jp", "iso-2022-jp", "cp949"})
# Bytes decoded per step. A codec blocks all other threads while it runs. It takes a third of a microsecond per invalid
# byte, or about five milliseconds per step.
DECODE_STEP_BYTES = 1 << 14
# Time limit per page, after which only ASCII is decoded. Only pages with millions of invalid bytes reach it.
DECODE_SECONDS = 2.0
_LONGEST_CHARACTER = 4


def decode(body: bytes, charset: str | None, *, is_markup: bool, is_cut: bool) -> tuple[str, str]:
    """Decode a body. Return the text and a note, which is empty unless the encoding is a guess.

    Undecodable bytes become U+FFFD. `charset` is the charset of `Content-Type`. Markup may declare its own encoding. A
    truncated body may end within a character.
    """
    if (mark := marked_encoding(body)) is not None:
        body, name = body[len(mark.bom) :], mark.codec
    else:
        name = _LABELS.get(charset or "")
        if name is None and is_markup:
            match = _META.search(body, 0, DECLARATION_BYTES) or _XML.search(body, 0, DECLARATION_BYTES)
            name = _LABELS.get(match[1].decode("ascii", "replace").lower()) if match is not None else None
            # The declaration was readable as ASCII, so the page is not UTF-16, even if it says so.
            name = "utf-8" if name is not None and name.startswith("utf-16") else name
    if name is None:
        try:
            return body.decode("utf-8"), ""
        except UnicodeDecodeError as error:
            name = "utf-8"
            is_cut_character = is_cut and len(body) - error.start < _LONGEST_CHARACTER
            encoding_guess = None if is_cut_character else guess(body)
        if encoding_guess is not None:
            note = f"It states no known encoding. It is shown as {encoding_guess.name}, {encoding_guess.how}."
            return encoding_guess.decoded.text, note
    if name not in _MULTIBYTE and not name.startswith("utf-"):
        return _decode_by_table(body, name), ""
    decoder = codecs.getincrementaldecoder(name)("replace")
    parts: list[str] = []
    deadline = time.monotonic() + DECODE_SECONDS
    for start in range(0, len(body), DECODE_STEP_BYTES):
        if time.monotonic() > deadline:
            return "".join([*parts, _decode_by_table(body[start:], "ascii")]), ""
        parts.append(decoder.decode(body[start : start + DECODE_STEP_BYTES]))
    return "".join([*parts, decoder.decode(b"", final=True)]), ""


def _decode_by_table(body: bytes, name: str) -> str:
    """Decode with a lookup table, which is as fast for invalid bytes as for valid ones."""
    table: Any = bytes(range(256)).decode(name, "replace")  # the type stub does not accept a string as the table
    return codecs.charmap_decode(body, "strict", table)[0]


class Format(StrEnum):
    AUTO = "auto"
    MARKDOWN = "markdown"
    HTML = "html"
    TEXT = "text"

    @property
    def accept_header(self) -> str:
        """The `Accept` header. Some servers offer Markdown."""
        if self is Format.HTML:
            return "text/html,application/xhtml+xml;q=0.9,*/*;q=0.5"
        if self is Format.TEXT:
            return "text/plain,text/html;q=0.9,*/*;q=0.5"
        return "text/markdown,text/html;q=0.9,application/xhtml+xml;q=0.9,text/plain;q=0.8,*/*;q=0.5"


MAX_SECONDS = 5.0  # time limit per page; an ordinary page of two megabytes takes a tenth of a second
MAX_MEMORY = 1 << 30  # address space of the process; the largest accepted page (10 MiB) needs half of it
MAX_TEXT_BYTES = 64 << 20  # longer text must be an attack


@dataclass(frozen=True, slots=True)
class PageText:
    title: str  # on one line; empty if there is none
    text: str  # as Markdown
    is_partial: bool = False  # whether deeply nested elements are missing
    has_hidden_text: bool = False  # whether hidden text was omitted
    refresh: tuple[str, ...] = ()  # targets of meta refreshes
    frames: tuple[str, ...] = ()  # targets of frames


class ConversionFailure(StrEnum):
    """Why a page was not converted to text. Each value ends a sentence about the page."""

    LATE = "the conversion took too long"
    ENDED = "the conversion process died, perhaps because the page needs too much memory"
    NOT_STARTED = "the conversion process cannot be started"


def page_text(
    page: str, url: str, signal: AbortSignal, seconds: float = MAX_SECONDS, memory: int = MAX_MEMORY
) -> PageText | ConversionFailure:
    """Convert HTML to text, in a process that is killed when the signal is set. Blocks the thread.

    Relative links are resolved against the page's URL. Without a URL, the text has no links. `memory` limits the
    address space of the process, in bytes.
    """
    with unnamed_file() as document:
        document.write(page.encode("utf-8", "replace"))
        document.seek(0)
        try:
            with DocumentWorker(
                "html", url, document=document, memory=memory, seconds=seconds, signal=signal
            ) as worker:
                answer = next(worker.messages(MAX_TEXT_BYTES), None)
                is_late = worker.deadline.is_over
        except ChildFailedError as error:
            logger.warning("a page is shown without conversion: %s", error)
            return ConversionFailure.NOT_STARTED
    signal.raise_if_aborted()
    if answer is None or answer["end"] != "done":
        return ConversionFailure.LATE if is_late else ConversionFailure.ENDED
    refresh, frames = tuple(answer["refresh"]), tuple(answer["frames"])
    return PageText(answer["title"], answer["text"], answer["is_partial"], answer["hides"], refresh, frames)


ERROR_CHARS = 10_000  # characters shown of a page with a status of 400 or above (as in Gemini CLI)
MAX_TARGET_CHARS = 500  # characters shown of the target of a refresh or frame
_WAIT = re.compile(r"\d{1,9}|[A-Za-z]{3}, [\w :-]{1,40}")  # a `Retry-After` value: seconds, or a date
# The content of a meta refresh: seconds, then a target
_REFRESH = re.compile(r"""(?i)[\d.]{1,20}[;,\s]\s{0,9}(?:url\s{0,9}=\s{0,9})?["']?([^"'\s]{1,8000})["']?""")
_HTML_TYPES = ("text/html", "application/xhtml+xml")
# Types that servers send for unknown files
_VAGUE_TYPES = ("", "application/octet-stream")


@dataclass(frozen=True, slots=True)
class Page:
    response: WebResponse  # the response, without its body
    size: int  # bytes of the body
    title: str = ""  # the title of an HTML page, on one line; not to be trusted
    text: str = ""  # the text of the page, sanitised; empty if the page is not text
    notes: tuple[str, ...] = ()  # sentences about how the page is shown
    media: tuple[Part, ...] = ()  # an image, audio or a PDF file instead of text

    @property
    def is_error(self) -> bool:
        return self.response.status >= 400

    @property
    def status(self) -> str:
        try:
            return f"{self.response.status} {HTTPStatus(self.response.status).phrase}"
        except ValueError:
            return str(self.response.status)


def page_of(response: WebResponse, page_format: Format, media: MediaHandling, signal: AbortSignal) -> Page:
    """Convert a response to a page. Blocks the thread and checks the signal between steps."""
    page = _convert(response, page_format, media, signal)
    notes = page.notes
    if response.truncation is not None:
        size = len(response.body)
        rest = f"Only its first {size:,} bytes were" if size > 1 else "Only its first byte was"
        notes = (f"{rest if size else 'None of its content was'} read: {response.truncation}.", *notes)
    if response.status in REDIRECTS and response.moved_to is None:
        notes = (f"It is a redirect ({page.status}) without a target.", *notes)
    wait = response.headers.get("retry-after", "")
    if page.is_error and _WAIT.fullmatch(wait):
        unit = "" if not wait.isdigit() else " second" if wait == "1" else " seconds"
        notes = (f"The server asks clients to wait before the next request: {wait}{unit} (Retry-After).", *notes)
    if refresh := response.headers.get("refresh"):
        notes = (*notes, *_target_notes(response, (refresh,), ()))
    text = sanitise(page.text)
    if page.is_error and len(text) > ERROR_CHARS:
        text = text[:ERROR_CHARS]
        notes = (*notes, f"Only the first {ERROR_CHARS:,} characters of this error page are kept.")
    return replace(page, response=replace(response, body=b""), title=sanitise(page.title[:500]), text=text, notes=notes)


def _target_notes(response: WebResponse, refreshes: Iterable[str], frames: Iterable[str]) -> Iterator[str]:
    """Yield a note that lists the refresh targets, then one that lists the frame targets. Omits invalid targets."""
    origin = parse_url(response.url)
    refresh_targets = [match[1] for text in refreshes if (match := _REFRESH.fullmatch(text.strip()))]
    for targets, description in (
        (refresh_targets, "It redirects browsers (refresh)"),
        (frames, "It shows other pages in frames"),
    ):
        urls: dict[str, None] = {}
        for target in targets:
            with suppress(UrlError):
                urls[origin.joined(target).url[:MAX_TARGET_CHARS]] = None
        if urls:
            yield f"{description}. Not fetched; call web_fetch for what you need: {' '.join(urls)}"


def _convert(response: WebResponse, page_format: Format, media: MediaHandling, signal: AbortSignal) -> Page:
    body, media_type, charset = response.body, response.media_type, response.charset
    is_cut = response.truncation is not None
    page = Page(response, len(body))
    if not body:
        is_empty = response.moved_to is None and response.truncation is None
        return replace(page, notes=("The response has no content.",)) if is_empty else page
    head = body[:SNIFFED_BYTES]
    file_type = detect(head, parse_url(response.url).path.partition("?")[0])
    # The stated type counts only if the first bytes are not those of an image, audio, video or PDF file.
    if file_type.kind in (FileKind.BINARY, FileKind.SVG, FileKind.NOTEBOOK, FileKind.TEXT):
        begins_as_html = head.lstrip().lower().startswith((b"<!doctype html", b"<html"))
        if media_type in _HTML_TYPES or (media_type in _VAGUE_TYPES and begins_as_html):
            source, note = decode(body, charset, is_markup=True, is_cut=is_cut)
            notes = (note,) if note else ()
            if page_format is Format.HTML:
                return replace(page, text=source, notes=notes)
            content = page_text(source, "" if page_format is Format.TEXT else response.url, signal)
            if isinstance(content, ConversionFailure):
                note = f"The page could not be converted to text, because {content}. This is its source."
                return replace(page, text=source, notes=(*notes, note))
            page = replace(page, title=content.title)
            notes = (*notes, *_target_notes(response, content.refresh, content.frames))
            if not content.text.strip():
                reason = "perhaps scripts create it in a browser, or its elements are nested too deeply"
                return replace(page, notes=(f"The page has no text; {reason}. format='html' shows its source.", *notes))
            if content.is_partial:
                notes = ("Deeply nested elements are missing; format='html' shows the source.", *notes)
            if content.has_hidden_text:
                notes = ("The page's hidden text is omitted; format='html' shows the source.", *notes)
            return replace(page, text=content.text, notes=notes)
    # UTF-16 text looks like binary data, so the stated type decides.
    is_utf_16 = (charset or "").startswith("utf-16")
    is_text = media_type.startswith("text/") or media_type.endswith(("json", "xml"))
    if file_type.kind in TEXT_KINDS or (is_utf_16 and is_text):
        text, note = decode(body, charset, is_markup=media_type.endswith("xml"), is_cut=is_cut)
        return replace(page, text=text, notes=(note,) if note else ())
    if file_type.kind is not FileKind.PDF:
        return _media(page, file_type, media)
    if not is_installed():
        from tools.machine.installation import install_command  # noqa: PLC0415 - needed only without the extra

        note = f"To see the text of PDF files, install the server's 'pdf' extra: {install_command('pdf')}"
        return _media(page, file_type, media, note)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(body)
            file.flush()
            descriptor = os.dup(file.fileno())
        with OpenedFile(descriptor) as pdf_file:
            name = parse_url(response.url).authority
            pdf = extract(pdf_file, name, pages=ALL_PAGES, is_enough=lambda _text: False, signal=signal)
    except ToolError as error:
        signal.raise_if_aborted()
        return replace(page, notes=(error.message,))
    if pdf is None or not pdf.has_words:
        return _media(page, file_type, media, "The PDF has no text; it may be scanned.")
    if pdf.is_complete:
        return replace(page, text=pdf.text)
    note = f"Only {pdf.page_range} could be read: {pdf.stop_reason}."
    return replace(page, text=pdf.text, notes=(note,))


def _media(page: Page, file_type: FileType, handling: MediaHandling, *notes: str) -> Page:
    response = page.response
    if file_type.kind in (FileKind.BINARY, FileKind.VIDEO):
        return replace(page, notes=("It is neither text nor an image, so it is not shown.", *notes))
    if handling is MediaHandling.NOTICE:
        return replace(page, notes=("It is not shown: this server omits media from results (setting: media).", *notes))
    if handling is MediaHandling.INLINE and page.size <= MAX_INLINE_BYTES and response.truncation is None:
        return replace(page, media=(InlineDataPart(file_type.mime_type, response.body, response.url),), notes=notes)
    target = parse_url(response.url)
    name = os.path.basename(target.path.partition("?")[0]) or target.host
    link = FileDataPart(response.url, name, file_type.mime_type, page.size)
    return replace(page, notes=("It is sent as a link.", *notes), media=(link,))
