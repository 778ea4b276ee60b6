"""The work of `read_file`: the file is opened, read as what it is, and remembered as seen."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.call.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.limits import AbortSignal, Limits, MediaHandling
from tools.contract.names_on_one_line import sendable_name
from tools.contract.results import Part, TextPart, ToolResult
from tools.files.ignore_files import refuse_hidden
from tools.files.line_endings import count_lines, eol_style, line_separator
from tools.files.opener import OpenedFile
from tools.files.read.line_window import FileSource, MemorySource, Reading, Wanted, reading_of, window
from tools.files.read.media import TEXT, FileKind, FileType, detect, media_parts
from tools.files.read.notebook import MAX_NOTEBOOK_BYTES, render
from tools.files.read.pdf import ALL_PAGES, MAX_SECONDS, Pages, read_pdf
from tools.files.read_ledger import SeenFile
from tools.files.text_encodings import SNIFFED_BYTES, UNKNOWN, UTF_8, Decoded, Guess, decode, guess, marked_encoding
from tools.files.workspace import Location, explain

if TYPE_CHECKING:
    from tools.builtin.read_file import ReadFileParams


HASHED_BYTES = 8_000_000
"""Up to this size a file is read whole, so that its digest and its encoding are known."""

HEAD_BYTES = 1 << 16
"""Read at first: enough to tell what a file is, and the whole of most source files."""

MAX_WIDE_BYTES = 64_000_000
"""UTF-16 and UTF-32 are converted in memory before lines are counted; larger files are refused."""


class Beginning(NamedTuple):
    """What was seen of an opened file at first.

    Args:
        head: Its first bytes; all of them if it has less than `HEAD_BYTES`.
        type: What they tell of it.
    """

    head: bytes
    type: FileType


def look_at(opened: OpenedFile, location: Location) -> Beginning:
    """See what a file is, before anybody decides whether it is read.

    Raises:
        ToolError: `read_content_failure`.
    """
    try:
        head = opened.head(HEAD_BYTES)
    except OSError as error:
        raise explain(error, location.shown) from None
    return Beginning(head, detect(head[:SNIFFED_BYTES], location.path))


class PlainText(NamedTuple):
    """The whole of a file that is UTF-8 without a mark, as most are.

    Args:
        text: Its text.
        sha256: Hex digest of its content.
    """

    text: str
    sha256: str


def plain_text(opened: OpenedFile, beginning: Beginning, wanted: Wanted) -> PlainText | None:
    """The quick way to what `read_on` shows of most small files; `None` where it takes more to show the file."""
    data = beginning.head
    is_all = len(data) == opened.info.st_size < HEAD_BYTES
    if not is_all or beginning.type is not TEXT or wanted.offset or marked_encoding(data) is not None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if _lines_if_whole(text, line_separator(text), wanted) is None:
        return None
    return PlainText(text, hashlib.sha256(data).hexdigest())


def read(
    opened: OpenedFile,
    location: Location,
    *,
    offset: int,
    limit: int | None,
    limits: Limits,
    media: MediaHandling,
    signal: AbortSignal,
    pages: Pages = ALL_PAGES,
    pdf_seconds: float = MAX_SECONDS,
) -> Reading:
    """Read a file for a model. Blocking: call it in a worker thread.

    Memory does not grow with the file: text is streamed, media above 3 MB become a reference, and the text of a PDF
    is taken out by a process of its own.

    Args:
        opened: The file, at its beginning.
        location: Where it lies, for messages and URIs.
        offset: The first line, from 0; a negative one counts from the end.
        limit: How many lines, or `None` for `limits.read_lines`. `limits.read_chars` holds in any case.
        limits: What one read may return.
        media: What becomes of images and the like.
        signal: Looked at between blocks.
        pages: Of a PDF, those whose text is wanted; `offset` and `limit` count lines of that text.
        pdf_seconds: How long taking the text out of a PDF may last.

    Returns:
        What was read. An offset past the end is no failure: the text then says how many lines there are.

    Raises:
        ToolError: `read_content_failure` if the file cannot be read, `file_too_large` for UTF-16 and UTF-32 above
            64 MB, `invalid_tool_params` for a page that a PDF does not have, `cancelled`.
    """
    beginning = look_at(opened, location)
    wanted = Wanted(offset, limit or limits.read_lines, limits, signal)
    return read_on(opened, location, beginning, wanted, media, pages=pages, pdf_seconds=pdf_seconds)


def read_on(
    opened: OpenedFile,
    location: Location,
    beginning: Beginning,
    wanted: Wanted,
    media: MediaHandling,
    *,
    pages: Pages = ALL_PAGES,
    pdf_seconds: float = MAX_SECONDS,
) -> Reading:
    """Read a file that was looked at; `read` says the rest."""
    head, kind = beginning.head, beginning.type.kind
    try:
        if kind is FileKind.TEXT:
            return _read_text(opened, location, head, wanted)
        if kind is FileKind.PDF:
            return read_pdf(opened, location, media, wanted, pages=pages, seconds=pdf_seconds)
        if not kind.is_text:
            parts = media_parts(opened, location, beginning.type, media, wanted.signal)
            return Reading(parts, kind, 0, 0, None, False, False, 0, None, None)
        if kind is FileKind.NOTEBOOK and opened.info.st_size <= MAX_NOTEBOOK_BYTES:
            rendered = _read_notebook(_read_all(opened, head, wanted.signal), wanted)
            if rendered is not None:
                return rendered
        return replace(_read_text(opened, location, head, wanted), kind=kind)
    except OSError as error:
        raise explain(error, location.shown) from None


def _read_text(opened: OpenedFile, location: Location, head: bytes, wanted: Wanted) -> Reading:
    size = opened.info.st_size
    if size <= HASHED_BYTES:
        return _read_known(_read_all(opened, head, wanted.signal), wanted)
    encoding = marked_encoding(head) or UTF_8
    if encoding.is_wide and size > MAX_WIDE_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"'{location.shown}' is {encoding.name} text of {size:,} bytes; above {MAX_WIDE_BYTES:,} bytes only "
            "UTF-8 can be read by lines. Convert it first, for example with iconv, and read the copy.",
        )
    if encoding.is_wide:
        return _read_known(_read_all(opened, head, wanted.signal), wanted)
    found = window(FileSource(opened.stream, size, len(encoding.bom)), wanted, opened.identity)
    if not found.is_decodable and not encoding.bom and size <= MAX_WIDE_BYTES:
        return _read_known(_read_all(opened, head, wanted.signal), wanted)
    reading = reading_of(found, encoding, wanted.limits)
    is_whole = reading.start == 1 and found.reaches_end and not found.shortened
    return replace(reading, sha256=_digest(opened, wanted.signal)) if is_whole else reading


def _read_known(data: bytes, wanted: Wanted) -> Reading:
    """Read from the whole content of a file."""
    decoded = decode(data)
    digest = hashlib.sha256(data).hexdigest() if len(data) <= HASHED_BYTES else None
    whole = _read_whole(decoded, digest, wanted) if decoded is not None and wanted.offset == 0 else None
    if whole is not None:
        return whole
    if decoded is None:
        # The mark promises an encoding that the bytes do not keep; what can be read of it is shown.
        marked = marked_encoding(data) or UTF_8
        decoded = Decoded(data[len(marked.bom) :].decode(marked.codec, "replace"), UNKNOWN)
        body = decoded.text.encode()
    else:
        guessed = guess(data) if not decoded.encoding.is_known and marked_encoding(data) is None else None
        if guessed is not None:
            return _read_guess(guessed, digest, wanted)
        is_wide = decoded.encoding.is_wide
        body = decoded.text.encode() if is_wide else data[len(decoded.encoding.bom) :]
    reading = reading_of(window(MemorySource(body), wanted), decoded.encoding, wanted.limits)
    return replace(reading, eol=eol_style(decoded.text), sha256=digest)


def _read_guess(guessed: Guess, digest: str | None, wanted: Wanted) -> Reading:
    """A text in an encoding that it does not say itself."""
    text = guessed.decoded.text
    note = f"The file is neither UTF-8 nor has it a byte order mark: it is shown as {guessed.name}, {guessed.how}."
    found = window(MemorySource(text.encode()), wanted)
    reading = reading_of(found, guessed.decoded.encoding, wanted.limits, [note])
    return replace(reading, eol=eol_style(text), sha256=digest, is_guess=True)


def _read_whole(decoded: Decoded, digest: str | None, wanted: Wanted) -> Reading | None:
    """A text of which nothing has to be left out; most files are, and they come without looking for lines."""
    text = decoded.text
    count = _lines_if_whole(text, line_separator(text), wanted) if decoded.encoding.is_known else None
    if count is None:
        return None
    return Reading(
        parts=(TextPart(text),),
        kind=FileKind.TEXT,
        start=min(1, count),
        end=count,
        total=count,
        truncated=False,
        shortened=False,
        chars=len(text),
        encoding=decoded.encoding.name,
        sha256=digest,
        eol=eol_style(text),
    )


def _lines_if_whole(text: str, separator: str, wanted: Wanted) -> int | None:
    """How many lines a text has; `None` if any of it has to be left out."""
    size, limits = len(text), wanted.limits
    if size > limits.read_chars:
        return None
    count = count_lines(text, separator)
    if count > wanted.limit:
        return None
    is_short = size <= limits.line_chars or max(map(len, text.split(separator))) <= limits.line_chars
    return count if is_short else None


def _read_notebook(data: bytes, wanted: Wanted) -> Reading | None:
    text = render(data)
    if text is None:
        return None
    found = window(MemorySource(text.encode("utf-8", "replace")), wanted)
    digest = hashlib.sha256(data).hexdigest()
    return replace(reading_of(found, UTF_8, wanted.limits), kind=FileKind.NOTEBOOK, sha256=digest)


def _read_all(opened: OpenedFile, head: bytes, signal: AbortSignal) -> bytes:
    """The whole content; of a small file that is the head read already."""
    size = opened.info.st_size
    if len(head) == size < HEAD_BYTES:
        return head
    return opened.whole(signal)


def _digest(opened: OpenedFile, signal: AbortSignal) -> str:
    digest = hashlib.sha256()
    for block in opened.blocks(signal):
        digest.update(block)
    return digest.hexdigest()


_AS_TEXT = {
    FileKind.NOTEBOOK: "Read notebook",
    FileKind.SVG: "Read SVG as text",
    FileKind.PDF: "Read PDF as text",
}
"""What a person is told of a file that is shown as another text than it holds."""


class FileReader:
    """Shows one file.

    Args:
        tool: The name of the tool, for errors.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def check(self, params: ReadFileParams) -> None:
        """The pages are a run of pages.

        Raises:
            InvalidToolParamsError: They are not.
        """
        try:
            _pages(params)
        except ValueError:
            raise InvalidToolParamsError(
                self._tool, f"'pages' must be like '3', '10-15' or '8-', counted from 1; got {params.pages!r}."
            ) from None

    def read(self, params: ReadFileParams, context: ToolContext) -> ToolResult:
        """Read, blocking, and remember what was seen.

        Raises:
            ToolError: There is no such file, or it cannot or may not be read.
        """
        location = context.workspace.locate(params.absolute_path)
        refuse_hidden(context.workspace, location, "read")
        with context.workspace.open_file(location) as opened:
            reading = read(
                opened,
                location,
                offset=params.offset,
                limit=params.limit,
                limits=context.limits,
                media=context.media,
                signal=context.signal,
                pages=_pages(params),
            )
            identity = opened.identity
        if context.client.reads is not None:
            context.client.reads.record(location.path, SeenFile(identity, reading.sha256))
        parts: list[Part] = list(reading.parts)
        if reading.kind is FileKind.PDF and not reading.is_text and (params.pages or "").strip():
            parts.append(
                TextPart("Without its text no pages can be picked: 'pages' was ignored, this is the whole document.")
            )
        return ToolResult(
            llm_content=parts, return_display=_display(reading, location), facts=_facts(reading, location)
        )


