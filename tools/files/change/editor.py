"""The work of `edit`: the text is found, replaced in the file's own bytes, and told with the lines around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tools.call.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names_on_one_line import shown_whole_path
from tools.files.change.changer import (
    MAX_CHANGED_BYTES,
    PROPOSED,
    SHOWN_BYTES,
    Aim,
    Change,
    Changer,
    Committed,
    Proposal,
    Report,
    Snapshot,
    check_fresh,
    clipped,
    encode_or_refuse,
    take_snapshot,
)
from tools.files.change.diff import unified_diff
from tools.files.change.edit_failures import Missed, check_count, check_number, not_found
from tools.files.change.text_match import (
    BLANKS,
    Haystack,
    Match,
    Span,
    Strategy,
    find_match,
    find_text,
    indentation_map,
    indentation_of,
)
from tools.files.ignore_files import agent_ignore_file
from tools.files.line_endings import line_endings, line_separator, split_lines, to_lf
from tools.files.text_encodings import (
    UTF_8,
    Decoded,
    Guess,
    check_fits,
    decode,
    decode_as_named,
    guess,
    looks_binary,
    marked_encoding,
)
from tools.files.workspace import Location

if TYPE_CHECKING:
    from tools.builtin.edit import EditParams


@dataclass(frozen=True, slots=True)
class Edited:
    """The outcome of an edit.

    Args:
        text: The whole new text.
        spans: What was put in, in the new text, in order.
    """

    text: str
    spans: tuple[Span, ...]


def apply_edit(haystack: Haystack, match: Match, old: str, new: str) -> Edited:
    """Put `new` in place of every match.

    An empty `new` deletes; where a match covers whole lines, the ending of the last one goes with them.

    Args:
        haystack: The file's text.
        match: Where.
        old: As the model gave it.
        new: As the model gave it. LF becomes the ending of the lines around.
    """
    pieces: list[str] = []
    spans: list[Span] = []
    done = length = 0
    around = _Endings(haystack.text)
    for span in match.spans:
        haystack.checkpoint()
        put = _replacement(around, match.strategy, span, old, new)
        stop = span.end if new or old.endswith(("\n", "\r")) else _end_with_line(haystack.text, span)
        pieces += (haystack.text[done : span.start], put)
        length += span.start - done
        spans.append(Span(length, length + len(put)))
        length += len(put)
        done = stop
    pieces.append(haystack.text[done:])
    return Edited("".join(pieces), tuple(spans))


def _end_with_line(text: str, span: Span) -> int:
    """The end of a span, with the line ending behind it if the span covers whole lines."""
    begins_line = span.start == 0 or text[span.start - 1] in "\r\n"
    if not begins_line or span.start == span.end:
        return span.end
    if text.startswith("\r\n", span.end):
        return span.end + 2
    return span.end + 1 if text[span.end : span.end + 1] in {"\n", "\r"} else span.end


class _Endings:
    """The line endings beside places that are asked for in order, so that no part of the text is searched twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._next: dict[str, int] = {}

    def has(self, ending: str) -> bool:
        return self._first[ending] >= 0

    @cached_property
    def _first(self) -> dict[str, int]:
        return {ending: find_text(self.text, ending) for ending in "\r\n"}

    def after(self, ending: str, position: int) -> int:
        """The first such character from a place on, or the text's length."""
        found = self._next.get(ending, -1)
        if found < position:
            found = find_text(self.text, ending, position)
            self._next[ending] = found = len(self.text) if found < 0 else found
        return found

    @cached_property
    def last(self) -> str:
        """The last line ending of the text, which has one."""
        place = max(self.text.rfind("\n"), self.text.rfind("\r"))
        return "\r\n" if self.text[place - 1 : place + 1] == "\r\n" else self.text[place]


