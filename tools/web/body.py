"""Takes the body of an answer: unpacked, and no more of it than is allowed."""

from __future__ import annotations

import codecs
import re
import time
import zlib
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import httpx

from tools.contract.errors import ToolError, ToolErrorType
from tools.web.address_guard import WebRules
from tools.web.byte_limit import TooManyBytesError
from tools.web.url import Target

if TYPE_CHECKING:
    from tools.contract.limits import Progress


ACCEPTED = "gzip, deflate"
"""What is announced; the standard library unpacks it by bounded pieces."""

PIECE_BYTES = 1 << 16
"""Unpacked at a time, so that others have their turn and a limit is noticed soon."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_NAMES = ("gzip", "x-gzip")
_ZLIB_METHOD = 0x08


class UnknownEncodingError(Exception):
    """The body is packed in a way that was not announced; the text is its name."""


class DamagedBodyError(Exception):
    """The body is not what its encoding says."""


class Unpacker:
    """Turns raw bytes of a body into its content.

    Args:
        encoding: The header `Content-Encoding`.

    Raises:
        UnknownEncodingError: It is none of `ACCEPTED`, or several on top of each other.
    """

    def __init__(self, encoding: str) -> None:
        self._name = encoding.strip().lower()
        if self._name not in ("", "identity", "deflate", *_GZIP_NAMES):
            raise UnknownEncodingError(encoding)
        self.taken = 0
        """Raw bytes that what has come out so far is made of."""
        self._stream: Any = None
        """Made with the first bytes, since an answer may have none."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing at the end of what was given."""
        return self._stream is None or self._stream.eof

    def unpack(self, raw: bytes) -> Iterator[bytes]:
        """The content of these bytes, in pieces of at most `PIECE_BYTES`; an empty one is work that gave no content.

        Raises:
            DamagedBodyError: They cannot be unpacked.
        """
        if self._name in ("", "identity"):
            self.taken += len(raw)
            yield from (raw[start : start + PIECE_BYTES] for start in range(0, len(raw), PIECE_BYTES))
            return
        try:
            yield from self._inflate(raw)
        except zlib.error:
            raise DamagedBodyError from None

    def _inflate(self, raw: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window(raw))
        while raw:
            if self._stream.eof:
                # gzip may consist of several members.
                if not raw.startswith(b"\x1f"):
                    return  # what follows the last member is padding
                self._stream = zlib.decompressobj(_GZIP_WINDOW)
            piece = self._stream.decompress(raw, PIECE_BYTES)
            left: bytes = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            self.taken += len(raw) - len(left)
            raw = left
            yield piece

    def _window(self, raw: bytes) -> int:
        """How zlib is told which format comes."""
        if self._name in _GZIP_NAMES:
            return _GZIP_WINDOW
        # `deflate` means the format of zlib, and many servers send it without that format's header.
        has_header = raw[0] & 0x0F == _ZLIB_METHOD and (len(raw) == 1 or int.from_bytes(raw[:2]) % 31 == 0)
        return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS


SNIFFED_BYTES = 4_096
"""Where a page has to name its encoding (the HTML standard asks for the first 1,024)."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(rb"""(?i)<meta\s[^>]{0,400}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w:.-]{1,40})""")
_XML = re.compile(rb"""(?i)\A\s{0,9}<\?xml\s[^>]{0,200}?encoding\s{0,9}=\s{0,9}["']([\w:.-]{1,40})""")

_SINGLE_BYTE = tuple(
    [f"iso-8859-{part}" for part in range(2, 17) if part not in (9, 11, 12)]
    + [f"windows-{page}" for page in range(1250, 1259)]
    + ["koi8-r", "koi8-u", "macintosh", "ibm866"]
)
_LABELS = {
    **{name: name for name in _SINGLE_BYTE},
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
    **dict.fromkeys(("euc-jp", "x-euc-jp"), "euc-jp"),
    "iso-2022-jp": "iso-2022-jp",
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean", "windows-949"), "cp949"),
}
"""Labels of the WHATWG encoding standard that are in use, with the codec that reads them as browsers do."""

_WIDE = frozenset({"gb18030", "big5hkscs", "cp932", "euc-jp", "iso-2022-jp", "cp949"})
"""Codecs of which a character may have several bytes, beside those of Unicode."""

DECODED_AT_ONCE = 1 << 14
"""Decoded at a time. A codec keeps all other threads waiting, and takes a third of a microsecond for each byte that is
wrong: five milliseconds."""

DECODE_SECONDS = 2.0
"""For one text; if that is over, nothing but ASCII is read of the rest. Only millions of wrong bytes take as long."""

UTF_8 = "utf-8"
_LONGEST_CHARACTER = 4
_ASSUMED = "windows-1252"
"""What browsers assume."""