def _pages(params: ReadFileParams) -> Pages:
    """The pages that are asked for; a blank text asks for all (as in Qwen Code).

    Raises:
        ValueError: It is no run of pages.
    """
    wanted = (params.pages or "").strip()
    return Pages.parse(wanted) if wanted else ALL_PAGES


def _facts(reading: Reading, location: Location) -> dict[str, Any]:
    known: dict[str, Any] = {"path": sendable_name(location.path), "kind": reading.kind.value, "sha256": reading.sha256}
    if reading.is_text:
        known |= {
            "start": reading.start,
            "end": reading.end,
            "total": reading.total,
            "encoding": reading.encoding,
            "encoding_is_guess": reading.is_guess or None,
            "eol": reading.eol,
            "truncated": reading.truncated or reading.shortened,
            "next_offset": reading.next_offset,
            "pages": reading.pages,
        }
    return {name: value for name, value in known.items() if value is not None}


def _display(reading: Reading, location: Location) -> str:
    """One line for a person; nothing for a text that is shown whole."""
    name = location.relative
    if reading.kind is FileKind.BINARY:
        return f"Skipped binary file: {name}"
    if not reading.is_text:
        return f"Read {reading.kind.value} file: {name}"
    if reading.kind in _AS_TEXT:
        return f"{_AS_TEXT[reading.kind]}: {name}"
    if not reading.truncated and reading.start in {0, 1} and not reading.shortened:
        return ""
    total = f" of {reading.total}" if reading.total is not None else ""
    lines = f"{reading.start}-{reading.end}" if reading.start > 0 else f"{reading.start} to {reading.end}"
    notes = (" (truncated)" if reading.truncated else "") + (" (some lines shortened)" if reading.shortened else "")
    return f"Read lines {lines}{total} from {name}{notes}"
