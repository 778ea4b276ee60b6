"""`edit`: finds `old_string`, replaces it in the file's bytes, and reports the surrounding lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.diff import lines_back, lines_on, unified_diff
from tools.files.change.edit_failures import check_count, not_found
from tools.files.change.file_change import (
    MAX_CHANGED_BYTES,
    SHOWN_BYTES,
    FileChange,
    TargetFile,
    clipped,
    encode_or_refuse,
    take_snapshot,
)
from tools.files.change.omitted_text import first_omission, placeholder_error
from tools.files.change.text_match import (
    BLANKS,
    Haystack,
    Span,
    Strategy,
    TextMatch,
    find_match,
    indentation_map,
    indentation_of,
)
from tools.files.find.near_names import not_there
from tools.files.notebook_cells import NOTEBOOK_ENDING
from tools.files.text_encodings import (
    UTF_8,
    Decoded,
    NearbyEndings,
    check_fits,
    decode_as_named,
    decode_unless_binary,
    guess,
    line_separator,
    split_lines,
    to_lf,
)
from tools.files.workspace import Location
from tools.text.file_names import shown_whole_path

MAX_STRUCTURED_LINES = 100  # maximum number of replacements whose line numbers are in the structured result
MAX_INDENTATION = 1_000  # how many characters before a match to search for its indentation
CONTEXT_LINES = 5  # unchanged lines shown around each change (as in Gemini CLI)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEdit(FileChange):
    title: ClassVar[str] = "Confirm Edit"
    proposal_noun: ClassVar[str] = "new text"

    match: TextMatch | None = None  # the matches, or `None` for a new file
    spans: tuple[Span, ...] = ()  # where the insertions are in the new text
    lines: tuple[int, ...] = ()  # numbers of the lines where matches begin, at most `MAX_STRUCTURED_LINES`

    @property
    def sentence(self) -> str:
        path, diff, count = shown_whole_path(self.target.location.name), self.diff, len(self.spans)
        if self.is_new:
            return f"Created the new file {path}: {diff.added} {'line' if diff.added == 1 else 'lines'}, {self.form}."
        what = "1 replacement" if count == 1 else f"{count} replacements"
        return f"Edited {path}: {what}, +{diff.added} -{diff.removed} lines; now {self.form}."

    @property
    def details(self) -> dict[str, Any]:
        """How the text matched, and as many of the changed places as fit."""
        return {
            "replacements": len(self.spans),
            "strategy": self.match.strategy.value if self.match is not None else None,
            "lines": list(self.lines),
            "regions": self._regions(),
        }

    def _regions(self) -> list[dict[str, Any]]:
        """Return the lines around each change, after the edit. Overlapping regions are merged."""
        text, separator = self.text, line_separator(self.text)
        windows: list[tuple[int, int]] = []
        size = 0
        for span in self.spans:
            if size + (windows[-1][1] - windows[-1][0] if windows else 0) > SHOWN_BYTES:
                break  # the rest does not fit
            start = lines_back(text, text.rfind(separator, 0, span.start) + 1, CONTEXT_LINES, separator)
            stop = lines_on(text, span.end, CONTEXT_LINES + 1, separator)
            if windows and start <= windows[-1][1]:
                windows[-1] = windows[-1][0], max(stop, windows[-1][1])
            else:
                size += windows[-1][1] - windows[-1][0] if windows else 0
                windows.append((start, stop))
        regions: list[dict[str, Any]] = []
        left, line, counted = SHOWN_BYTES, 1, 0
        for start, stop in windows:
            if left <= 0:
                break
            line += text.count(separator, counted, start)
            counted = start
            lines = text[start:stop].removesuffix(separator).removesuffix("\r")
            shown = clipped(Decoded(lines, self.encoding).shown(), left)
            left -= len(shown.encode("utf-8", "replace"))
            regions.append({"first": line, "last": line + lines.count(separator), "text": shown})
        return regions


def plan_edit(
    target: TargetFile,
    old_string: str,
    new_string: str,
    *,
    replace_all: bool = False,
    expected_replacements: int | None = None,
    expected_sha256: str | None = None,
    encoding: str | None = None,
    is_users: bool = False,
) -> TextEdit:
    """Plan a replacement, or a new file if `old_string` is empty. Writes nothing.

    `expected_sha256` is the required digest of the file. `is_users` is true if the user wrote the new text,
    and may therefore intend a line that looks like a placeholder.
    """
    location, signal = target.location, target.signal
    snapshot = take_snapshot(target)
    if snapshot.data is None:
        if old_string:
            advice = " To create the file, give an empty old_string or use write_file."
            raise not_there(target.workspace, location, signal, so=", so nothing in it can be replaced", advice=advice)
        snapshot.check_fresh(expected_sha256)
        target.refuse_look_alike()
        return TextEdit(
            snapshot=snapshot,
            text=new_string,
            encoding=UTF_8,
            data=encode_or_refuse(new_string, UTF_8, "new_string"),
            diff=unified_diff(None, new_string),
        )
    snapshot.refuse_part_of_hidden()
    if not old_string:
        raise ToolError(
            ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE,
            f"'{location.shown}' already exists, so it was not created. Give the text to replace as old_string, "
            "or use write_file to replace the whole content.",
        )
    snapshot.check_fresh(expected_sha256)
    old = _decode(location, snapshot.data, encoding, old_string, new_string)
    line = None if is_users else first_omission(new_string, old_string, old.text, path=location.path)
    if line is not None:
        advice = "Give the complete replacement, or a smaller 'old_string'."
        raise placeholder_error("edit", f"'{line}' in 'new_string'", advice)
    signal.raise_if_aborted()

    haystack = Haystack(old.text, old.encoding, signal.raise_if_aborted)
    match = find_match(haystack, old_string)
    if match is None or not match.spans:
        skipped = match.skipped if match is not None else 0
        is_read = target.reads is None or target.seen is not None
        raise not_found(location, haystack, old_string, new_string, skipped=skipped, is_read=is_read)
    lines = tuple(haystack.line_number(span.start) for span in match.spans[:MAX_STRUCTURED_LINES])
    check_count(location, old.text, old_string, match, lines, expected=expected_replacements, replaces_all=replace_all)
    growth = len(match.spans) * max(0, len(new_string) - len(old_string))
    if len(old.text) + growth > MAX_CHANGED_BYTES:  # checked before anything of this size is created
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"The edit would make '{location.shown}' larger than {MAX_CHANGED_BYTES:,} bytes: old_string was "
            f"found {len(match.spans):,} times, and new_string has {len(new_string):,} characters. "
            "Nothing was written.",
        )
    text, spans = apply_edit(haystack, match, old_string, new_string)
    if text == old.text:
        raise ToolError(
            ToolErrorType.EDIT_NO_CHANGE,
            f"The edit would not change '{location.shown}': the replacement is already there. Nothing was written.",
        )
    notes: list[str] = []
    if match.strategy.is_relaxed:
        how = match.strategy.value.replace("_", " ")
        notes.append(f"old_string did not match exactly; these differences were ignored: {how}.")
    if location.path.lower().endswith(NOTEBOOK_ENDING):
        notes.append("The file is a notebook; notebook_edit can change its cells without edits to the JSON.")
    if match.skipped:
        notes.append(f"Similar places left alone, because they may begin inside a character: {match.skipped}.")
    return TextEdit(
        snapshot=snapshot,
        text=text,
        encoding=old.encoding,
        data=encode_or_refuse(text, old.encoding, "new_string"),
        diff=unified_diff(old.shown(), Decoded(text, old.encoding).shown()),
        notes=tuple(notes),
        match=match,
        spans=spans,
        lines=lines,
    )


def _decode(location: Location, data: bytes, encoding: str | None, old_string: str, new_string: str) -> Decoded:
    """Decode the file if the change can be made without affecting any other byte."""
    decoded = decode_unless_binary(data)
    if decoded is None:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' cannot be edited as text: it is binary, or damaged UTF-16 or UTF-32. Nothing was "
            "written.",
        )
    if encoding is not None:
        decoded = decode_as_named(data, encoding, decoded, location.shown)
        check_fits(new_string, decoded.encoding, "new_string")
        return decoded
    if decoded.encoding.is_known:
        return decoded
    guessed = guess(data)
    if not (old_string.isascii() and new_string.isascii()):
        advice = "It seems to be UTF-8 with some damaged bytes. Repair them first, or replace only ASCII text."
        if guessed is not None:
            advice = (
                f"It may be {guessed.name} ({guessed.how}): if the text looks right, repeat this call with "
                f"encoding='{guessed.name}'."
            )
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' has an unknown encoding (not UTF-8), so non-ASCII text can be replaced only if you "
            f"name the encoding. {advice} Nothing was written.",
        )
    shown_as = guessed.decoded.encoding.codec if guessed is not None else decoded.encoding.shown_as
    return replace(decoded, encoding=replace(decoded.encoding, shown_as=shown_as))


def apply_edit(haystack: Haystack, match: TextMatch, old: str, new: str) -> tuple[str, tuple[Span, ...]]:
    """Return the whole new text with `new` in place of every match, and the spans of the insertions, in order.

    LF in `new` becomes the line ending of the surrounding lines. An empty `new` deletes the matches. If a match
    consists of whole lines, the ending of the last line is deleted too.
    """
    text, is_exact = haystack.text, match.strategy is Strategy.EXACT
    # Explicit carriage returns are intended, and without line breaks there is nothing to adapt.
    is_literal = is_exact and ("\r" in old or "\n" not in new)
    wanted, given = to_lf(old), to_lf(new) if "\r" in old else new.replace("\r\n", "\n")
    if match.strategy is Strategy.FINAL_NEWLINE:
        wanted, given = wanted.removesuffix("\n"), given.removesuffix("\n")
    endings = NearbyEndings(text)
    pieces: list[str] = []
    spans: list[Span] = []
    done = length = 0
    for span in match.spans:
        haystack.checkpoint()
        stop, put = span.end, new
        if not is_literal:
            ending = endings.for_lines_at(span.start, span.end, new)
            if not is_exact or haystack.has_returns:
                put = _rebuilt(text[span.start : span.end], match.strategy, wanted, given, ending)
            elif ending == "\n":
                put = given
            # The indentation before the match stays. If every line of `new` has it too, the first line must not repeat
            # it.
            before = text[max(0, span.start - MAX_INDENTATION) : span.start]
            begin = max(before.rfind("\n"), before.rfind("\r")) + 1
            before, is_whole = before[begin:], begin > 0 or span.start <= MAX_INDENTATION
            if is_exact and is_whole and before and not before.strip(BLANKS) and old[0] not in BLANKS:
                is_repeated = all(line.startswith(before) for line in given.split("\n") if line.strip())
                put = put.removeprefix(before) if is_repeated else put
        begins_line = span.start == 0 or text[span.start - 1] in "\r\n"
        if not new and not old.endswith(("\n", "\r")) and begins_line and span.start != span.end:
            stop += 2 if text.startswith("\r\n", stop) else text.startswith(("\n", "\r"), stop)
        pieces += (text[done : span.start], put)
        length += span.start - done
        spans.append(Span(length, length + len(put)))
        length += len(put)
        done = stop
    pieces.append(text[done:])
    return "".join(pieces), tuple(spans)


def _rebuilt(raw: str, strategy: Strategy, old: str, new: str, ending: str) -> str:
    """Return the new lines. Lines that `old` and `new` have in common at either end are taken from the file."""
    raw_bodies, raw_endings = split_lines(raw)
    old_lines, new_lines = old.split("\n"), new.split("\n")
    head, tail = _common_ends(old_lines, new_lines)
    indentations = indentation_map(old, raw) if strategy is Strategy.INDENTATION else None
    if indentations is not None and (lacking := _lines_lacking(old_lines, raw_bodies, new_lines)) is not None:
        return ending.join([*raw_bodies[:lacking], *new_lines[lacking:]])
    pieces: list[str] = []
    for number, line in enumerate(new_lines):
        source: int | None = number if number < head or len(old_lines) == len(new_lines) else None
        if number >= len(new_lines) - tail:
            source = len(old_lines) - len(new_lines) + number
        if source is not None and (number < head or number >= len(new_lines) - tail):
            pieces.append(raw_bodies[source])
        elif indentations is not None:
            pieces.append(_indented(line, indentations))
        elif source is not None and strategy is Strategy.LOOK_ALIKES:
            # Keep the file's own characters at the common beginning and end of the line.
            first, last = _common_ends(old_lines[source], line)
            body = raw_bodies[source]
            pieces.append(body[:first] + line[first : len(line) - last] + body[len(body) - last :])
        else:
            pieces.append(line)
        if number < len(new_lines) - 1:
            pieces.append((raw_endings[source] if source is not None else "") or ending)
    return "".join(pieces)


def _lines_lacking(old: Sequence[str], raw: Sequence[str], new: Sequence[str]) -> int | None:
    """Return how many leading lines of `new` lack the file's indentation, or `None` if `new` is indented like `old`.

    The common leading lines of `old` and `new` decide this. The next line of `new` counts too if it is indented like
    the file, and if it is the first line or its indentation does not occur in `old`.

    Raises:
        ToolError: `new` has neither the indentation of the file nor that of `old`.
    """
    known = {indentation_of(line) for line in old}
    kept: list[tuple[bool, bool]] = []  # for each line, whether it is indented like `old`, and like the file
    for number, (old_line, raw_line, line) in enumerate(zip(old, raw, new, strict=False)):
        own, is_common = indentation_of(line), line.strip() == old_line.strip()
        as_old, as_raw = own == indentation_of(old_line), own == indentation_of(raw_line)
        if line.strip() and (is_common or (as_raw and (not number or own not in known))):
            kept.append((as_old, as_raw))
        if not is_common:
            break
    if all(as_old for as_old, _ in kept):
        return None
    lacking = 0 if kept[0][1] else 1
    if not (kept[0][0] or kept[0][1]) or not all(as_raw for _, as_raw in kept[lacking:]):
        raise ToolError(
            ToolErrorType.EDIT_NO_OCCURRENCE_FOUND,
            "Nothing was written: old_string has a different indentation in the file, and new_string is indented "
            "neither like the file nor like old_string. Give both with the file's indentation, including the first "
            "line.",
        )
    return lacking


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the lengths of the common prefix, and of the common suffix of the rest."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _indented(line: str, indentations: dict[str, str]) -> str:
    """Replace the model's indentation of a new line with the file's."""
    if not line.strip(BLANKS):
        return ""
    own = indentation_of(line)
    rest = line[len(own) :]
    known = max((known for known in indentations if own.startswith(known)), key=len, default=None)
    if known is None:
        # The line is less indented than every line of old_string. Keep the difference as far as the file's indentation
        # allows.
        shortest = min(indentations, key=len)
        missing = shortest.removeprefix(own) if shortest.startswith(own) else ""
        return indentations[shortest].removesuffix(missing) + rest
    extra = own[len(known) :]
    for old, raw in indentations.items():
        # Convert spaces to tabs of the same width, or the reverse.
        if old and raw and set(old) == {" "} and set(raw) == {"\t"} and len(old) % len(raw) == 0:
            width = len(old) // len(raw)
            if set(extra) == {" "} and len(extra) % width == 0:
                extra = "\t" * (len(extra) // width)
            break
        if old and raw and set(old) == {"\t"} and set(raw) == {" "} and len(raw) % len(old) == 0:
            extra = extra.replace("\t", " " * (len(raw) // len(old)))
            break
    return indentations[known] + extra + rest
