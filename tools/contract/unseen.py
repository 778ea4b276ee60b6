"""The one table of characters that nobody sees: a text with one of them looks like a text without it.

Python calls some of them printable (fillers, variation selectors), so `str.isprintable` alone does not find them.
"""

from __future__ import annotations

import re

_TABLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

UNSEEN = re.compile(f"[{_TABLE}]")
"""C0 and C1 but tab and line feed, soft hyphen, bidi controls, zero-width and filler characters, variation
selectors but the emoji one, tags, lone surrogates."""

_UNSEEN_IN_NAMES = re.compile(f"[{_TABLE}\ufe0f]")
"""The emoji selector too: prose needs it, but behind most characters it changes nothing that is seen."""


def is_seen_in_name(name: str) -> bool:
    """Whether every character of a name is printable, and seen, so that no other name looks the same for it."""
    return name.isprintable() and (name.isascii() or not _UNSEEN_IN_NAMES.search(name))
