"""Keeps pairs of quotation marks consistent if `old_string` matched only because look-alikes were ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import eq

from tools.text.look_alikes import fold

MAX_LINE_CHARS = 100_000  # a longer line is not prose


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the lengths of the common prefix, and of the common suffix of the rest."""
    head = [*map(eq, old, new), False].index(False)
    return head, [*map(eq, reversed(old[head:]), reversed(new[head:])), False].index(False)


def changed_line(raw: str, old: str, new: str) -> str:
    """Return the new form of a line of the file, where `raw` and `old` differ only in look-alikes.

    What `old` and `new` have in common at either end is taken from the file, except for a new pair of quotation marks
    of which that would be one half. New text never becomes typographic, because it may be code.
    """
    first, last = common_ends(old, new)
    characters = list(raw[:first] + new[first : len(new) - last] + raw[len(raw) - last :])
    if max(len(old), len(new)) > MAX_LINE_CHARS:
        return "".join(characters)

    def new_place(at: int) -> int:
        return at if at < first else at + len(new) - len(old) if at >= len(old) - last else -1

    for kind in "'\"":
        old_pairs = {(new_place(start), new_place(end)) for start, end in _pairs(old, kind)}
        for start, end in _pairs(new, kind):
            if (start, end) not in old_pairs and (characters[start] == kind) != (characters[end] == kind):
                characters[start], characters[end] = new[start], new[end]
    return "".join(characters)


def _pairs(text: str, kind: str) -> Iterator[tuple[int, int]]:
    # A mark between letters is an apostrophe.
    places = [match.start() for match in re.finditer(rf"(?<!\w){kind}|{kind}(?!\w)", fold(text))]
    return zip(places[::2], places[1::2], strict=False)
