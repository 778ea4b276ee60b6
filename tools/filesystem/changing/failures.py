"""What an edit says when its `old_string` matched nothing, or not as often as it should."""

from __future__ import annotations

from dataclasses import dataclass

from tools.contract.errors import ToolError, ToolErrorType
from tools.filesystem.changing.matching import MAX_MATCHES, Haystack, Match
from tools.filesystem.workspace import Location

MAX_LISTED_LINES = 10
"""Line numbers of matches that an error lists."""


@dataclass(frozen=True, slots=True)
class Missed:
    """An edit that found nothing.

    Args:
        old: What it looked for.
        new: What it would have put in.
        skipped: Places left out because they may begin inside a character.
        is_read: Whether the client has read the file, as far as is known.
    """

    old: str
    new: str
    skipped: int
    is_read: bool


def check_number(old_string: str, match: Match, text: str, location: Location) -> None:
    """Refuse more replacements than one edit makes.

    Raises:
        ToolError: `edit_expected_occurrence_mismatch`.
    """
    if len(match.spans) > MAX_MATCHES:
        found = max(len(match.spans), text.count(old_string))
        raise ToolError(
            ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH,
            f"old_string was found {found:,} times in '{location.shown}', more than the {MAX_MATCHES:,} places that "
            "one edit changes. Nothing was written. Give a longer old_string, or use a stream editor in the shell.",
        )


def check_count(
    expected: int | None, match: Match, lines: tuple[int, ...], location: Location, *, is_for_all: bool
) -> None:
    """Refuse an edit that matches another number of times than it should.

    Args:
        expected: How often the caller says it must match, or `None`.
        match: What was found.
        lines: The line numbers of the matches, at least the first ones.
        location: The file.
        is_for_all: Whether every match is meant.

    Raises:
        ToolError: `edit_expected_occurrence_mismatch`.
    """
    count = len(match.spans)
    where = f"line {lines[0]}" if count == 1 else f"lines {', '.join(str(line) for line in lines[:MAX_LISTED_LINES])}"
    if count > MAX_LISTED_LINES:
        where += " and more"
    if expected is not None and count != expected:
        raise ToolError(
            ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH,
            f"old_string was found {count} times in '{location.shown}' ({where}), expected_replacements says "
            f"{expected}; nothing was written.",
        )
    if count == 1 or (is_for_all and not match.strategy.is_relaxed):
        return
    if match.strategy.is_relaxed:
        how = match.strategy.value.replace("_", " ")
        raise ToolError(
            ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH,
            f"old_string is not in '{location.shown}' exactly; {count} places are like it but for {how} ({where}). "
            "Such a match must be unique. Nothing was written. Copy the text exactly, with more lines around it.",
        )
    raise ToolError(
        ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH,
        f"old_string was found {count} times in '{location.shown}' ({where}), so it is not clear which one is "
        "meant; nothing was written. Add lines around it to make it unique, or set replace_all to change every one.",
    )


def not_found(haystack: Haystack, missed: Missed, location: Location) -> ToolError:
    """Nothing matched: why, and what is nearest."""
    sentences = [f"old_string was not found in '{location.shown}' (0 matches), so nothing was written."]
    nearest = None
    if missed.skipped:
        sentences.append(
            f"{missed.skipped} places look like it, but the character before each is not ASCII and may be one with "
            "the first character of old_string in this file's encoding; begin old_string earlier or later."
        )
    else:
        from tools.filesystem.changing.diagnosis import causes, nearest_region  # noqa: PLC0415 - only failed edits need it

        sentences += causes(haystack, missed.old, missed.new)
        nearest = nearest_region(haystack, missed.old)
    if not missed.is_read:
        sentences.append("You have not read this file yet; read it first.")
    if nearest is None:
        sentences.append("Copy old_string from the file exactly as it is, without line numbers.")
        return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, " ".join(sentences))
    sentences.append(
        f"The most similar part of the file, lines {nearest.first}-{nearest.last}, is below; copy old_string from "
        "there exactly if it is what you mean."
    )
    return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, f"{' '.join(sentences)}\n---\n{nearest.text}\n---")
