"""Encodings and line endings: decodes the bytes of text files, and encodes text for writing.

There are three cases. A byte order mark names the encoding. Without a byte order mark, text that is strictly valid
UTF-8 counts as UTF-8. All other text has an unknown encoding: only its ASCII parts may be changed, byte for byte, and
it is never re-encoded. A guess at the encoding is good enough to show such text, and is marked as a guess. Text is
never written in a guessed encoding: to change non-ASCII parts, the caller has to name the encoding.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.path_opener import may_block
from tools.text.file_names import brief

SNIFFED_BYTES = 4096  # bytes examined to decide whether a file is text (4 KB in Qwen Code)
MAX_CONTROL_SHARE = 0.3  # a file with a larger share of control characters counts as binary (30 % in Qwen Code)
# Shown for an undecodable byte. A file may contain this character, so finding it does not prove that decoding failed.
REPLACEMENT = "\ufffd"
UNKNOWN_8BIT = "unknown-8bit"  # registered by IANA for unknown encodings
Eol = Literal["lf", "crlf", "cr", "mixed"]
_ANY_ENDING = re.compile(r"(\r\n|\r|\n)")
_CONTROLS = bytes([*range(9), *range(14, 32)])
_NOT_IN_NUL_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f]|\0\0\0")  # does not occur in text that contains NUL
NUL_MARK = "\u2400"  # the character shown for a NUL


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str  # the name for the model, for example `utf-8`, `utf-8-bom`, `utf-16-le`
    codec: str  # Python's codec for the bytes after the byte order mark
    bom: bytes = b""  # the byte order mark; empty if there is none
    shown_as: str = "utf-8"  # for an unknown encoding, the guessed codec for display; never used for writing
    is_known: bool = True
    is_wide: bool = False  # whether code units have several bytes, so line endings are not single bytes


UTF_8 = Encoding("utf-8", "utf-8")
# Latin-1 maps each byte to one character and back, so all bytes are preserved
UNKNOWN = Encoding(UNKNOWN_8BIT, "latin-1", is_known=False)
_MARKED = (
    Encoding("utf-8-bom", "utf-8", codecs.BOM_UTF8),
    # UTF-32 LE comes before UTF-16 LE, because its byte order mark begins with that of UTF-16 LE.
    Encoding("utf-32-le", "utf-32-le", codecs.BOM_UTF32_LE, is_wide=True),
    Encoding("utf-32-be", "utf-32-be", codecs.BOM_UTF32_BE, is_wide=True),
    Encoding("utf-16-le", "utf-16-le", codecs.BOM_UTF16_LE, is_wide=True),
    Encoding("utf-16-be", "utf-16-be", codecs.BOM_UTF16_BE, is_wide=True),
)
_FIRST_OF_MARKS = {encoding.bom[:1] for encoding in _MARKED}


@dataclass(frozen=True, slots=True)
class Decoded:
    # The text without the byte order mark, and with unchanged line endings. If the encoding is unknown, the text has
    # one character per byte, and only the ASCII characters are meaningful.
    text: str
    encoding: Encoding  # with this encoding, `encode` restores the exact original bytes

    def shown(self) -> str:
        """The text for a person or a model."""
        if self.encoding.is_known:
            return self.text
        return self.text.encode("latin-1").decode(self.encoding.shown_as, "replace")


def marked_encoding(head: bytes) -> Encoding | None:
    """Return the encoding named by a byte order mark, or `None` without one."""
    if head[:1] not in _FIRST_OF_MARKS:
        return None
    return next((encoding for encoding in _MARKED if head.startswith(encoding.bom)), None)


def is_utf8(head: bytes) -> bool:
    """Return True if the beginning of a file is valid UTF-8. An incomplete character at the end is ignored."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def looks_binary(head: bytes) -> bool:
    """Return True if the first bytes of a file without a byte order mark are not text."""
    sample = head[:SNIFFED_BYTES]
    # NULs also separate names in the output of `find -print0`, and occur in logs after a crash.
    if b"\0" in sample:
        return _NOT_IN_NUL_TEXT.search(sample) is not None or not sample.strip(b"\0") or not is_utf8(sample)
    size = len(sample)
    return size - len(sample.translate(None, _CONTROLS)) > MAX_CONTROL_SHARE * size


