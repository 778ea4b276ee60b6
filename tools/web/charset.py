"""In which encoding a text from the web is read, as browsers decide it, without holding up other threads."""

from __future__ import annotations

import codecs
import re
import time
from typing import Any

SNIFFED_BYTES = 4_096  # where a page has to name its encoding (the HTML standard asks for the first 1,024)

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(rb"""(?i)<meta\s[^>]{0,400}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w:.-]{1,40})""")
_XML = re.compile(rb"""(?i)\A\s{0,9}<\?xml\s[^>]{0,200}?encoding\s{0,9}=\s{0,9}["']([\w:.-]{1,40})""")

# Labels of the WHATWG encoding standard that are in use, with the codec that reads them as browsers do
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

# Codecs, beside those of Unicode, in which a character may have several bytes
_MULTIBYTE = frozenset({"gb18030", "big5hkscs", "cp932", "euc-jp", "iso-2022-jp", "cp949"})
# A codec keeps all other threads waiting, and takes a third of a microsecond for each byte that is wrong: five
# milliseconds
DECODED_AT_ONCE = 1 << 14
# For one text; after that, only ASCII is read of the rest. Only millions of wrong bytes take as long.
DECODE_SECONDS = 2.0
_LONGEST_CHARACTER = 4


def decode(body: bytes, declared: str | None, *, is_markup: bool, is_cut: bool) -> str:
    """The text of a body; what cannot be decoded becomes U+FFFD.

    `declared` is what `Content-Type` says; markup may itself name its encoding; what is cut may end within a character.
    """
    name = None
    for mark, marked in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            body, name = body[len(mark) :], marked
            break
    else:
        name = _LABELS.get(declared or "")
        if name is None and is_markup:
            found = _META.search(body, 0, SNIFFED_BYTES) or _XML.search(body, 0, SNIFFED_BYTES)
            name = _LABELS.get(found[1].decode("ascii", "replace").lower()) if found is not None else None
            # This was read as ASCII, so the page is not in UTF-16, whatever it says.
            name = "utf-8" if name is not None and name.startswith("utf-16") else name
    if name is None:
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            is_cut_character = is_cut and len(body) - error.start < _LONGEST_CHARACTER
            name = "utf-8" if is_cut_character else "windows-1252"  # what browsers assume
    if name not in _MULTIBYTE and not name.startswith("utf-"):
        return _by_table(body, name)
    decoder = codecs.getincrementaldecoder(name)("replace")
    parts: list[str] = []
    deadline = time.monotonic() + DECODE_SECONDS
    for start in range(0, len(body), DECODED_AT_ONCE):
        if time.monotonic() > deadline:
            return "".join([*parts, _by_table(body[start:], "ascii")])
        parts.append(decoder.decode(body[start : start + DECODED_AT_ONCE]))
    return "".join([*parts, decoder.decode(b"", final=True)])


def _by_table(body: bytes, name: str) -> str:
    """Decode by a table, which takes no longer for bytes that mean nothing."""
    table: Any = bytes(range(256)).decode(name, "replace")  # the stub knows other tables only
    return codecs.charmap_decode(body, "strict", table)[0]
