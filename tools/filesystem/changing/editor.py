"""The work of `edit`: the text is found, replaced in the file's own bytes, and told with the lines around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import shown_whole_path
from tools.filesystem.changing.changer import (
    PROPOSED,
    SHOWN_BYTES,
    Aim,
    Change,
    Changer,
    Committed,
    Proposal,
    Report,
    clipped,
    encode_or_refuse,
)
from tools.filesystem.changing.diff import unified_diff
from tools.filesystem.changing.edit_failures import Missed, check_count, check_number, not_found
from tools.filesystem.changing.replacement import apply_edit
from tools.filesystem.changing.snapshot import MAX_CHANGED_BYTES, Snapshot, check_fresh, take_snapshot
from tools.filesystem.changing.text_match import Haystack, Match, Span, find_match
from tools.filesystem.ignore_files import agent_ignore_file
from tools.filesystem.legacy_encoding import Guess, check_fits, decode_as_named, guess
from tools.filesystem.text import UTF_8, Decoded, decode, line_separator, looks_binary, marked_encoding
from tools.filesystem.workspace import Location

if TYPE_CHECKING:
    from tools.filesystem.edit import EditParams

MAX_STRUCTURED_LINES = 100
"""Line numbers of replacements in the structured result."""

CONTEXT_LINES = 5
"""Unchanged lines shown around each change (Gemini CLI's)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit(Change):
    """An edit that is ready to be done.

    Args:
        match: What was found, or `None` for a creation.
        spans: What was put in, in the new text.
        lines: Where the matches began, in the old text; the first `MAX_STRUCTURED_LINES`.
    """

    match: Match | None = None
    spans: tuple[Span, ...] = ()
    lines: tuple[int, ...] = ()


class Editor(Changer["EditParams", _Edit]):
    """Replaces text in a file."""

    question = "Confirm Edit"
    labels = PROPOSED
    proposal_noun = "new text"

    def aim(self, params: EditParams) -> Aim:
        """The text to put in."""
        return Aim(params.file_path, params.new_string, params.expected_sha256)

    def plan(self, params: EditParams, location: Location, proposal: Proposal, context: ToolContext) -> _Edit:
        """The file with the text replaced, or the new file."""
        new_string = proposal.text
        snapshot = take_snapshot(location, context)
        if snapshot.data is None:
            return _creation(params, location, snapshot, new_string)
        hidden_by = agent_ignore_file(context.workspace, location)
        if hidden_by is not None:
            raise ToolError(
                ToolErrorType.PATH_IGNORED,
                f"'{location.shown}' is hidden from agents by {hidden_by}, so no part of it is replaced: whether that "
                "works would tell what it holds. Use write_file to replace all of it, or ask the user to change "
                "that file.",
            )
        if not params.old_string:
            raise ToolError(
                ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE,
                f"'{location.shown}' exists already, so it was not created. Give the text to replace as old_string, "
                "or use write_file to replace the whole content.",
            )
        check_fresh(location, snapshot, context.client.reads, params.expected_sha256)
        old = _decoded(location, snapshot.data, params, new_string)
        context.signal.raise_if_aborted()
        haystack = Haystack(old.text, old.encoding, context.signal.raise_if_aborted)
        match = find_match(haystack, params.old_string)
        if match is None or not match.spans:
            is_read = context.client.reads is None or context.client.reads.get(location.path) is not None
            missed = Missed(
                params.old_string, params.new_string, match.skipped if match is not None else 0, is_read=is_read
            )
            raise not_found(haystack, missed, location)
        check_number(params.old_string, match, old.text, location)
        lines = tuple(haystack.line_number(span.start) for span in match.spans[:MAX_STRUCTURED_LINES])
        check_count(params.expected_replacements, match, lines, location, is_for_all=params.replace_all)
        _check_size(params, match, old.text, location)
        edited = apply_edit(haystack, match, params.old_string, new_string)
        if edited.text == old.text:
            raise ToolError(
                ToolErrorType.EDIT_NO_CHANGE,
                f"The edit would leave '{location.shown}' as it is: what it puts in place of old_string is there "
                "already. Nothing was written.",
            )
        return _Edit(
            location=location,
            snapshot=snapshot,
            text=edited.text,
            encoding=old.encoding,
            data=encode_or_refuse(edited.text, old.encoding, "new_string"),
            diff=unified_diff(old.shown(), Decoded(edited.text, old.encoding).shown()),
            match=match,
            spans=edited.spans,
            lines=lines,
        )

    def report(self, change: _Edit, committed: Committed, final_diff: str) -> Report:
        """What was replaced, how it was found, and the changed places as they are now."""
        notes = list(committed.notes)
        path = shown_whole_path(change.location.path)
        match, diff, count = change.match, change.diff, len(change.spans)
        if match is not None and match.strategy.is_relaxed:
            how = match.strategy.value.replace("_", " ")
            notes.append(f"old_string was not there exactly; it was matched but for {how}.")
        if match is not None and match.skipped:
            notes.append(f"{match.skipped} other places may begin inside a character and were left alone.")
        if change.is_new:
            sentence = f"Created the new file {path}: {diff.added} lines, {change.form}."
        else:
            what = "1 replacement" if count == 1 else f"{count} replacements"
            sentence = f"Edited {path}: {what}, +{diff.added} -{diff.removed} lines; now {change.form}."
        changed = [] if final_diff else _shown_regions(change)
        return Report(
            sentence,
            notes,
            structured={
                "replacements": count,
                "strategy": match.strategy.value if match is not None else None,
                "lines": list(change.lines),
                "regions": changed,
            },
            shown=[f"Lines {part['first']}-{part['last']} now:\n---\n{part['text']}\n---" for part in changed],
        )


def _check_size(params: EditParams, match: Match, text: str, location: Location) -> None:
    """Refuse an edit whose result is too large, before anything of that size is built."""
    growth = len(match.spans) * max(0, len(params.new_string) - len(params.old_string))
    if len(text) + growth > MAX_CHANGED_BYTES:
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"The edit would make '{location.shown}' larger than {MAX_CHANGED_BYTES:,} bytes: old_string was "
            f"found {len(match.spans):,} times, and new_string has {len(params.new_string):,} characters. "
            "Nothing was written.",
        )


