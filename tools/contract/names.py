r"""File names in texts: on one line, nothing in them that acts on a screen, no two alike, and readable again.

A plain name stands as it is. One with a line feed, a control or an invisible character, or bytes that are no text is
written in double quotes with escapes: `"two\nlines.txt"`, `"caf\xe9.txt"` (a byte), `"a\u202eb"` (a character). What
a model copies from such a text is understood where it names a file.
"""

from __future__ import annotations

import os
import re

from tools.contract.unseen import UNSEEN, is_seen_in_name

MAX_SHOWN_PATH = 200
"""Characters of a path that an error repeats."""

MAX_BRIEF_CHARS = 80
"""Characters of a pattern or a path in the one line that describes a call (Qwen Code's and Gemini CLI's number)."""

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'}
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF
"""Bytes of a name that are no text, as Python spells them."""
_BYTE_BASE = 0xDC00
_ASCII_END = 0x80
_BMP_END = 0x10000
_LAST_CHARACTER = 0x10FFFF


def shown_name(name: str) -> str:
    """A base name as it stands in a text."""
    if is_seen_in_name(name) and not name.startswith('"') and name == name.strip():
        return name
    return f'"{"".join(_escaped(character) for character in name)}"'


def shown_whole_path(path: str) -> str:
    """A path as it stands in a text; only the names in it that need it are quoted."""
    if is_seen_in_name(path) and '"' not in path and path == path.strip():
        return path
    return os.sep.join(shown_name(name) for name in path.split(os.sep))


def shown_path(path: str) -> str:
    """A path as an error repeats it: a very long one is cut in the middle."""
    if len(path) <= MAX_SHOWN_PATH:
        return shown_whole_path(path)
    half = MAX_SHOWN_PATH // 2
    return shown_whole_path(f"{path[:half]}...{path[-half:]}")


def one_line(text: str) -> str:
    """Any other text on one line, with what would not be seen escaped: a pattern, a reason, a description."""
    if text.isprintable() and (text.isascii() or not UNSEEN.search(text)):
        return text
    return "".join(_seen(character) for character in text)


def _seen(character: str) -> str:
    if character.isprintable() and not UNSEEN.match(character):
        return character
    return character.encode("unicode_escape").decode("ascii")


def brief(text: str) -> str:
    """The beginning of a text, on one line."""
    line = one_line(text[: MAX_BRIEF_CHARS + 1])
    return line if len(text) <= MAX_BRIEF_CHARS else f"{line[:MAX_BRIEF_CHARS]}..."


def sendable_name(name: str) -> str:
    """A name or path for programs: as it is, unless no JSON text can hold it, or it looks like one that none can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return shown_whole_path(name)
    return name if meant_path(name) is None else shown_whole_path(name)


def meant_path(text: str) -> str | None:
    """The path that a text with quoted names means, or `None` if no name in it is quoted."""
    names = text.split(os.sep) if '"' in text else []
    meant = [_unquoted(name) for name in names]
    if all(name is None for name in meant):
        return _unquoted(text) if names else None
    return os.sep.join(name if given is None else given for name, given in zip(names, meant, strict=True))


def _unquoted(name: str) -> str | None:
    found = _QUOTED.fullmatch(name)
    if found is None:
        return None
    return _ESCAPE.sub(_character, found[1])


def _character(found: re.Match[str]) -> str:
    byte, short, long, plain = found.groups()
    if plain is not None:
        return _MEANT.get(plain, plain)
    code = int(byte or short or long, 16)
    if byte is not None and code >= _ASCII_END:
        return chr(_BYTE_BASE + code)
    return chr(code) if code <= _LAST_CHARACTER else found[0]


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if is_seen_in_name(character):
        return character
    code = ord(character)
    if _FIRST_BYTE <= code <= _LAST_BYTE:
        return f"\\x{code - _BYTE_BASE:02x}"
    if code < _ASCII_END:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BMP_END else f"\\U{code:08x}"
