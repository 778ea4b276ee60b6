"""`edit`: finds `old_string`, replaces it in the file's bytes, and reports the surrounding lines.

If `old_string` does not match, the error gives the likely cause and the most similar part of the file. The running time
is bounded for any input. The most similar part only helps the model to write the next call; it is never replaced.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import eq
from typing import Any, ClassVar, NamedTuple

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.diff import line_range, line_start_after, line_start_before, unified_diff
from tools.files.change.file_change import (
    MAX_CHANGED_BYTES,
    SHOWN_BYTES,
    FileChange,
    TargetFile,
    encode_or_refuse,
    take_snapshot,
    truncate,
)
from tools.files.change.omitted_text import first_omission, placeholder_error
from tools.files.change.text_match import (
    BLANKS,
    MAX_MATCHES,
    MAX_RELAXED_CHARS,
    PIECE_CHARS,
    Haystack,
    Span,
    Strategy,
    TextMatch,
    find_match,
    find_text,
    indentation_map,
    indentation_of,
    is_too_large_for_relaxed,
)
from tools.files.find.path_suggestions import missing_path_error
from tools.files.notebook_cells import NOTEBOOK_ENDING
from tools.files.text_encodings import (
    UTF_8,
    Decoded,
    NextEndings,
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
from tools.text.look_alikes import fold, marked, visible_form

MAX_STRUCTURED_LINES = 100  # maximum number of replacements whose line numbers are in the structured result
MAX_PROSE_CHARS = 100_000  # a longer line is not prose, so its quotation marks are not compared
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
            lines = "1 line" if diff.added == 1 else f"{diff.added} lines"
            return f"Created the new file {path}: {lines}, {self.content_summary}."
        replacements = "1 replacement" if count == 1 else f"{count} replacements"
        return f"Edited {path}: {replacements}, {diff.counts} lines; now {self.content_summary}."

    @property
    def result_fields(self) -> dict[str, Any]:
        """How the text matched, and as many of the changed places, with lines around them, as fit in `SHOWN_BYTES`."""
        text, separator = self.text, line_separator(self.text)
        windows: list[tuple[int, int]] = []
        size = 0
        for span in self.spans:
            if size + (windows[-1][1] - windows[-1][0] if windows else 0) > SHOWN_BYTES:
                break  # the rest does not fit
            start = line_start_before(text, text.rfind(separator, 0, span.start) + 1, CONTEXT_LINES, separator)
            stop = line_start_after(text, span.end, CONTEXT_LINES + 1, separator)
            if windows and start <= windows[-1][1]:
                windows[-1] = windows[-1][0], max(stop, windows[-1][1])
            else:
                size += windows[-1][1] - windows[-1][0] if windows else 0
                windows.append((start, stop))
        regions: list[dict[str, Any]] = []
        room, line, count_start = SHOWN_BYTES, 1, 0
        for start, stop in windows:
            if room <= 0:
                break
            line += text.count(separator, count_start, start)
            count_start = start
            lines = text[start:stop].removesuffix(separator).removesuffix("\r")
            excerpt = truncate(Decoded(lines, self.encoding).shown(), room)
            room -= len(excerpt.encode("utf-8", "replace"))
            regions.append({"first": line, "last": line + lines.count(separator), "text": excerpt})
        strategy = self.match.strategy.value if self.match is not None else None
        return {"replacements": len(self.spans), "strategy": strategy, "lines": list(self.lines), "regions": regions}


def plan_edit(
    target: TargetFile,
    old_string: str,
    new_string: str,
    *,
    replace_all: bool,
    expected_replacements: int | None,
    expected_sha256: str | None,
    encoding: str | None,
    is_users: bool,
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
            raise missing_path_error(
                target.workspace, location, signal, consequence=", so nothing in it can be replaced", advice=advice
            )
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
    if old_string == new_string:
        raise ToolError(
            ToolErrorType.EDIT_NO_CHANGE,
            f"old_string and new_string are the same, so '{location.shown}' would not change. Nothing was written.",
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
        skipped_count = match.skipped if match is not None else 0
        is_read = target.reads is None or target.seen is not None
        raise not_found(location, haystack, old_string, new_string, skipped_count=skipped_count, is_read=is_read)
    lines = tuple(haystack.line_number(span.start) for span in match.spans[:MAX_STRUCTURED_LINES])
    check_count(location, old.text, old_string, match, lines, expected=expected_replacements, replaces_all=replace_all)
    growth = len(match.spans) * max(0, len(new_string) - len(old_string))
    if len(old.text) + growth > MAX_CHANGED_BYTES:  # checked before text of this size is created
        raise ToolError(
            ToolErrorType.FILE_TOO_LARGE,
            f"The edit would make '{location.shown}' larger than {MAX_CHANGED_BYTES:,} bytes: new_string has "
            f"{len(new_string):,} characters, and the number of matches is {len(match.spans):,}. Nothing was written.",
        )
    text, spans = apply_edit(haystack, match, old_string, new_string)
    if text == old.text:
        raise ToolError(
            ToolErrorType.EDIT_NO_CHANGE,
            f"The edit would not change '{location.shown}': the replacement is already there. Nothing was written.",
        )
    notes: list[str] = []
    if match.strategy.is_relaxed:
        notes.append(f"old_string did not match exactly; these differences were ignored: {match.strategy.differences}.")
    if location.path.lower().endswith(NOTEBOOK_ENDING):
        notes.append("The file is a notebook; notebook_edit can change its cells without edits to the JSON.")
    if match.skipped:
        notes.append(f"Matches left alone, because they may begin in the middle of a character: {match.skipped}.")
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
    best_guess = guess(data)
    if not (old_string.isascii() and new_string.isascii()):
        advice = "It seems to be UTF-8 with some damaged bytes. Repair them first, or replace only ASCII text."
        if best_guess is not None:
            advice = (
                f"It may be {best_guess.name} ({best_guess.how}): if the text looks right, repeat this call with "
                f"encoding='{best_guess.name}'."
            )
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"'{location.shown}' has an unknown encoding (not UTF-8), so non-ASCII text can be replaced only if you "
            f"name the encoding. {advice} Nothing was written.",
        )
    shown_as = best_guess.decoded.encoding.codec if best_guess is not None else decoded.encoding.shown_as
    return replace(decoded, encoding=replace(decoded.encoding, shown_as=shown_as))


def apply_edit(haystack: Haystack, match: TextMatch, old: str, new: str) -> tuple[str, tuple[Span, ...]]:
    """Return the whole new text with `new` in place of every match, and the spans of the insertions, in order.

    LF in `new` becomes the ending of the line in which the match begins or, for a last line without ending, the last
    ending in the text.
    An empty `new` deletes the matches. If a match consists of whole lines, the ending of the last line is also deleted.
    """
    text, is_exact = haystack.text, match.strategy is Strategy.EXACT
    # For an exact match, insert `new` unchanged if `old` has carriage returns, or if `new` has no line breaks to adapt.
    is_literal = is_exact and ("\r" in old or "\n" not in new)
    old_lf, new_lf = to_lf(old), to_lf(new) if "\r" in old else new.replace("\r\n", "\n")
    if match.strategy is Strategy.FINAL_NEWLINE:
        old_lf, new_lf = old_lf.removesuffix("\n"), new_lf.removesuffix("\n")
    endings = NextEndings(text)
    pieces: list[str] = []
    spans: list[Span] = []
    position = length = 0
    for span in match.spans:
        haystack.checkpoint()
        stop, insertion = span.end, new
        if not is_literal:
            ending = endings.after(span.start) or ("\r\n" if "\r\n" in new else "\n")
            if not is_exact or haystack.has_returns:
                insertion = _rebuild_lines(text[span.start : span.end], match.strategy, old_lf, new_lf, ending)
            elif ending == "\n":
                insertion = new_lf
            # The indentation before the match is kept. If every line of `new` begins with the same indentation, drop it
            # from the first line, which would otherwise have it twice.
            line_prefix = text[max(0, span.start - MAX_INDENTATION) : span.start]
            begin = max(line_prefix.rfind("\n"), line_prefix.rfind("\r")) + 1
            line_prefix, is_whole = line_prefix[begin:], begin > 0 or span.start <= MAX_INDENTATION
            if is_exact and is_whole and line_prefix and not line_prefix.strip(BLANKS) and old[0] not in BLANKS:
                is_repeated = all(line.startswith(line_prefix) for line in new_lf.split("\n") if line.strip())
                insertion = insertion.removeprefix(line_prefix) if is_repeated else insertion
        begins_line = span.start == 0 or text[span.start - 1] in "\r\n"
        if not new and not old.endswith(("\n", "\r")) and begins_line and span.start != span.end:
            stop += 2 if text.startswith("\r\n", stop) else text.startswith(("\n", "\r"), stop)
        pieces += (text[position : span.start], insertion)
        length += span.start - position
        spans.append(Span(length, length + len(insertion)))
        length += len(insertion)
        position = stop
    pieces.append(text[position:])
    return "".join(pieces), tuple(spans)


def _rebuild_lines(raw: str, strategy: Strategy, old: str, new: str, ending: str) -> str:
    """Return the new lines. Lines that `old` and `new` have in common at either end are taken from the file."""
    raw_bodies, raw_endings = split_lines(raw)
    old_lines, new_lines = old.split("\n"), new.split("\n")
    head, tail = _common_ends(old_lines, new_lines)
    indentations = indentation_map(old, raw) if strategy is Strategy.INDENTATION else None
    if indentations is not None and (count := _count_kept_lines(old_lines, raw_bodies, new_lines)) is not None:
        return ending.join([*raw_bodies[:count], *new_lines[count:]])
    pieces: list[str] = []
    for number, line in enumerate(new_lines):
        source: int | None = number if number < head or len(old_lines) == len(new_lines) else None
        if number >= len(new_lines) - tail:
            source = len(old_lines) - len(new_lines) + number
        if source is not None and (number < head or number >= len(new_lines) - tail):
            pieces.append(raw_bodies[source])
        elif indentations is not None:
            pieces.append(_reindent(line, indentations))
        elif source is not None and strategy is Strategy.LOOK_ALIKES:
            pieces.append(changed_line(raw_bodies[source], old_lines[source], line))
        else:
            pieces.append(line)
        if number < len(new_lines) - 1:
            pieces.append((raw_endings[source] if source is not None else "") or ending)
    return "".join(pieces)


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the lengths of the common prefix, and of the common suffix of the rest."""
    head = [*map(eq, old, new), False].index(False)
    return head, [*map(eq, reversed(old[head:]), reversed(new[head:])), False].index(False)


