"""Keeps quotation marks and apostrophes consistent if `old_string` matched only because look-alikes were ignored."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from itertools import pairwise
from operator import eq

from tools.text.look_alikes import fold


class _Role(Enum):
    OPENING = auto()
    CLOSING = auto()
    APOSTROPHE = auto()


# Where a file does not show its mark for a role: another role, and the mark that follows from the mark of that role
_DERIVED: Mapping[_Role, tuple[_Role, Mapping[str, str]]] = {
    _Role.OPENING: (_Role.CLOSING, {"\u201d": "\u201c", '"': '"', "'": "'"}),
    _Role.CLOSING: (_Role.OPENING, {"\u201c": "\u201d", "\u2018": "\u2019", '"': '"', "'": "'"}),
    _Role.APOSTROPHE: (_Role.CLOSING, {"\u2019": "\u2019", "'": "'"}),
}
MAX_LINE_CHARS = 100_000  # a longer line is not prose
_OPENS, _CLOSES = "([{<", ".,;:!?)]}>"


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the lengths of the common prefix, and of the common suffix of the rest."""
    head = [*map(eq, old, new), False].index(False)
    return head, [*map(eq, reversed(old[head:]), reversed(new[head:])), False].index(False)


def changed_line(raw: str, old: str, new: str, before: str, after: str) -> str:
    """Return the new form of a line of the file, where `raw` and `old` differ only in look-alikes.

    What `old` and `new` have in common at either end is taken from the file. Of each kind of quotation mark, either all
    marks in the line become those of the file, or no changed pair is half the file's and half the model's. `before` and
    `after` are the characters around the line, if any.
    """
    first, last = common_ends(old, new)
    stop = len(new) - last
    line = raw[:first] + new[first:stop] + raw[len(raw) - last :]
    if max(len(old), len(new)) > MAX_LINE_CHARS:
        return line
    characters = list(line)
    for kind in "'\"":
        roles = _roles(old, kind, before, after)
        if all(old[at] == raw[at] for at in roles):
            continue
        known_marks = {old[at] for at in roles}
        present = {role: {raw[at] for at, of_mark in roles.items() if of_mark is role} for role in _Role}
        new_roles = _roles(new, kind, before, after)
        for group in ({_Role.APOSTROPHE}, {_Role.OPENING, _Role.CLOSING}):
            places = {at: role for at, role in new_roles.items() if role in group}
            marks = {role: _mark(role, present, places.values()) for role in places.values()}
            if all(marks.values()) and all(new[at] in known_marks for at in places):
                for at, role in places.items():
                    characters[at] = marks[role]
                continue
            # The file itself may have pairs that are half of one form, half of another. They stay. These are the places
            # of the file's marks in the new line; -1 for each replaced mark.
            kept_places = [
                at if at < first else at + len(new) - len(old) if at >= len(old) - last else -1
                for at, role in roles.items()
                if role in group
            ]
            present_pairs = set(pairwise(kept_places))
            for start, end in pairwise(places):
                is_pair = (places[start], places[end]) == (_Role.OPENING, _Role.CLOSING)
                is_half = (characters[start] == kind) != (characters[end] == kind)
                if is_pair and is_half and (start, end) not in present_pairs:
                    characters[start], characters[end] = new[start], new[end]
    return "".join(characters)


def _roles(text: str, kind: str, before: str, after: str) -> Mapping[int, _Role]:
    """Return the positions of the marks of one kind, and what each mark is, judged by the characters around it."""
    folded = f"{before or ' '}{fold(text)}{after or ' '}"
    roles: dict[int, _Role] = {}
    for match in re.finditer(kind, folded[1:-1]):
        at = match.start()
        left, right = folded[at], folded[at + 2]
        if left.isalnum() and right.isalnum():
            roles[at] = _Role.APOSTROPHE
        elif right.isspace():
            roles[at] = _Role.CLOSING
        elif left.isspace() or left in _OPENS:
            roles[at] = _Role.OPENING
        else:
            roles[at] = _Role.CLOSING if left.isalnum() or left in _CLOSES or right in _CLOSES else _Role.OPENING
    return roles


def _mark(role: _Role, present: Mapping[_Role, Collection[str]], needed_roles: Collection[_Role]) -> str:
    """Return the file's mark for a role; empty if the file has several, or none from which the mark follows."""
    if present[role]:
        return next(iter(present[role])) if len(present[role]) == 1 else ""
    # A closing mark without an opening one is an apostrophe, as in: the dogs' bowl.
    is_plural = role is _Role.CLOSING and _Role.OPENING not in needed_roles and present[_Role.APOSTROPHE]
    other_role, derived_marks = (_Role.APOSTROPHE, {"\u2019": "\u2019", "'": "'"}) if is_plural else _DERIVED[role]
    marks = {derived_marks.get(mark, "") for mark in present[other_role]}
    return marks.pop() if len(marks) == 1 else ""