def decode(body: bytes, declared: str | None, *, is_markup: bool, is_cut: bool) -> str:
    """The text of a body; what cannot be decoded becomes U+FFFD.

    Args:
        body: As it came.
        declared: What `Content-Type` says.
        is_markup: Whether the text itself may name its encoding.
        is_cut: Whether it may end within a character.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], name)
    named = _LABELS.get(declared or "") or (_named_within(body) if is_markup else None)
    if named is not None:
        return _decoded(body, named)
    try:
        return body.decode(UTF_8)
    except UnicodeDecodeError as error:
        is_cut_character = is_cut and len(body) - error.start < _LONGEST_CHARACTER
        return _decoded(body, UTF_8 if is_cut_character else _ASSUMED)


def _decoded(body: bytes, name: str) -> str:
    if not (name in _WIDE or name.startswith("utf-")):
        return _by_table(body, name)
    decoder = codecs.getincrementaldecoder(name)("replace")
    parts: list[str] = []
    late = time.monotonic() + DECODE_SECONDS
    for start in range(0, len(body), DECODED_AT_ONCE):
        if time.monotonic() > late:
            return "".join([*parts, _by_table(body[start:], "ascii")])
        parts.append(decoder.decode(body[start : start + DECODED_AT_ONCE]))
    return "".join([*parts, decoder.decode(b"", final=True)])


def _by_table(body: bytes, name: str) -> str:
    table: Any = _table(name)  # the stub knows other tables only
    return codecs.charmap_decode(body, "strict", table)[0]


@cache
def _table(name: str) -> str:
    """The character of each byte, which takes no longer for those that mean nothing."""
    return bytes(range(256)).decode(name, "replace")


def _named_within(body: bytes) -> str | None:
    found = _META.search(body, 0, SNIFFED_BYTES) or _XML.search(body, 0, SNIFFED_BYTES)
    if found is None:
        return None
    name = _LABELS.get(found[1].decode("ascii", "replace").lower())
    # Whoever could read this has not read it in UTF-16.
    return UTF_8 if name is not None and name.startswith("utf-16") else name


PROGRESS_BYTES = 1 << 18
"""Content after which progress is told again."""


TURN_BYTES = 1 << 16
"""Work after which others have their turn."""

PIECE_WORK = 128
"""What a piece costs beside its bytes, in bytes: it may be empty, or one of very many."""


class Cut(StrEnum):
    """Why a body is not there as a whole; each ends a sentence about the page."""

    SIZE = "it is larger than what is taken of one page"
    RATIO = "it unpacks to far more than a page that is meant to be read"
    TIME = "it came too slowly"
    BROKEN = "it is damaged, or the connection ended before all of it had come"


class Body:
    """The content of one answer, as far as it has come.

    Args:
        answer: Whose.
        target: Where it comes from, for sentences.
        rules: How much of it is taken.

    Raises:
        ToolError: `web_fetch_processing_error`: it is packed in a way that nobody asked for.
    """

    def __init__(self, answer: httpx.Response, target: Target, rules: WebRules) -> None:
        self.content = bytearray()
        self.cut: Cut | None = None
        self._answer = answer
        self._target = target
        self._rules = rules
        self._raw = 0
        self._told = 0
        self._work = 0
        try:
            self._unpacker = Unpacker(answer.headers.get("content-encoding", ""))
        except UnknownEncodingError:
            raise self._unreadable("in an encoding that was not asked for") from None

    async def take(self, deadline: float, progress: Progress | None) -> None:
        """Take it until its end, a limit, or the deadline.

        Args:
            deadline: On the event loop's clock.
            progress: Told now and then.

        Raises:
            ToolError: `web_fetch_processing_error`: it cannot be unpacked.
        """
        self.cut = Cut.TIME
        with anyio.CancelScope(deadline=deadline):
            self.cut = await self._take(progress)

    async def _take(self, progress: Progress | None) -> Cut | None:
        try:
            async for raw in self._answer.aiter_raw():
                self._raw += len(raw)
                self._work += len(raw)
                for piece in self._unpacker.unpack(raw):
                    self.content += piece
                    cut = self._limit()
                    if cut is not None:
                        return cut
                    # A small piece can unpack to much, or to nothing with much work.
                    self._work += len(piece) + PIECE_WORK
                    if self._work >= TURN_BYTES:
                        self._work = 0
                        await anyio.lowlevel.checkpoint()
                if progress is not None and len(self.content) - self._told >= PROGRESS_BYTES:
                    await self._tell(progress)
        except TooManyBytesError:
            return Cut.SIZE
        except httpx.HTTPError:
            return Cut.BROKEN
        except DamagedBodyError:
            if not self.content:
                raise self._unreadable("damaged: it cannot be unpacked") from None
            return Cut.BROKEN
        return None if self._unpacker.is_complete else Cut.BROKEN

    def _limit(self) -> Cut | None:
        size, most = len(self.content), self._rules.max_bytes
        if size > most or self._raw > most:
            del self.content[most:]
            return Cut.SIZE
        return Cut.RATIO if size > max(self._rules.free_bytes, self._unpacker.taken * self._rules.max_ratio) else None

    async def _tell(self, progress: Progress) -> None:
        self._told = len(self.content)
        await progress(self._told, None, f"{self._told:,} bytes from {self._target.authority}")

    def _unreadable(self, how: str) -> ToolError:
        return ToolError(
            ToolErrorType.WEB_FETCH_PROCESSING_ERROR,
            f"{self._target.authority} sent its answer {how}. Try again, or use another source.",
        )