def decode(data: bytes) -> Decoded | None:
    """Decode a whole file into text that encodes back to the same bytes; `None` for damaged UTF-16 or UTF-32."""
    encoding = marked_encoding(data) or UTF_8
    try:
        return Decoded(data[len(encoding.bom) :].decode(encoding.codec), encoding)
    except UnicodeDecodeError:
        return None if encoding.is_wide else Decoded(data.decode("latin-1"), UNKNOWN)


def decode_unless_binary(data: bytes) -> Decoded | None:
    """Like `decode`, but also return `None` for binary data."""
    return None if marked_encoding(data) is None and looks_binary(data) else decode(data)


def encode(text: str, encoding: Encoding) -> bytes:
    """Encode a whole file, including its byte order mark. A second mark, at the start of the text, is kept too."""
    return encoding.bom + text.encode(encoding.codec)


SAMPLE_BYTES = 4_000  # bytes of text on which a guess is based; more would take a long time and help little
STEP_BYTES = 1 << 20  # bytes decoded in one step, so that no step processes a whole large file
MAX_CHARACTER_BYTES = 4  # length of the longest character in any encoding that `guess` considers (GB18030)
CONTEXT_BYTES = 32  # bytes of ASCII before a word that are examined together with the word
# The best encoding is probably right if the next score is worse by at least this much. A score of 0 means that the text
# makes sense, a score of 1 that it is nonsense.
CLEAR_LEAD = 0.1
MAX_OTHERS = 3  # maximum number of other possible encodings that a message names
# Text with at least this many valid non-ASCII characters per invalid byte counts as damaged UTF-8. Text in other
# encodings rarely looks like this.
VALID_SHARE = 2
# Assumed if no encoding fits: web browsers' default, then an encoding in which every byte is valid
_ASSUMED = ("windows-1252", "iso-8859-1")
# Encodings to propose, the most frequent first
_RANKED = (
    ("windows-1252", "windows-1251", "gb18030", "cp932"),
    ("windows-1250", "koi8-r", "big5", "cp950", "cp949", "euc-jp"),
    ("windows-1253", "windows-1254", "windows-1255", "windows-1256", "cp874", "cp866", "iso-8859-2"),
    ("windows-1257", "windows-1258", "iso-8859-15", "koi8-u", "mac-roman", "cp437", "cp850"),
)
# Added to the score per rank, so that a rarer encoding is proposed only if the text makes more sense in it
RANK_PENALTY = 0.03
_NAMES = {name: rank for rank, names in enumerate(_RANKED) for name in names}
# Other codecs that callers can name. All of them are stateless supersets of ASCII that encode each character
# separately, so a part of the text has the same bytes wherever it occurs.
_ALSO_NAMED = """
iso8859-1 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-10 iso8859-11 iso8859-13
iso8859-14 iso8859-16 shift_jis gbk gb2312 euc_kr johab cp775 cp852 cp855 cp857 cp858 cp860 cp861 cp862 cp863 cp865
cp869 cp720 cp737 cp1125 kz1048 ptcp154 koi8-t mac-cyrillic mac-greek mac-latin2 mac-turkish mac-iceland tis-620
"""
_MULTI_BYTE = frozenset(("gb18030", "cp932", "big5", "cp950", "cp949", "euc-jp"))
# A bonus for multi-byte encodings if non-ASCII bytes occur in runs, otherwise a penalty
RUN_BONUS = 0.04
_HIGH = re.compile(rb"[\x80-\xff]")
_ASCII_LETTER = re.compile(rb"[A-Za-z]")
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
# A word with non-ASCII bytes. The group is its part up to the last non-ASCII byte within `SAMPLE_BYTES`. The bytes
# between words are always single characters in the encodings above.
_HIGH_WORD = re.compile(rb"([\x80-\xff](?:[^\x00-\x2f]{0,%d}[\x80-\xff])?)[^\x00-\x2f]*" % SAMPLE_BYTES)


# In windows-1252: non-ASCII letters, words with them, and characters that never occur between two letters
_WEST = rb"\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff"
_WEST_WORD = re.compile(b"[A-Za-z%b]*[%b][A-Za-z%b]*" % (_WEST, _WEST, _WEST))
_NOT_WEST = re.compile(
    b"[\x81\x8d\x8f\x90\x9d]|(?<=[A-Za-z%b])[^\x00-\x7f\x92\xb7%b](?=[A-Za-z%b])" % (_WEST, _WEST, _WEST)
)
MAX_FOREIGN = 0.2  # the largest share of words without an ASCII letter in windows-1252 text
# Upper bounds for the score of windows-1252: for text without non-ASCII letters, and for text that has some
_WEST_SCORES = (-0.01, 0.06)


