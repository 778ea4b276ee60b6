"""The words of results that list files: numbers, names on one line, what was left out, where a page ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.filesystem.finding.walk import Walk
from tools.filesystem.ignore_files import HiddenBy

MAX_TEXT_BYTES = 7_800
"""A text beside structured content stays under 8 kB; this leaves room for what closes it."""


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 item`, `2 items`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def hidden_note(hidden: Mapping[HiddenBy, int]) -> str:
    """`2 git-ignored, 1 agent-ignored`, or nothing."""
    return ", ".join(f"{hidden[by]:,} {by.value}-ignored" for by in HiddenBy if hidden.get(by))


def walk_notes(walk: Walk) -> list[str]:
    """What a walk left out, as sentences."""
    notes: list[str] = []
    if hidden := hidden_note(walk.hidden):
        notes.append(f"Ignore files left out files or folders: {hidden}.")
    notes += walk.refusals
    named = sorted(name for name in walk.folders_excluded if name != ".git")
    if named:
        notes.append(f"Folders left out by default: {', '.join(named)}.")
    if walk.unreadable:
        notes.append(f"{count(walk.unreadable, 'folder')} could not be read.")
    if walk.timed_out:
        notes.append(
            f"PARTIAL RESULT: the time limit of {walk.deadline.seconds:g} s was reached before all folders were "
            "searched. Name a folder as path, or a narrower pattern."
        )
    return notes


def fitting(lines: Sequence[str], first: Sequence[str]) -> int:
    """How many lines fit the text beside structured content, after some first ones; at least one."""
    room = MAX_TEXT_BYTES - sum(len(line.encode("utf-8", "replace")) + 1 for line in first)
    for number, line in enumerate(lines):
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0 and number:
            return number
    return len(lines)


def page_end(total: int, offset: int, shown: int, noun: str) -> list[str]:
    """What follows a page of a list: that it lies past the end, or how to continue.

    Args:
        total: Entries of the whole list.
        offset: Where the page begins.
        shown: Entries on it.
        noun: What one entry is called.
    """
    lines = [f"(offset {offset} lies past the end)"] if total and not shown else []
    end = offset + shown
    if end < total:
        lines += ["---", f"[{count(total - end, f'more {noun}')} not shown; continue with offset={end}]"]
    return lines
