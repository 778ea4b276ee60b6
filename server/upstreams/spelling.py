"""How one tool of an upstream is called: in full, in rules, and as short as its published name has to be."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

from tools.permissions.tool_names import BETWEEN

MAX_NAME = 128
"""The longest tool name the specification allows (SEP-986)."""

MARK_LENGTH = 9
"""Characters of what ends a name that was changed: a dash, a letter, seven hexadecimal digits."""

_OTHER = re.compile(r"[^A-Za-z0-9_.-]")
_MARKED = re.compile(r"-[g-v][0-9a-f]{7}\Z")


class Change(StrEnum):
    """What was done to a name, as people are told."""

    LENGTH = "shortened to proxy.nameBudget"
    CHARACTERS = "changed, since clients take letters, digits and _ . - only"
    MARK = "changed, since it ends like a shortened one"
    RENAMED = "renamed"


def full_name(alias: str, name: str) -> str:
    """The name that always means this one, whatever it is published as."""
    return f"{alias}{BETWEEN}{name}"


def rule_name(alias: str, name: str) -> str:
    """The full name where a rule can be written with it, else one that stands for it: rules know blanks and stars."""
    full = full_name(alias, name)
    return full if is_plain(name) else _marked(full, full, MAX_NAME)


def is_plain(name: str) -> bool:
    """Whether a name has only characters that every client takes, and at least one."""
    return name != "" and _OTHER.search(name) is None


def spelled(wanted: str, original: str, budget: int) -> tuple[str, Change | None]:
    """A name as it is published, and why it is not the one that was wanted.

    It depends on nothing but these arguments, so it stays the same whatever else is listed. What was changed ends with
    a mark, and what ends like that by itself gets one too, so no name is taken for the shortened form of another.

    Args:
        wanted: How it should be called.
        original: The full name of what it is.
        budget: The most characters.
    """
    change = _change_of(wanted, budget)
    return (wanted, None) if change is None else (_marked(wanted, original, budget), change)


def _change_of(wanted: str, budget: int) -> Change | None:
    if not is_plain(wanted):
        return Change.CHARACTERS
    if len(wanted) > budget:
        return Change.LENGTH
    return Change.MARK if _MARKED.search(wanted) else None


def _marked(wanted: str, original: str, budget: int) -> str:
    """The beginning of a name, and a short hash of the original.

    The first digit is written as a letter from g to v, so that no date, number or commit at the end of a name looks
    like a mark.
    """
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()
    mark = f"-{chr(ord('g') + int(digest[0], 16))}{digest[1:8]}"
    return _OTHER.sub("-", wanted)[: budget - MARK_LENGTH] + mark