@dataclass(frozen=True, slots=True)
class Guess:
    decoded: Decoded  # the text, decoded with the guessed encoding
    how: str  # how the encoding was found, phrased for the model

    @property
    def name(self) -> str:
        return self.decoded.encoding.name


def guess(data: bytes) -> Guess | None:
    """Guess the encoding of text that is not valid UTF-8. Returns `None` for UTF-8 with a few damaged bytes."""
    may_block()
    # Collect the non-ASCII parts with some context, about `SAMPLE_BYTES` in all. No character is split, except at the
    # end of a word that is cut to `SAMPLE_BYTES`.
    words: list[bytes] = []
    room, last_end = SAMPLE_BYTES, 0
    for match in _HIGH_WORD.finditer(data):
        start = match.start()
        words.append(data[max(last_end, start - CONTEXT_BYTES) : min(match.end(), start + SAMPLE_BYTES)])
        room, last_end = room - len(words[-1]), match.end(1)
        if room <= 0:
            break
    valid = invalid = 0
    for word in words:
        text = word.decode("utf-8", "replace")
        replacements = text.count(REPLACEMENT)
        invalid += replacements
        valid += sum(not character.isascii() for character in text) - replacements
    if valid >= VALID_SHARE * invalid:
        return None
    sample = b"\n".join(words)
    scores = _scores(sample)
    ranking = sorted(scores, key=lambda name: (scores[name], list(_NAMES).index(name)))
    for place, name in enumerate(ranking):
        decoded = decode_as(data, Encoding(name, name))
        if decoded is None:
            continue
        alternatives = dict[str, str]()  # keyed by the resulting text, so that encodings with the same text count once
        for alternative in ranking[place + 1 :]:
            if scores[alternative] - scores[name] < CLEAR_LEAD:
                alternatives.setdefault(sample.decode(alternative, "replace"), alternative)
        alternatives.pop(sample.decode(name, "replace"), None)
        if not alternatives:
            return Guess(decoded, "a guess based on its content, probably right")
        likely_names = sorted(alternatives.values(), key=lambda alternative: alternative != _ASSUMED[0])[:MAX_OTHERS]
        return Guess(decoded, f"an uncertain guess; it could also be {' or '.join(likely_names)}")
    name, every_byte = _ASSUMED
    decoded = decode_as(data, Encoding(name, name))
    decoded = decoded or Decoded(data.decode(every_byte), Encoding(every_byte, every_byte))
    return Guess(decoded, "assumed, because the text makes no sense in any known encoding")


@dataclass(frozen=True, slots=True)
class ShownText:
    text: str
    body: bytes  # the text in UTF-8; the file's own bytes if they are damaged UTF-8
    encoding: Encoding
    note: str = ""  # how a guessed encoding was found


def shown_text(data: bytes) -> ShownText:
    """Decode text for display only, never for writing."""
    decoded = decode(data)
    if decoded is not None and decoded.encoding.is_known:
        body = decoded.text.encode() if decoded.encoding.is_wide else data[len(decoded.encoding.bom) :]
        return ShownText(decoded.text, body, decoded.encoding)
    mark = marked_encoding(data)
    if mark is None and (best_guess := guess(data)) is not None:
        text = best_guess.decoded.text
        return ShownText(text, text.encode(), best_guess.decoded.encoding, best_guess.how)
    text = data[len(mark.bom) if mark else 0 :].decode(mark.codec if mark else "utf-8", "replace")
    return ShownText(text, text.encode() if decoded is None else data, UNKNOWN)


def possible_decodings(data: bytes) -> dict[str, set[str]]:
    """Return every text that `shown_text` may show for bytes that are not UTF-8, with the names of its encodings.

    This is much faster than `guess`.
    """
    if marked_encoding(data) is not None:
        return {shown_text(data).text: {UNKNOWN.name}}
    encodings_by_text = {data.decode("utf-8", "replace"): {UNKNOWN.name}}
    for name in (*_NAMES, *_ASSUMED):
        decoded = decode_as(data, Encoding(name, name))
        if decoded is not None:
            encodings_by_text.setdefault(decoded.text, set()).add(name)
    return encodings_by_text


