"""Which encoding a text from the web is in: by its mark, by what the server says, by what the page says."""

from __future__ import annotations

import codecs
import re
import time
from functools import cache
from typing import Any

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

PIECE_BYTES = 1 << 14
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
    for start in range(0, len(body), PIECE_BYTES):
        if time.monotonic() > late:
            return "".join([*parts, _by_table(body[start:], "ascii")])
        parts.append(decoder.decode(body[start : start + PIECE_BYTES]))
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
