"""Reading one opened file of any kind: the body of `read_file`, and of each file in `read_many_files`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tools.contract.context import AbortSignal, Limits, MediaHandling
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.result import Part, TextPart
from tools.filesystem.descriptors import OpenedFile
from tools.filesystem.media import FileKind, detect, media_parts
from tools.filesystem.reading.line_window import FileSource, MemorySource, Wanted, Window, window
from tools.filesystem.reading.notebook import MAX_NOTEBOOK_BYTES, render
from tools.filesystem.text import (
    REPLACEMENT,
    SNIFFED_BYTES,
    UNKNOWN,
    UTF_8,
    Decoded,
    Encoding,
    count_lines,
    decode,
    eol_style,
    line_separator,
    marked_encoding,
)
from tools.filesystem.workspace import Location, explain

HASHED_BYTES = 8_000_000
"""Up to this size a file is read whole, so that its digest and its encoding are known."""

HEAD_BYTES = 1 << 16
"""Read at first: enough to tell what a file is, and the whole of most source files."""

MAX_WIDE_BYTES = 64_000_000
"""UTF-16 and UTF-32 are converted in memory before lines are counted; larger files are refused."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read of a file gives.

    Args:
        parts: The content for the model, never empty. For text exactly one `TextPart`: the lines as they are in
            the file, after a header where something was left out.
        kind: What the file was shown as.
        start: Number of the first line shown, from 1; 0 where no line is shown (empty files, media). Negative,
            counted from the end (-1 is the last line), where the file is too large to be counted.
        end: Number of the last line shown, counted like `start`.
        total: Lines in the file, or `None` where it is not known (or not text). A final line ending ends the last
            line and starts no other one.
        truncated: Lines after `end` were left out; `next_offset` continues there.
        shortened: At least one line was cut at `Limits.line_chars`.
        chars: Characters of the file's text in `parts`, header not counted; 0 for media.
        encoding: Name of the encoding, `unknown-8bit` where it is none we know, `None` for media and binary files.
        sha256: Hex digest of the whole content where the whole file was read or it is at most 8 MB, else `None`.
        eol: `lf`, `crlf`, `cr` or `mixed` as far as it was looked at; `None` where there is no line ending.
        next_offset: The `offset` that continues after `end`, or `None` where nothing follows.
    """

    parts: tuple[Part, ...]
    kind: FileKind
    start: int
    end: int
    total: int | None
    truncated: bool
    shortened: bool
    chars: int
    encoding: str | None
    sha256: str | None
    eol: str | None = None
    next_offset: int | None = None


def read(
    opened: OpenedFile,
    location: Location,
    *,
    offset: int,
    limit: int | None,
    limits: Limits,
    media: MediaHandling,
    signal: AbortSignal,
) -> Reading:
    """Read a file for a model. Blocking: call it in a worker thread.

    Memory does not grow with the file: text is streamed, media above 3 MB become a reference.

    Args:
        opened: The file, at its beginning.
        location: Where it lies, for messages and URIs.
        offset: The first line, from 0; a negative one counts from the end.
        limit: How many lines, or `None` for `limits.read_lines`. `limits.read_chars` holds in any case.
        limits: What one read may return.
        media: What becomes of images and the like.
        signal: Looked at between blocks.

    Returns:
        What was read. An offset past the end is no failure: the text then says how many lines there are.

    Raises:
        ToolError: `read_content_failure` if the file cannot be read, `file_too_large` for UTF-16 and UTF-32 above
            64 MB, `cancelled`.
    """
    try:
        head = opened.head(HEAD_BYTES)
        file_type = detect(head[:SNIFFED_BYTES], location.path)
        if not file_type.kind.is_text:
            parts = media_parts(opened, location, file_type, media, signal)
            return Reading(parts, file_type.kind, 0, 0, None, False, False, 0, None, None)
        if file_type.kind is FileKind.NOTEBOOK and opened.info.st_size <= MAX_NOTEBOOK_BYTES:
            rendered = _read_notebook(_read_all(opened, head, signal), offset, limit, limits, signal)
            if rendered is not None:
                return rendered
        reading = _read_text(opened, location, head, Wanted(offset, limit or limits.read_lines, limits, signal))
    except OSError as error:
        raise explain(error, location.spelled) from None
    return reading if file_type.kind is FileKind.TEXT else replace(reading, kind=file_type.kind)


def _read_text(opened: OpenedFile, location: Location, head: bytes, wanted: Wanted) -> Reading:
    size = opened.info.st_size
    encoding = marked_encoding(head) or UTF_8
    if encoding.is_wide and size > MAX_WIDE_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"'{location.spelled}' is {encoding.name} text of {size:,} bytes; above {MAX_WIDE_BYTES:,} bytes only "
            "UTF-8 can be read by lines. Convert it first, for example with iconv, and read the copy.",
        )
    if encoding.is_wide or size <= HASHED_BYTES:
        return _read_known(_read_all(opened, head, wanted.signal), wanted)
    found = window(FileSource(opened.stream, size, len(encoding.bom)), wanted, opened.identity)
    reading = _reading(found, encoding, wanted.limits)
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
        is_wide = decoded.encoding.is_wide
        body = decoded.text.encode() if is_wide else data[len(decoded.encoding.bom) :]
    reading = _reading(window(MemorySource(body), wanted), decoded.encoding, wanted.limits)
    return replace(reading, eol=eol_style(decoded.text), sha256=digest)


def _read_whole(decoded: Decoded, digest: str | None, wanted: Wanted) -> Reading | None:
    """A text of which nothing has to be left out; most files are, and they come without looking for lines."""
    text, limits = decoded.text, wanted.limits
    if len(text) > limits.read_chars or not decoded.encoding.is_known:
        return None
    eol = eol_style(text)
    separator = line_separator(text)
    count = count_lines(text, separator)
    if count > wanted.limit or (len(text) > limits.line_chars and _longest(text, separator) > limits.line_chars):
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
        eol=eol,
    )


def _longest(text: str, separator: str) -> int:
    return max(map(len, text.split(separator)))


def _read_notebook(data: bytes, offset: int, limit: int | None, limits: Limits, signal: AbortSignal) -> Reading | None:
    text = render(data)
    if text is None:
        return None
    wanted = Wanted(offset, limit or limits.read_lines, limits, signal)
    found = window(MemorySource(text.encode("utf-8", "replace")), wanted)
    digest = hashlib.sha256(data).hexdigest()
    return replace(_reading(found, UTF_8, limits), kind=FileKind.NOTEBOOK, sha256=digest)


def _reading(found: Window, encoding: Encoding, limits: Limits) -> Reading:
    """What a window of lines is for the model."""
    is_known = found.is_decodable and encoding.is_known
    start = found.first + 1 if found.first >= 0 else found.first
    following = None if found.reaches_end else found.first + found.count
    reading = Reading(
        parts=(),
        kind=FileKind.TEXT,
        start=start if found.count else 0,
        end=start + found.count - 1 if found.count else 0,
        total=found.total,
        truncated=following is not None,
        shortened=found.shortened,
        chars=found.chars,
        encoding=encoding.name if is_known else UNKNOWN.name,
        sha256=None,
        eol=eol_style(found.text),
        next_offset=following,
    )
    if not found.count:
        return replace(reading, parts=(TextPart(_nothing(found)),))
    header = _header(reading, found, limits, is_known=is_known)
    return replace(reading, parts=(TextPart(f"{header}\n\n---\n\n{found.text}" if header else found.text),))


def _nothing(found: Window) -> str:
    """What is said where no line is shown: nothing of an empty file."""
    if found.total == 0:
        return "" if found.first <= 0 else f"The file is empty; offset {found.first} lies past its end."
    noun = "line" if found.total == 1 else "lines"
    return (
        f"The file has {found.total} {noun}; offset {found.first} lies past its end. "
        f"The last line is at offset {(found.total or 1) - 1}, and at offset -1."
    )


def _header(reading: Reading, found: Window, limits: Limits, *, is_known: bool) -> str:
    """Tells what was left out; empty if nothing was."""
    is_whole = reading.start <= 1 and found.reaches_end and reading.start >= 0
    if is_whole and not reading.shortened and is_known:
        return ""
    if reading.start < 0:
        sentences = [f"Showing lines {reading.start} to {reading.end}, counted from the end (-1 is the last line)."]
    else:
        total = reading.total if reading.total is not None else f"at least {found.at_least}"
        sentences = [f"Showing lines {reading.start}-{reading.end} of {total} total lines."]
    if reading.next_offset is not None:
        sentences.append(f"To read on, continue with offset={reading.next_offset}.")
    if reading.shortened:
        cut = min(limits.line_chars, limits.read_chars)
        sentences.append(f"Lines longer than {cut} characters were cut; grep_search can look into them.")
    if not is_known:
        sentences.append(
            "The file is neither UTF-8 nor UTF-16 or UTF-32 with a mark: "
            f"what could not be decoded is shown as {REPLACEMENT}."
        )
    return " ".join(sentences)


def _read_all(opened: OpenedFile, head: bytes, signal: AbortSignal) -> bytes:
    """The whole content; of a small file that is the head read already."""
    size = opened.info.st_size
    if len(head) == size < HEAD_BYTES:
        return head
    return b"".join(opened.blocks(signal))


def _digest(opened: OpenedFile, signal: AbortSignal) -> str:
    digest = hashlib.sha256()
    for block in opened.blocks(signal):
        digest.update(block)
    return digest.hexdigest()
