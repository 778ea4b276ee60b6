r"""Writes file names in text.

A name in text is on one line, unambiguous, harmless on a terminal, and in a form that can be parsed.

Ordinary names are unchanged. A name with a line feed, a control or invisible character, or bytes that are not text is
written in double quotes with escapes: `"two\nlines.txt"`, `"caf\xe9.txt"` (a byte), `"a\u202eb"` (a character). Names
in this form, and paths that git quotes (`"caf\303\251.txt"`), are parsed when a model copies them into its arguments.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

# Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 16), except the emoji variation selector (U+FE0F)
# and the characters from U+E0000
_IGNORABLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_TABLE = (
    # C0 and C1 except tab and line feed; line and paragraph separators; surrogates.
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff" + _IGNORABLE +
    # Other characters without a visible shape: format marks, blank letters and signs.
    "\u070f\u2800\ufff9-\ufffb\U00013430-\U0001343f\U00016fe4\U0001d159"
    # Private-use characters (fonts differ), noncharacters, and planes with tags, selectors or no characters.
    "\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U0010ffff"
)
# Ranges of symbols that have an emoji form (emoji-variation-sequences.txt of Unicode)
_SYMBOLS = "\xa9\xae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
# Characters that are invisible, or look different on different systems. The emoji selector has a visible effect only
# after a symbol or in a keycap.
UNSEEN = re.compile(f"[{_TABLE}\ufe0f](?<![{_SYMBOLS}]\ufe0f)(?!(?<=[0-9#*]\ufe0f)\u20e3)")
# Includes every emoji selector, because names with and without a selector look the same to many people
_UNSEEN_IN_NAMES = re.compile(f"[{_TABLE}\ufe0f]")
IGNORABLE = re.compile(f"[{_IGNORABLE}\ufe0f\U000e0000-\U000e0fff]")  # all Default_Ignorable_Code_Point characters


def is_seen_in_name(name: str) -> bool:
    """Return True if all characters of a name are printable and visible."""
    return name.isprintable() and (name.isascii() or not _UNSEEN_IN_NAMES.search(name))


MAX_SHOWN_PATH = 200  # maximum length of a path in an error message, in characters
# Maximum length of a pattern or path in the one-line description of a call (as in Qwen Code and Gemini CLI)
MAX_BRIEF_CHARS = 80
_ORDINARY_NAME = re.compile(r"[!#-~]+").fullmatch  # most names
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"((?:\\[0-3][0-7]{2})+)|\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'}
_SHORT_ESCAPE_VALUES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}  # as git has them
_BYTE_BASE = 0xDC00
_ASCII_END = 0x80


def exact_path(path: str, *, is_quoted: bool = False) -> str:
    """Return a path in pure ASCII, for messages that must distinguish it from another path that looks the same.

    If `is_quoted` is true, the last name is always quoted, so that a copy of the result means exactly this path.
    """
    *folder_names, last = path.split(os.sep)
    names = [shown_name(name) if name.isascii() else _quote(name, _is_plain_ascii) for name in folder_names]
    return os.sep.join(
        [*names, shown_name(last) if last.isascii() and not is_quoted else _quote(last, _is_plain_ascii)]
    )


def _is_plain_ascii(character: str) -> bool:
    return character.isascii() and character.isprintable()


def shown_name(name: str) -> str:
    """Return a base name as messages show it."""
    if _ORDINARY_NAME(name) or (is_seen_in_name(name) and not name.startswith('"') and name == name.strip()):
        return name
    return _quote(name, is_seen_in_name)


def _quote(name: str, is_plain: Callable[[str], bool]) -> str:
    characters: list[str] = []
    for character in name:
        code = ord(character)
        if character in _SHORT_ESCAPES:
            characters.append(_SHORT_ESCAPES[character])
        elif is_plain(character):
            characters.append(character)
        elif 0xDC80 <= code <= 0xDCFF:  # Python's surrogate for a byte that is not text
            characters.append(f"\\x{code - _BYTE_BASE:02x}")
        elif code < _ASCII_END:
            characters.append(f"\\x{code:02x}")
        else:
            characters.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(characters)}"'


def shown_whole_path(path: str) -> str:
    """Return a path as messages show it, with quotes only around names that need them."""
    if is_seen_in_name(path) and '"' not in path and path == path.strip():
        return path
    return os.sep.join(shown_name(name) for name in path.split(os.sep))


def shown_path(path: str) -> str:
    """Return a path for an error message. A very long path is shortened in the middle."""
    if len(path) <= MAX_SHOWN_PATH:
        return shown_whole_path(path)
    half = MAX_SHOWN_PATH // 2
    return shown_whole_path(f"{path[:half]}...{path[-half:]}")


def one_line(text: str) -> str:
    """Return `text` (a title, for example, but not a path) on one line, with invisible characters escaped."""
    if text.isprintable() and (text.isascii() or not UNSEEN.search(text)):
        return text
    return "".join(
        character
        if character.isprintable() and not UNSEEN.match(character)
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def shortened_line(text: str, longest: int) -> str:
    """Like `one_line`, but strip the text, and truncate it with `...` if it is longer than `longest` characters."""
    line = one_line(text.strip()[: longest + 1])
    return line if len(line) <= longest else f"{line[:longest]}..."


def brief(text: str) -> str:
    """Return at most `MAX_BRIEF_CHARS` characters from the beginning of `text`, on one line."""
    line = one_line(text[: MAX_BRIEF_CHARS + 1])
    return line if len(text) <= MAX_BRIEF_CHARS else f"{line[:MAX_BRIEF_CHARS]}..."


def sendable_name(name: str) -> str:
    """Return a name or path for machine-readable output.

    Only a name that JSON cannot represent, or that looks like a quoted name, is changed.
    """
    if name.isascii() and '"' not in name:
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        return shown_whole_path(name)
    return name if parse_quoted_path(name) is None else shown_whole_path(name)


def parse_quoted_path(text: str) -> str | None:
    """Parse a path with quoted names. Return `None` if no name is quoted."""
    names = text.split(os.sep) if '"' in text else []
    parsed = [_unquote(name) for name in names]
    if all(name is None for name in parsed):
        return _unquote(text) if names else None
    return os.sep.join(name if value is None else value for name, value in zip(names, parsed, strict=True))


def _unquote(name: str) -> str | None:
    def unescape(match: re.Match[str]) -> str:
        octals, byte, short, long, character = match.groups()
        if octals is not None:
            return bytes(int(octal, 8) for octal in octals.split("\\")[1:]).decode("utf-8", "surrogateescape")
        if character is not None:
            return _SHORT_ESCAPE_VALUES.get(character, character)
        code = int(byte or short or long, 16)
        if byte is not None and code >= _ASCII_END:
            return chr(_BYTE_BASE + code)
        return chr(code) if code <= sys.maxunicode else match[0]

    quoted_name = _QUOTED.fullmatch(name)
    return None if quoted_name is None else _ESCAPE.sub(unescape, quoted_name[1])
