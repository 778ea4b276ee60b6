"""The one table of characters that nobody sees: a text with one of them looks like a text without it.

Python calls some of them printable (fillers, variation selectors), so `str.isprintable` alone does not find them.
"""

from __future__ import annotations

import re

_TABLE = (
    # C0 and C1 but tab and line feed; separators of lines and paragraphs; half characters.
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
    # Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 16), but the emoji selector.
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    # Without a shape of their own all the same: marks of format, blank letters and signs.
    "\u070f\u2800\ufff9-\ufffb\U00013430-\U0001343f\U00016fe4\U0001d159"
    # For private use, where each font shows something else; what is no character; planes of tags or nothing.
    "\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U0010ffff"
)
_SYMBOLS = "\xa9\xae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
"""Where the symbols are that have a form as emoji (emoji-variation-sequences.txt of Unicode)."""

UNSEEN = re.compile(f"[{_TABLE}\ufe0f](?<![{_SYMBOLS}]\ufe0f)(?!(?<=[0-9#*]\ufe0f)\u20e3)")
"""What nobody sees, or everybody sees differently. The emoji selector is seen where it makes an emoji of a symbol."""

_UNSEEN_IN_NAMES = re.compile(f"[{_TABLE}\ufe0f]")
"""The emoji selector everywhere: two names with and without it look the same to many."""


def is_seen_in_name(name: str) -> bool:
    """Whether every character of a name is printable, and seen, so that no other name looks the same for it."""
    return name.isprintable() and (name.isascii() or not _UNSEEN_IN_NAMES.search(name))
