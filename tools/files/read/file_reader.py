"""Reads an opened file according to its type: lines of text, cells of a notebook, pages of a PDF, or media."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tools.contract.call_options import AbortSignal, Limits, MediaHandling
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import TextPart
from tools.files.find.path_suggestions import missing_path_error
from tools.files.ignore_files import refuse_hidden
from tools.files.notebook_cells import MAX_NOTEBOOK_BYTES, render
from tools.files.path_opener import OpenedFile, identity_of, may_block
from tools.files.read.line_window import CharRange, LineRequest, Reading, Source, reading_of, window
from tools.files.read.media_files import HEAD_BYTES, TEXT_KINDS, FileKind, FileType, detect, media_parts
from tools.files.read.pdf import ALL_PAGES, MAX_SECONDS, Pages, read_pdf
from tools.files.text_encodings import UTF_8, count_lines, eol_style, marked_encoding, shown_text
from tools.files.workspace import Location, ReadLedger, SeenFile, Workspace, explain
from tools.text.file_names import exact_path

HASHED_BYTES = 8_000_000  # files up to this size are read in full, so that their digest and encoding are known
# UTF-16 and UTF-32 are converted in memory before counting lines; larger files in these encodings are refused
MAX_WIDE_BYTES = 64_000_000
EMPTY = "[The file is empty.]"


def read_beginning(file: OpenedFile, location: Location) -> tuple[FileType, bytes]:
    """Return the type of a file and its first `HEAD_BYTES` bytes, which decide how `read` reads the file."""
    try:
        head = file.head(HEAD_BYTES)
    except OSError as error:
        raise explain(error, location.shown) from None
    return detect(head, location.path), head


def read_path(
    workspace: Workspace,
    path: str,
    *,
    offset: int,
    limit: int | None,
    pages: str,
    chars: CharRange | None,
    limits: Limits,
    media: MediaHandling,
    signal: AbortSignal,
    reads: ReadLedger | None,
) -> tuple[Reading, Location]:
    """Read a file for a model, and record what the model has seen. Blocking: call it in a worker thread.

    A negative offset counts lines from the end. `pages` selects pages of a PDF; blank means all. `chars` selects
    characters of the line at the offset.
    """
    location = workspace.locate(path, by_look=True)
    refuse_hidden(workspace, location, "read", own_files=False)
    request = LineRequest(offset, limit or limits.read_lines, limits, signal, chars)
    try:
        file = workspace.open_file(location)
    except ToolError as error:
        if error.code is ToolErrorType.TARGET_IS_DIRECTORY:
            refuse_hidden(workspace, location, "read")
        if error.code is ToolErrorType.FILE_NOT_FOUND:
            raise missing_path_error(workspace, location, signal) from None
        raise
    with file:
        file_type, head = read_beginning(file, location)
        reading = read(file, location, file_type, head, request, media, pages=Pages.parse(pages))
    if reads is not None:
        reads.record(location.path, SeenFile(identity_of(file.info), reading.sha256), reading.content)
    notes: list[str] = []
    if pages.strip() and reading.kind is FileKind.PDF and not reading.is_text:
        notes.append(
            "Pages can be selected only if a PDF is shown as text, so 'pages' was ignored: this is the whole document."
        )
    if location.by_look:
        notes.append(f"[The file's name only looks like the one you gave. It is {exact_path(location.name)}]")
    parts = (TextPart(EMPTY),) if reading.parts == (TextPart(""),) else reading.parts
    if notes or parts is not reading.parts:
        reading = replace(reading, parts=(*parts, *map(TextPart, notes)))
    return reading, location


def read(
    file: OpenedFile,
    location: Location,
    file_type: FileType,
    head: bytes,
    request: LineRequest,
    media: MediaHandling,
    *,
    pages: Pages = ALL_PAGES,
    pdf_seconds: float = MAX_SECONDS,
) -> Reading:
    """Read an opened file, after `read_beginning`. Blocking: call it in a worker thread.

    Memory use is limited: large UTF-8 text is streamed, media above 3 MB are never returned inline, and another process
    extracts the text of a PDF. For a PDF, the lines in `request` are counted within the text of `pages`. An
    offset past the end is not a failure; the text then says how many lines there are.

    Raises:
        ToolError: `read_content_failure` if the file cannot be read, `file_too_large` for UTF-16 and UTF-32 above
            64 MB, `invalid_tool_params` for a page that a PDF does not have, `cancelled`.
    """
    kind, size = file_type.kind, file.info.st_size
    if kind is not FileKind.TEXT:
        may_block()
    try:
        if kind is FileKind.PDF:
            return read_pdf(file, location, media, request, pages=pages, seconds=pdf_seconds)
        if kind not in TEXT_KINDS:
            return Reading(media_parts(file, location, file_type, media, request.signal), kind, is_text=False)
        is_notebook, data = kind is FileKind.NOTEBOOK and size <= MAX_NOTEBOOK_BYTES, b""
        if is_notebook or size <= HASHED_BYTES:
            data = head if len(head) == size < HEAD_BYTES else file.whole(request.signal)
        if is_notebook and (text := render(data)) is not None:
            line_window = window(Source.from_bytes(text.encode("utf-8", "replace")), request)
            sha256 = hashlib.sha256(data).hexdigest()
            return replace(reading_of(line_window, UTF_8, request.limits), kind=kind, sha256=sha256, content=data)
        if size <= HASHED_BYTES:
            reading = _read_text(data, request)
            reading.content = data
        else:
            reading = _read_large_text(file, location, head, request)
        return reading if kind is FileKind.TEXT else replace(reading, kind=kind)
    except OSError as error:
        raise explain(error, location.shown) from None


def _read_large_text(file: OpenedFile, location: Location, head: bytes, request: LineRequest) -> Reading:
    size, encoding = file.info.st_size, marked_encoding(head) or UTF_8
    if encoding.is_wide and size > MAX_WIDE_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"'{location.shown}' is {encoding.name} text of {size:,} bytes. {encoding.name} files above "
            f"{MAX_WIDE_BYTES:,} bytes cannot be read. Convert this one to UTF-8 first, for example with iconv, and "
            "read the copy.",
        )
    if encoding.is_wide:
        return _read_text(file.whole(request.signal), request)
    line_window = window(Source(file.stream, size, len(encoding.bom)), request, identity_of(file.info))
    if not line_window.is_decodable and not encoding.bom and size <= MAX_WIDE_BYTES:
        return _read_text(file.whole(request.signal), request)
    reading = reading_of(line_window, encoding, request.limits)
    if reading.start != 1 or not line_window.reaches_end or reading.shortened:
        return reading
    digest = hashlib.sha256()
    for block in file.blocks(request.signal):
        digest.update(block)
    return replace(reading, sha256=digest.hexdigest())


def _read_text(data: bytes, request: LineRequest) -> Reading:
    sha256 = hashlib.sha256(data).hexdigest() if len(data) <= HASHED_BYTES else None
    decoded, limits = shown_text(data), request.limits
    text, encoding, eol = decoded.text, decoded.encoding, eol_style(decoded.text)
    is_whole = request.offset == 0 and request.chars is None and len(text) <= limits.read_chars
    if is_whole and encoding.is_known and not decoded.note and "\0" not in text:
        # Most files are within the limits, so there is no need to search for lines.
        separator = "\r" if eol == "cr" else "\n"
        count = count_lines(text, separator)
        has_short_lines = len(text) <= limits.line_chars or max(map(len, text.split(separator))) <= limits.line_chars
        if count <= request.limit and has_short_lines:
            return Reading(
                parts=(TextPart(text),),
                kind=FileKind.TEXT,
                start=min(1, count),
                end=count,
                total=count,
                chars=len(text),
                encoding=encoding.name,
                sha256=sha256,
                eol=eol,
            )
    note = f"The file is not UTF-8 and has no byte order mark. It is shown as {encoding.name}, {decoded.note}."
    line_window = window(Source.from_bytes(decoded.body), request)
    reading = reading_of(line_window, encoding, limits, [note] if decoded.note else [])
    return replace(reading, eol=eol, sha256=sha256, is_guess=bool(decoded.note))