def changed_line(raw: str, old: str, new: str) -> str:
    """Return the new form of a line of the file, where `raw` and `old` differ only in look-alikes.

    The common beginning and end of `old` and `new` are taken from the file. If only one mark of a new pair of quotation
    marks would come from the file, both are taken from `new`. New text never becomes typographic, because it may be
    code.
    """
    first, last = _common_ends(old, new)
    characters = list(raw[:first] + new[first : len(new) - last] + raw[len(raw) - last :])
    if max(len(old), len(new)) > MAX_PROSE_CHARS:
        return "".join(characters)

    def new_place(at: int) -> int:
        return at if at < first else at + len(new) - len(old) if at >= len(old) - last else -1

    for kind in "'\"":
        old_pairs = {(new_place(start), new_place(end)) for start, end in _quotation_pairs(old, kind)}
        for start, end in _quotation_pairs(new, kind):
            if (start, end) not in old_pairs and (characters[start] == kind) != (characters[end] == kind):
                characters[start], characters[end] = new[start], new[end]
    return "".join(characters)


def _quotation_pairs(text: str, kind: str) -> Iterator[tuple[int, int]]:
    # A mark between letters is an apostrophe.
    places = [match.start() for match in re.finditer(rf"(?<!\w){kind}|{kind}(?!\w)", fold(text))]
    return zip(places[::2], places[1::2], strict=False)