def _creation(params: EditParams, location: Location, snapshot: Snapshot, new_string: str) -> _Edit:
    if params.old_string:
        raise ToolError(
            ToolErrorType.FILE_NOT_FOUND,
            f"'{location.shown}' does not exist, so nothing in it can be replaced. Check the path with "
            "list_directory or glob; to create the file, give an empty old_string or use write_file.",
        )
    check_fresh(location, snapshot, None, params.expected_sha256)
    return _Edit(
        location=location,
        snapshot=snapshot,
        text=new_string,
        encoding=UTF_8,
        data=encode_or_refuse(new_string, UTF_8, "new_string"),
        diff=unified_diff(None, new_string),
    )


def _decoded(location: Location, data: bytes, params: EditParams, new_string: str) -> Decoded:
    """The text of the file, if it can be changed without touching a byte that does not belong to the change."""
    decoded = None if marked_encoding(data) is None and looks_binary(data) else decode(data)
    if decoded is None:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' is no text that can be edited: it is binary, or damaged UTF-16 or UTF-32. "
            "Nothing was written.",
        )
    if params.encoding is not None:
        decoded = decode_as_named(data, params.encoding, decoded, location.shown)
        check_fits(new_string, decoded.encoding, "new_string")
        return decoded
    if decoded.encoding.is_known:
        return decoded
    guessed = guess(data)
    if not (params.old_string.isascii() and new_string.isascii()):
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' is in an encoding that it does not say (no UTF-8), so other than ASCII text is "
            f"replaced in it only if you name the encoding. {_proposal(guessed)} Nothing was written.",
        )
    shown_as = guessed.decoded.encoding.codec if guessed is not None else decoded.encoding.shown_as
    return replace(decoded, encoding=replace(decoded.encoding, shown_as=shown_as))


def _proposal(guessed: Guess | None) -> str:
    if guessed is None:
        return "It seems to be UTF-8 in which some bytes are damaged; repair them first, or replace only ASCII text."
    return (
        f"It may be {guessed.name} ({guessed.how}): if it reads right so, repeat this with encoding='{guessed.name}'."
    )


def _shown_regions(change: _Edit) -> list[dict[str, Any]]:
    """The changed places for the model, as many as fit."""
    room = SHOWN_BYTES
    result: list[dict[str, Any]] = []
    for region in regions(change.text, change.spans, room):
        if room <= 0:
            break
        text = clipped(Decoded(region.text, change.encoding).shown(), room)
        room -= len(text.encode("utf-8", "replace"))
        result.append({"first": region.first, "last": region.last, "text": text})
    return result


@dataclass(frozen=True, slots=True)
class Region:
    """Whole lines of a text.

    Args:
        first: Number of the first line, from 1.
        last: Number of the last line.
        text: The lines, without the last line's ending.
    """

    first: int
    last: int
    text: str


def regions(text: str, spans: Sequence[Span], size: int) -> list[Region]:
    """The lines around changes; overlapping ones as one region.

    Args:
        text: The whole text.
        spans: Places in it, in order.
        size: After this many characters no other region is begun.
    """
    separator = line_separator(text)
    shown: list[Region] = []
    start = stop = line = counted = 0
    for number, span in enumerate(spans):
        begin = _begin(text, span.start, separator)
        if number and begin <= stop:
            if stop - start > size:
                break  # more than is shown
            stop = max(stop, _end(text, span.end, separator))
            continue
        if number:
            line += text.count(separator, counted, start)
            counted = start
            size -= _add(shown, text, (start, stop), line + 1, separator)
        if size <= 0:
            return shown
        start, stop = begin, _end(text, span.end, separator)
    if spans:
        line += text.count(separator, counted, start)
        _add(shown, text, (start, stop), line + 1, separator)
    return shown


def _add(shown: list[Region], text: str, place: tuple[int, int], first: int, separator: str) -> int:
    start, stop = place
    lines = text[start:stop].removesuffix(separator).removesuffix("\r")
    shown.append(Region(first, first + lines.count(separator), lines))
    return len(lines)


def _begin(text: str, position: int, separator: str) -> int:
    position = text.rfind(separator, 0, position) + 1
    for _ in range(CONTEXT_LINES):
        if position == 0:
            break
        position = text.rfind(separator, 0, position - 1) + 1
    return position


def _end(text: str, position: int, separator: str) -> int:
    for _ in range(CONTEXT_LINES + 1):
        found = text.find(separator, position)
        if found < 0:
            return len(text)
        position = found + 1
    return position