@lru_cache(256)
def _scores(sample: bytes) -> dict[str, float]:
    """Score how little sense the sample makes in each encoding in which it is valid. The lowest score is the best."""
    from charset_normalizer import from_bytes  # noqa: PLC0415 - rarely needed

    codec_names = {codecs.lookup(name).name: name for name in _NAMES}
    runs = len(_HIGH_RUN.findall(sample))
    bonus = RUN_BONUS if len(_HIGH.findall(sample)) >= 2 * runs else -RUN_BONUS
    scores: dict[str, float] = {}
    # The last character may be incomplete, so all its possible lengths are tried.
    trims = range(MAX_CHARACTER_BYTES if len(sample) >= SAMPLE_BYTES else 1)
    matches = [from_bytes(sample[: len(sample) - trim], cp_isolation=list(codec_names)) for trim in trims]
    for match in chain.from_iterable(matches):
        for codec in match.could_be_from_charset:
            name = codec_names.get(codecs.lookup(codec).name)
            if name is not None:
                score = match.chaos - match.coherence * RANK_PENALTY + _NAMES[name] * RANK_PENALTY
                score -= bonus if name in _MULTI_BYTE else 0
                scores[name] = min(score, scores.get(name, score))
    # charset-normalizer treats many accented letters as noise, so it misses windows-1252, the most common encoding.
    words = _WEST_WORD.findall(sample)
    foreign = sum(len(word) > 1 and _ASCII_LETTER.search(word) is None for word in words)
    if _NOT_WEST.search(sample) is None and foreign <= MAX_FOREIGN * len(words):
        score = _WEST_SCORES[bool(words)]
        scores[_ASSUMED[0]] = min(score, scores.get(_ASSUMED[0], score))
    return scores


def encoding_named(name: str) -> Encoding:
    """Return the encoding with this name.

    Raises a `ToolError` if the name is unknown, or if the encoding cannot encode parts of a text separately.
    """
    codec = _codec_of(name)
    common_names = {codecs.lookup(common_name).name: common_name for common_name in (*_NAMES, *_ASSUMED)}
    if codec not in common_names and codec not in {codecs.lookup(other).name for other in _ALSO_NAMED.split()}:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"The encoding '{brief(name)}' is not supported; nothing was done. Use a name such as windows-1252, "
            "shift_jis, gb18030 or koi8-r, or omit 'encoding'.",
        )
    return Encoding(common_names.get(codec, codec), codec)


def decode_as(data: bytes, encoding: Encoding) -> Decoded | None:
    """Decode with this encoding, or return `None` if any byte is invalid in it."""
    decoder = codecs.getincrementaldecoder(encoding.codec)()
    try:
        pieces = [
            decoder.decode(data[start : start + STEP_BYTES], final=start + STEP_BYTES >= len(data))
            for start in range(0, len(data), STEP_BYTES)
        ]
    except UnicodeDecodeError:
        return None
    return Decoded("".join(pieces), encoding)


def decode_as_named(data: bytes, name: str, present: Decoded | None, path: str) -> Decoded:
    """Decode a file with the encoding that a caller names, so that a part of it can be changed.

    Raises:
        ToolError: `invalid_tool_params`: the name is unknown, or the file is certainly in another encoding;
            `read_content_failure`: writing would change bytes outside the edit.
    """
    if present is not None and present.encoding.is_known and _is_same_encoding(name, present.encoding):
        return present
    encoding = encoding_named(name)
    if present is None or (present.encoding.is_known and (present.encoding.bom or not data.isascii())):
        real = present.encoding.name if present is not None else "damaged UTF-16 or UTF-32"
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"'{path}' is {real}, not {encoding.name}; nothing was done. Omit 'encoding'.",
        )
    decoded = decode_as(data, encoding)
    if decoded is None:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"'{path}' is not {encoding.name}: some of its bytes are invalid in that encoding. Nothing was done. "
            "Read the file to see what its encoding may be.",
        )
    try:
        comes_back = encode(decoded.text, encoding) == data
    except UnicodeEncodeError:
        comes_back = False
    if not comes_back:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{path}' contains characters that {encoding.name} can encode in several ways, so writing it would "
            "change bytes outside the edit. Nothing was done. Without 'encoding', ASCII text in it can still be "
            "replaced.",
        )
    return decoded


