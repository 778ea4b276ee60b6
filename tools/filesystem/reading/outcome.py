"""What a read of a file gives: the lines for the model, and what is told of those left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tools.contract.context import Limits
from tools.contract.result import Part, TextPart
from tools.filesystem.reading.line_window import Window
from tools.filesystem.reading.media import FileKind
from tools.filesystem.text import REPLACEMENT, UNKNOWN, Encoding, eol_style


@dataclass(slots=True)
class Reading:
    """What one read of a file gives. Never changed; freezing it would only triple what it costs to make one.

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
        pages: How many pages a PDF has whose text is shown, else `None`.
        is_guess: `encoding` is a guess; the text says so.
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
    pages: int | None = None
    is_guess: bool = False

    @property
    def is_text(self) -> bool:
        """Whether lines of text are shown."""
        return self.kind.is_text or self.pages is not None


def reading_of(found: Window, encoding: Encoding, limits: Limits, notes: Sequence[str] = ()) -> Reading:
    """What a window of lines is for the model.

    Args:
        found: The window.
        encoding: Of the file.
        limits: What the window was cut at.
        notes: Sentences about what is shown, for the header; with any of them there is one.
    """
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
    header = _header(reading, found, limits, notes, is_known=is_known)
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


def _header(reading: Reading, found: Window, limits: Limits, notes: Sequence[str], *, is_known: bool) -> str:
    """Tells what was left out; empty if nothing was."""
    is_whole = reading.start <= 1 and found.reaches_end and reading.start >= 0
    if is_whole and not reading.shortened and is_known:
        return " ".join(notes)
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
    return " ".join([*sentences, *notes])
