"""Compares strings that look the same but differ in typographic, decomposed or invisible characters.

People and models copy what they see, but programs compare the actual characters.
"""

from __future__ import annotations

import unicodedata

from tools.text.file_names import IGNORABLE, UNSEEN

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b"
_DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f"
_SPACES = "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
# Characters that models often replace with a single ASCII character (Qwen Code's list)
_ASCII_FORMS = (("-", _DASHES), ("'", _SINGLE_QUOTES), ('"', _DOUBLE_QUOTES), (" ", _SPACES))


def fold(text: str) -> str:
    """Replace each typographic character with one ASCII character, so that the length does not change."""
    if text.isascii():
        return text
    for ascii_form, characters in _ASCII_FORMS:
        for character in characters:
            text = text.replace(character, ascii_form)
    return text


def visible_form(text: str) -> str:
    """Return a normal form that is the same for all strings that look like `text`."""
    return text if text.isascii() else fold(unicodedata.normalize("NFC", IGNORABLE.sub("", text)))


def marked(text: str) -> str:
    """Replace invisible characters, special spaces and combining characters with marks such as `<U+200B>`."""
    if text.isascii() and text.isprintable():
        return text
    pieces: list[str] = []
    letter = ""  # the previous characters, composed
    for index, character in enumerate(text):
        composed = unicodedata.normalize("NFC", letter + character)
        if len(composed) < len(letter) + 1:
            letter = composed
        elif character in _SPACES or UNSEEN.match(text, index):
            letter = ""
        else:
            letter = character
            pieces.append(character)
            continue
        pieces.append(f"<U+{ord(character):04X}>")
    return "".join(pieces)