def _count_kept_lines(old: Sequence[str], raw: Sequence[str], new: Sequence[str]) -> int | None:
    """Return how many leading lines of `new` to take from the file, or `None` if `new` is indented like `old`.

    If `new` is indented like the file, the result is 0. If only its first non-blank line is not, the result includes
    that line. The leading lines that `old` and `new` have in common, apart from indentation, are examined. The first
    different line of `new` is examined too if it is indented like the corresponding line of the file, and if it is
    the first line or its indentation does not occur in `old`. Raises a `ToolError` if `new` has neither indentation.
    """
    old_indentations = {indentation_of(line) for line in old}
    # For each examined line: whether it is indented like `old`, and whether it is indented like the file
    agreements: list[tuple[bool, bool]] = []
    for number, (old_line, raw_line, line) in enumerate(zip(old, raw, new, strict=False)):
        indentation, is_common = indentation_of(line), line.strip() == old_line.strip()
        as_old, as_raw = indentation == indentation_of(old_line), indentation == indentation_of(raw_line)
        if line.strip() and (is_common or (as_raw and (not number or indentation not in old_indentations))):
            agreements.append((as_old, as_raw))
        if not is_common:
            break
    if all(as_old for as_old, _ in agreements):
        return None
    is_first_indented = agreements[0][1]
    if not any(agreements[0]) or not all(as_raw for _, as_raw in agreements[not is_first_indented :]):
        raise ToolError(
            ToolErrorType.EDIT_NO_OCCURRENCE_FOUND,
            "Nothing was written: old_string has a different indentation in the file, and new_string is indented "
            "neither like the file nor like old_string. Give both with the file's indentation, including the first "
            "line.",
        )
    first = next(number for number, line in enumerate(new) if line.strip())  # the first examined line
    return 0 if is_first_indented else first + 1