def encoding_to_write(name: str | None, present: Decoded | None, path: str) -> Encoding:
    """Return the encoding for writing a whole file.

    This is the named encoding, else the encoding of the current text if that is known, else UTF-8.

    Raises a `ToolError` if the name is unknown, or is not UTF-8 and the file has the byte order mark of another
    encoding.
    """
    current = present.encoding if present is not None and present.encoding.is_known else UTF_8
    if name is None or _is_same_encoding(name, current):
        return current
    if _is_same_encoding(name, UTF_8):
        return UTF_8
    encoding = encoding_named(name)
    if present is not None and present.encoding.bom:
        raise ToolError(
            ToolErrorType.INVALID_TOOL_PARAMS,
            f"'{path}' has the byte order mark of {present.encoding.name}, so it cannot be written in another "
            "encoding; nothing was written. Omit 'encoding'.",
        )
    return encoding


def _is_same_encoding(name: str, encoding: Encoding) -> bool:
    return name.lower() == encoding.name or _codec_of(name) == encoding.codec


def _codec_of(name: str) -> str:
    """Return the name of Python's codec, or an empty string if there is none."""
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""


def check_fits(text: str, encoding: Encoding, parameter: str) -> None:
    for character in text:
        if character.isascii():
            continue
        try:
            # Python's Japanese codecs encode the yen sign as a backslash.
            fits = character.encode(encoding.codec).decode(encoding.codec) == character
        except UnicodeError:
            fits = False
        if not fits:
            code_point = f"U+{ord(character):04X}"
            description = f"'{character}' ({code_point})" if character.isprintable() else code_point
            raise ToolError(
                ToolErrorType.INVALID_TOOL_PARAMS,
                f"'{parameter}' contains {description}, which {encoding.name} cannot represent; nothing was written. "
                "Use other characters, or convert the file to UTF-8 first, for example with iconv.",
            )


@dataclass(frozen=True, slots=True)
class LineEndings:
    lf: int
    crlf: int
    cr: int

    @property
    def style(self) -> Eol | None:
        if (self.lf > 0) + (self.crlf > 0) + (self.cr > 0) > 1:
            return "mixed"
        if self.lf:
            return "lf"
        if self.crlf:
            return "crlf"
        return "cr" if self.cr else None

    @property
    def majority(self) -> str | None:
        """The most frequent ending. In a tie, LF comes before CRLF, and CRLF before CR."""
        counts = (("\n", self.lf), ("\r\n", self.crlf), ("\r", self.cr))
        ending, count = max(counts, key=lambda item: item[1])
        return ending if count else None


def line_endings(text: str) -> LineEndings:
    if "\r" not in text:
        return LineEndings(text.count("\n"), 0, 0)
    crlf = text.count("\r\n")
    return LineEndings(text.count("\n") - crlf, crlf, text.count("\r") - crlf)


def eol_style(text: str) -> Eol | None:
    if "\r" not in text:
        return "lf" if "\n" in text else None
    return line_endings(text).style


class NextEndings:
    """Finds the next line ending. Positions must ascend, so that no part of the text is searched twice."""

    def __init__(self, text: str) -> None:
        self._text, self._next = text, {"\n": -1, "\r": -1}
        last = max(text.rfind("\n"), text.rfind("\r"))
        self._last = "\r\n" if text.endswith("\r\n", 0, last + 1) else text[last : last + 1]

    def after(self, position: int) -> str:
        """Return the first line ending at or after a position, else the last one of the text, or an empty string."""
        text = self._text
        for character, start in self._next.items():
            if start < position:
                index = text.find(character, position)
                self._next[character] = len(text) if index < 0 else index
        start = min(self._next.values())
        if start == len(text):
            return self._last
        return "\r\n" if text.startswith("\r\n", start) else text[start]


def line_separator(text: str) -> str:
    """Return the separator used to count lines: LF, or CR in text without LF (from old Macs)."""
    return "\r" if "\n" not in text and "\r" in text else "\n"


def count_lines(text: str, separator: str | None = None) -> int:
    """Count the lines in `text`. A final line ending does not start another line."""
    ending = line_separator(text) if separator is None else separator
    return text.count(ending) + (bool(text) and not text.endswith(ending))


def to_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split_lines(text: str) -> tuple[list[str], list[str]]:
    """Split `text` into lines and their endings. Interleaved and joined, the two lists give back the text.

    The last ending is always empty, so text that ends with a line ending has an empty last line.
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
