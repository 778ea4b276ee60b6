"""What the bytes of a text file mean: byte order mark, encoding, line endings.

Three cases are told apart. A byte order mark names the encoding. Without one, bytes that are strictly valid UTF-8
are UTF-8. Everything else is text in an encoding that it does not say: it may be changed byte for byte where only
ASCII is concerned, but it is never encoded anew. What it may be is guessed by `tools.files.encoding_guess`.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Literal

SNIFFED_BYTES = 4096
"""How much of a file's beginning decides whether it is text (Qwen Code looks at the first 4 KB)."""

MAX_CONTROL_SHARE = 0.3
"""Text with more control characters than this is taken for binary data (Qwen Code's 30 %)."""

REPLACEMENT = "\ufffd"
"""What an undecodable byte is shown as. Never a sign of failure by itself: a file may hold this character."""

UNKNOWN_8BIT = "unknown-8bit"
"""The name of an encoding that we do not know (as registered by IANA for exactly this)."""

Eol = Literal["lf", "crlf", "cr", "mixed"]

_CONTROLS = bytes([*range(9), *range(14, 32)])
_ANY_ENDING = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How text is kept in bytes.

    Args:
        name: As told to the model, for example `utf-8`, `utf-8-bom`, `utf-16-le`.
        codec: Python's codec for the bytes after the mark.
        bom: The byte order mark, or nothing.
        shown_as: Of an unknown encoding, the codec that the text is shown in; a guess, never written by.
    """

    name: str
    codec: str
    bom: bytes = b""
    shown_as: str = "utf-8"

    @property
    def is_known(self) -> bool:
        """Whether any text may be written in it."""
        return self.name != UNKNOWN_8BIT

    @property
    def is_wide(self) -> bool:
        """Whether its line ending is more than one byte, so that bytes cannot be searched for it."""
        return self.codec.startswith(("utf-16", "utf-32"))


UTF_8 = Encoding("utf-8", "utf-8")

UNKNOWN = Encoding(UNKNOWN_8BIT, "latin-1")
"""Latin-1 maps each byte to one character and back, so the bytes stay what they are whatever they mean."""

_MARKED = (
    Encoding("utf-8-bom", "utf-8", codecs.BOM_UTF8),
    # UTF-32 LE begins like UTF-16 LE, so it is asked for first.
    Encoding("utf-32-le", "utf-32-le", codecs.BOM_UTF32_LE),
    Encoding("utf-32-be", "utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("utf-16-le", "utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("utf-16-be", "utf-16-be", codecs.BOM_UTF16_BE),
)

_FIRST_OF_MARKS = {encoding.bom[:1] for encoding in _MARKED}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A whole file as text.

    Args:
        text: Without the byte order mark; line endings as they are. For an unknown encoding one character for
            each byte, of which only the ASCII ones mean what they say.
        encoding: `encode` with it gives back the bytes, every one of them.
    """

    text: str
    encoding: Encoding

    def shown(self) -> str:
        """The text as a person or a model may see it."""
        if self.encoding.is_known:
            return self.text
        return self.text.encode("latin-1").decode(self.encoding.shown_as, "replace")


def marked_encoding(head: bytes) -> Encoding | None:
    """The encoding that a byte order mark names, or `None` without one."""
    if head[:1] not in _FIRST_OF_MARKS:
        return None
    return next((encoding for encoding in _MARKED if head.startswith(encoding.bom)), None)


def is_utf8(head: bytes) -> bool:
    """Whether the beginning of a file is valid UTF-8; a character cut at its end does not count."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def looks_binary(head: bytes) -> bool:
    """Whether the first bytes of a file without a byte order mark are no text."""
    sample = head[:SNIFFED_BYTES]
    if b"\0" in sample:
        return True
    size = len(sample)
    return size - len(sample.translate(None, _CONTROLS)) > MAX_CONTROL_SHARE * size


def decode(data: bytes) -> Decoded | None:
    """Decode a whole file so that encoding it again gives the same bytes.

    Returns:
        The text, or `None` if a byte order mark promises UTF-16 or UTF-32 and the bytes do not keep it.
    """
    encoding = marked_encoding(data) or UTF_8
    try:
        return Decoded(data[len(encoding.bom) :].decode(encoding.codec), encoding)
    except UnicodeDecodeError:
        return None if encoding.is_wide else Decoded(data.decode("latin-1"), UNKNOWN)


def encode(text: str, encoding: Encoding) -> bytes:
    """The bytes of a whole file, mark included; a mark that the text itself begins with is kept beside it.

    Raises:
        UnicodeEncodeError: The encoding cannot hold the text.
    """
    return encoding.bom + text.encode(encoding.codec)


@dataclass(frozen=True, slots=True)
class LineEndings:
    """How many lines end in which way."""

    lf: int
    crlf: int
    cr: int

    @property
    def style(self) -> Eol | None:
        """The one style of all endings, `mixed` if there are several, `None` if there is no ending."""
        if (self.lf > 0) + (self.crlf > 0) + (self.cr > 0) > 1:
            return "mixed"
        if self.lf:
            return "lf"
        if self.crlf:
            return "crlf"
        return "cr" if self.cr else None

    @property
    def majority(self) -> str | None:
        """The most frequent ending itself; LF before CRLF before CR where they are equally frequent."""
        counted = (("\n", self.lf), ("\r\n", self.crlf), ("\r", self.cr))
        ending, count = max(counted, key=lambda item: item[1])
        return ending if count else None


def line_endings(text: str) -> LineEndings:
    """Count the line endings of a text."""
    if "\r" not in text:
        return LineEndings(text.count("\n"), 0, 0)
    crlf = text.count("\r\n")
    return LineEndings(text.count("\n") - crlf, crlf, text.count("\r") - crlf)


def eol_style(text: str) -> Eol | None:
    """The style of a text's line endings, counted only where there is a choice."""
    if "\r" not in text:
        return "lf" if "\n" in text else None
    return line_endings(text).style


def line_separator(text: str) -> str:
    """What lines are counted by: LF, or CR in texts that have no LF (those of old Macs)."""
    return "\r" if "\n" not in text and "\r" in text else "\n"


def count_lines(text: str, separator: str | None = None) -> int:
    """The lines of a text; a final line ending ends the last line and starts no other one.

    Args:
        text: The text.
        separator: What ends a line, `line_separator` of the text by default.
    """
    ending = line_separator(text) if separator is None else separator
    return text.count(ending) + (bool(text) and not text.endswith(ending))


def to_lf(text: str) -> str:
    """The text with every line ending as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split_lines(text: str) -> tuple[list[str], list[str]]:
    """Cut a text at its line endings.

    Returns:
        The lines without their endings and the endings, equally many. The last ending is always empty, so a text
        that ends with a line ending has an empty last line. Joined in turn they are the text again.
    """
    if "\r" not in text:
        bodies = text.split("\n")
        return bodies, ["\n"] * (len(bodies) - 1) + [""]
    endings = line_endings(text)
    if not endings.lf and not endings.cr:
        bodies = text.split("\r\n")
        return bodies, ["\r\n"] * (len(bodies) - 1) + [""]
    pieces = _ANY_ENDING.split(text)
    return pieces[::2], [*pieces[1::2], ""]