def _reindent(line: str, indentations: dict[str, str]) -> str:
    """Replace the model's indentation of a new line with the file's."""
    if not line.strip(BLANKS):
        return ""
    indentation = indentation_of(line)
    content = line[len(indentation) :]
    base = max((base for base in indentations if indentation.startswith(base)), key=len, default=None)
    if base is None:
        # Less indented than all of old_string: remove the missing white space if the file's indentation ends with it.
        shortest = min(indentations, key=len)
        missing = shortest.removeprefix(indentation) if shortest.startswith(indentation) else ""
        return indentations[shortest].removesuffix(missing) + content
    extra = indentation[len(base) :]
    for old, raw in indentations.items():
        # Convert spaces to tabs of the same width, or vice versa.
        if old and raw and set(old) == {" "} and set(raw) == {"\t"} and len(old) % len(raw) == 0:
            width = len(old) // len(raw)
            if set(extra) == {" "} and len(extra) % width == 0:
                extra = "\t" * (len(extra) // width)
            break
        if old and raw and set(old) == {"\t"} and set(raw) == {" "} and len(raw) % len(old) == 0:
            extra = extra.replace("\t", " " * (len(raw) // len(old)))
            break
    return indentations[base] + extra + content


MAX_LISTED_LINES = 10  # line numbers of matches listed in an error
MAX_REGION_LINES = 10  # how many lines of the most similar part of the file to show
MAX_LINE_CHARS = 300  # how many characters to show of each line in the most similar part
MAX_SECONDS = 0.5  # maximum time to compare single lines
MIN_RATIO = 0.5  # minimum similarity of a line that is shown
MAX_LINES = 300_000  # how many lines of the file to compare
MAX_CHARS = 4_000_000  # how many characters of the file to search for the likely cause
_MAX_COMPARED = 200  # how many characters of each line to compare
_MAX_CANDIDATES = 20  # how many lines of the file to compare character by character
_MAX_WORDS = 200  # how many words of `old_string` to search for in the lines of the file
_WORD = re.compile(r"\w+")
_MARK = re.compile("<U\\+[0-9A-F]{4,6}>")
_LINE_PREFIX = re.compile(r"^[ ]*L?\d+(?:\t|\u2192|:[ ]?|[ ]?\|[ ]?)")


def check_count(
    location: Location,
    text: str,
    old_string: str,
    match: TextMatch,
    lines: Sequence[int],  # line numbers of at least the first `MAX_LISTED_LINES` matches
    *,
    expected: int | None,
    replaces_all: bool,
) -> None:
    """Reject an edit with the wrong number of matches (`edit_expected_occurrence_mismatch`)."""
    count = len(match.spans)
    places = f"line {lines[0]}" if count == 1 else f"lines {', '.join(str(line) for line in lines[:MAX_LISTED_LINES])}"
    if count > MAX_LISTED_LINES:
        places += " and more"
    if count > MAX_MATCHES:
        problem = (
            f"old_string was found {max(count, text.count(old_string)):,} times in '{location.shown}', more than the "
            f"{MAX_MATCHES:,} places that one edit may change. Nothing was written. Give a longer old_string, or use a "
            "stream editor in the shell."
        )
    elif expected is not None and count != expected:
        problem = (
            f"The number of matches of old_string in '{location.shown}' is {count} ({places}), but "
            f"expected_replacements is {expected}. Nothing was written."
        )
    elif count == 1 or (replaces_all and not match.strategy.is_relaxed):
        return
    elif match.strategy.is_relaxed:
        problem = (
            f"old_string has no exact match in '{location.shown}'; {count} places differ from it only in "
            f"{match.strategy.differences} ({places}). An inexact match must be unique. Nothing was written. Copy the "
            "text exactly, with more lines around it."
        )
    else:
        problem = (
            f"old_string was found {count} times in '{location.shown}' ({places}), so it is unclear which one is "
            "meant; nothing was written. Add lines around it to make it unique, or set replace_all to change all "
            "matches."
        )
    raise ToolError(ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH, problem)


def not_found(
    location: Location, haystack: Haystack, old_string: str, new_string: str, *, skipped_count: int, is_read: bool
) -> ToolError:
    """Return the error for an `old_string` that was not found, with the likely cause and the most similar text.

    `skipped_count` is the number of matches that may begin inside a character (`TextMatch.skipped`).
    """
    sentences = [f"old_string was not found in '{location.shown}' (0 matches), so nothing was written."]
    nearest = None
    if skipped_count:
        sentences.append(
            f"Places that look like old_string: {skipped_count}. But the byte before each place is not ASCII and may "
            "form one character with the first byte of old_string in this file's encoding. Start old_string earlier or "
            "later."
        )
    else:
        sentences += causes(haystack, old_string, new_string)
        nearest = nearest_region(haystack, old_string)
    if location.path.lower().endswith(NOTEBOOK_ENDING):
        sentences.append(
            "The file is a notebook, which is JSON, and read_file shows only its cells. To change a cell, "
            "use notebook_edit. To change anything else, copy old_string from the JSON, where a quote is "
            '\\" and every line of a cell is a string that ends in \\n.'
        )
    if not is_read:
        sentences.append("You have not read this file yet; read it first.")
    if nearest is None:
        sentences.append("Copy old_string exactly from the file, without line numbers.")
        return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, " ".join(sentences))
    sentences.append(
        f"The most similar part of the file, {line_range(nearest.first, nearest.last)}, is below. If you mean this "
        "part, copy old_string exactly from there."
    )
    if _MARK.search(nearest.text):
        sentences.append("A mark such as <U+200B> in that part means an invisible character; use the character itself.")
    return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, f"{' '.join(sentences)}\n---\n{nearest.text}\n---")


def causes(haystack: Haystack, old: str, new: str) -> Iterator[str]:
    """Yield a sentence about each likely mistake in `old` and each skipped comparison."""
    is_old_too_large = is_too_large_for_relaxed(old)
    for name, is_too_large in (("The file", haystack.too_large_for_relaxed), ("old_string", is_old_too_large)):
        if is_too_large:
            yield (
                f"{name} is too large for inexact comparisons (look-alike characters, trailing white space, "
                "indentation), so they were skipped. Copy the text exactly."
            )
    if len(old) > MAX_CHARS or is_old_too_large:
        return
    text, old_lf, new_lf = _lf_head(haystack, MAX_CHARS), to_lf(old), to_lf(new)

    def contains(text: str, needle: str) -> bool:
        return not needle or find_text(text, needle, 0, haystack.checkpoint) >= 0

    lines = old_lf.split("\n")
    if all(_LINE_PREFIX.match(line) for line in lines if line.strip()) and contains(
        text, "\n".join(_LINE_PREFIX.sub("", line) for line in lines)
    ):
        yield "old_string contains line numbers that are not in the file; it would match without them."

    without_escapes = old_lf.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
    if without_escapes != old_lf and contains(text, without_escapes):
        yield 'old_string has escapes such as a literal \\n or \\" where the file has the character itself.'
    elif "\n" in old_lf and contains(text, old_lf.replace("\n", "\\n")):
        yield "The file has the two characters \\n where old_string has a line break."

    words, visible_text = _join_words(haystack, old_lf), visible_form(text)
    if not words:
        yield "old_string contains only white space."
    elif contains(_join_words(haystack, text), words):
        if "\u00a0" in old_lf or "\u00a0" in text:
            yield "old_string differs from the file only in white space, which includes no-break spaces (U+00A0)."
        elif ("\t" in old_lf) != ("\t" in text):
            source = "old_string" if "\t" in old_lf else "the file"
            yield f"old_string differs from the file only in white space: only {source} has tabs."
        else:
            yield "old_string differs from the file only in white space (indentation, spaces or line breaks)."
    elif (visible_text != text or visible_form(words) != words) and contains(
        _join_words(haystack, visible_text), visible_form(words)
    ):
        yield (
            "old_string differs from the file in look-alike or invisible characters: quotes, dashes, special spaces, "
            "zero-width characters, or letters with separate accents."
        )

    caseless_texts = ["".join([piece.casefold() for piece in _pieces(haystack, string)]) for string in (text, old_lf)]
    if contains(*caseless_texts):
        yield "old_string would match if case were ignored."

    position = find_text(text, new_lf, 0, haystack.checkpoint) if len(new_lf.strip()) > 1 else -1
    if position >= 0:
        line = haystack.line_number(haystack.raw(position))
        yield f"new_string is already in the file, at line {line}; this edit may have been made before."


def _lf_head(haystack: Haystack, size: int) -> str:
    head = haystack if len(haystack.text) <= size else Haystack(haystack.text[:size], checkpoint=haystack.checkpoint)
    return head.lf_text


def _pieces(haystack: Haystack, text: str) -> Iterator[str]:
    """Yield text in pieces, so that other work can run in between and the call can be cancelled."""
    for start in range(0, len(text), PIECE_CHARS):
        haystack.checkpoint()
        yield text[start : start + PIECE_CHARS]


def _join_words(haystack: Haystack, text: str) -> str:
    parts: list[str] = []
    is_within_word = False
    for piece in _pieces(haystack, text):
        words = " ".join(piece.split())
        if words and parts and not (is_within_word and not piece[0].isspace()):
            parts.append(" ")
        if words:
            parts.append(words)
        is_within_word = not piece[-1].isspace()
    return "".join(parts)


class Nearest(NamedTuple):
    first: int  # number of the first line, from 1
    last: int
    text: str  # the lines, with long ones truncated


def nearest_region(haystack: Haystack, old: str) -> Nearest | None:
    """Return the part of the file that shares the most lines with `old`.

    If no line is shared, the most similar pair of lines determines where `old` would begin, and the part begins there.
    """
    if is_too_large_for_relaxed(old):
        return None
    # Lines beyond the limit stay together as one last item, so that no line before them is taken for the last line.
    bodies = _lf_head(haystack, MAX_RELAXED_CHARS).split("\n", MAX_LINES + MAX_REGION_LINES)
    keys = [line.strip(BLANKS) for line in bodies[:MAX_LINES]]
    old_lines = [line.strip(BLANKS) for line in to_lf(old).split("\n")]
    haystack.checkpoint()
    # Among all runs of as many lines as `old` has, find the one with the most text from lines of `old`, in any order.
    weights = {line: min(len(line), _MAX_COMPARED) for line in old_lines if _WORD.search(line)}
    scores = [weights.get(key, 0) for key in keys]
    score = best = 0
    best_end = -1
    for end, weight in enumerate(scores):
        score += weight - (scores[end - len(old_lines)] if end >= len(old_lines) else 0)
        if score > best:
            best, best_end = score, end
    if best_end >= 0:
        start = max(0, best_end - len(old_lines) + 1)
        while not scores[start]:
            start += 1
        # The first common line determines where old_string would begin.
        first: int | None = max(0, start - old_lines.index(keys[start]))
    else:
        haystack.checkpoint()
        first = _most_similar(keys, [line for line in old_lines if line])
    if first is None:
        return None
    lines = bodies[first : first + max(3, min(MAX_REGION_LINES, len(old_lines)))]
    if len(lines) > 1 and not lines[-1] and first + len(lines) == len(bodies):
        lines = lines[:-1]
    lines = [marked(Decoded(line, haystack.encoding).shown()) for line in lines]
    short_lines = (line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}..." for line in lines)
    return Nearest(first + 1, first + len(lines), "\n".join(short_lines))


def _most_similar(keys: list[str], old_lines: list[str]) -> int | None:
    """Return the line where `old_lines` would begin, based on the most similar pair of lines.

    Half of `MAX_SECONDS` may be spent finding lines with many words in common, and half comparing those lines character
    by character.
    """
    import difflib  # noqa: PLC0415 - needed only for failed edits

    words = set(_WORD.findall(" ".join(old_lines)[: 40 * _MAX_WORDS])[:_MAX_WORDS])
    deadline = time.monotonic() + MAX_SECONDS / 2
    candidates: list[tuple[int, int]] = []
    for number, key in enumerate(keys):
        if number % 1000 == 0 and time.monotonic() > deadline:
            break
        common_words = len(words.intersection(_WORD.findall(key[:_MAX_COMPARED])))
        if common_words:
            candidates.append((common_words, -number))
    candidates.sort(reverse=True)
    deadline = time.monotonic() + MAX_SECONDS / 2
    best: int | None = None
    best_ratio = MIN_RATIO
    for position, line in enumerate(old_lines[:MAX_REGION_LINES]):
        matcher = difflib.SequenceMatcher(None, b=line[:_MAX_COMPARED], autojunk=False)
        for number in (-negative for _, negative in candidates[:_MAX_CANDIDATES]):
            if time.monotonic() > deadline:
                return best
            matcher.set_seq1(keys[number][:_MAX_COMPARED])
            if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
                ratio = matcher.ratio()
                if ratio > best_ratio:
                    best, best_ratio = max(0, number - position), ratio
    return best