def _replacement(around: _Endings, strategy: Strategy, span: Span, old: str, new: str) -> str:
    if strategy is Strategy.EXACT and ("\r" in old or "\n" not in new):
        # Whoever writes the carriage returns out means them; and without line endings there is nothing to adapt.
        return new
    style = _style(around, span, new)
    if strategy is Strategy.EXACT and not around.has("\r"):
        return new.replace("\r\n", "\n") if style == "\n" else new
    wanted, given = to_lf(old), to_lf(new) if "\r" in old else new.replace("\r\n", "\n")
    if strategy is Strategy.FINAL_NEWLINE:
        wanted, given = wanted.removesuffix("\n"), given.removesuffix("\n")
    return _rebuilt(around.text[span.start : span.end], strategy, wanted, given, style)


def _style(around: _Endings, span: Span, new: str) -> str:
    """The line ending for new lines: that of the lines touched, else of the line the span lies in, else before."""
    inside = line_endings(around.text[span.start : span.end]).majority
    if inside is not None:
        return inside
    if not around.has("\r"):
        return "\n" if around.has("\n") or "\r\n" not in new else "\r\n"
    if not around.has("\n"):
        return "\r"
    line_feed, carriage_return = around.after("\n", span.end), around.after("\r", span.end)
    if carriage_return < line_feed:
        return "\r\n" if around.text.startswith("\r\n", carriage_return) else "\r"
    # With none inside and none behind, the last one of the text is the one before.
    return "\n" if line_feed < len(around.text) else around.last


def _rebuilt(raw: str, strategy: Strategy, old: str, new: str, style: str) -> str:
    """The new lines, of which those in common with the old ones at both ends are taken from the file."""
    raw_bodies, raw_endings = split_lines(raw)
    old_lines, new_lines = old.split("\n"), new.split("\n")
    head, tail = _common_ends(old_lines, new_lines)
    indentations = indentation_map(old, raw) if strategy is Strategy.INDENTATION else None
    pieces: list[str] = []
    for number, line in enumerate(new_lines):
        source: int | None = number if number < head or len(old_lines) == len(new_lines) else None
        if number >= len(new_lines) - tail:
            source = len(old_lines) - len(new_lines) + number
        if source is not None and (number < head or number >= len(new_lines) - tail):
            body = raw_bodies[source]
        elif indentations is not None:
            body = _indented(line, indentations)
        elif source is not None and strategy is Strategy.LOOK_ALIKES:
            body = _keeping_ends(raw_bodies[source], old_lines[source], line)
        else:
            body = line
        pieces.append(body)
        if number < len(new_lines) - 1:
            pieces.append((raw_endings[source] if source is not None else "") or style)
    return "".join(pieces)


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines, or characters, both begin with, and how many of the others both end with."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _keeping_ends(raw: str, old: str, new: str) -> str:
    """The new line with the file's own characters where old and new begin and end alike."""
    head, tail = _common_ends(old, new)
    return raw[:head] + new[head : len(new) - tail] + raw[len(raw) - tail :]


def _indented(line: str, indentations: dict[str, str]) -> str:
    """A new line with the file's indentation in place of the one the model thought of."""
    if not line.strip(BLANKS):
        return ""
    own = indentation_of(line)
    rest = line[len(own) :]
    known = max((known for known in indentations if own.startswith(known)), key=len, default=None)
    if known is not None:
        return indentations[known] + _converted(own[len(known) :], indentations) + rest
    # Less indented than anything in old_string: keep the distance where the file's indentation has room for it.
    shortest = min(indentations, key=len)
    target = indentations[shortest]
    missing = shortest.removeprefix(own) if shortest.startswith(own) else ""
    return target.removesuffix(missing) + rest


def _converted(extra: str, indentations: dict[str, str]) -> str:
    """Further indentation in the file's characters: tabs for as many spaces as one tab stands for, or the reverse."""
    for old, raw in indentations.items():
        if old and raw and set(old) == {" "} and set(raw) == {"\t"} and len(old) % len(raw) == 0:
            width = len(old) // len(raw)
            return "\t" * (len(extra) // width) if set(extra) == {" "} and len(extra) % width == 0 else extra
        if old and raw and set(old) == {"\t"} and set(raw) == {" "} and len(raw) % len(old) == 0:
            return extra.replace("\t", " " * (len(raw) // len(old)))
    return extra


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
