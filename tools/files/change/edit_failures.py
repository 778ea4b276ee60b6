"""Errors for edits whose `old_string` did not match, or matched an unexpected number of times.

If `old_string` did not match, the error gives the likely cause and the most similar part of the file. The time is
bounded for any input. Approximate matches only help the model to write the next call; they are never replaced.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.text_match import (
    BLANKS,
    MAX_MATCHES,
    MAX_RELAXED_CHARS,
    PIECE_CHARS,
    Haystack,
    TextMatch,
    find_text,
    is_too_large_for_relaxed,
)
from tools.files.line_endings import to_lf
from tools.files.notebook_cells import NOTEBOOK_ENDING
from tools.files.text_encodings import Decoded
from tools.files.workspace import Location
from tools.text.file_names import marked, visible_form

MAX_LISTED_LINES = 10  # line numbers of matches listed in an error
MAX_REGION_LINES = 10  # how many lines of the most similar part of the file to show
MAX_LINE_CHARS = 300  # how many characters of each of these lines to show
MAX_SECONDS = 0.5  # maximum time to compare single lines
MIN_RATIO = 0.5  # minimum similarity of a line that is shown
MAX_LINES = 300_000  # how many lines of the file to compare
MAX_CHARS = 4_000_000  # how many characters of the file to search for the likely cause
_MAX_COMPARED = 200
_MAX_CANDIDATES = 20
_MAX_WORDS = 200
_WORD = re.compile(r"\w+")
_MARK = re.compile("<U\\+[0-9A-F]{4,6}>")
_LINE_PREFIX = re.compile(r"^[ ]*L?\d+(?:\t|\u2192|:[ ]?|[ ]?\|[ ]?)")


def check_count(
    location: Location,
    text: str,
    old_string: str,
    match: TextMatch,
    lines: Sequence[int],
    *,
    expected: int | None,
    replaces_all: bool,
) -> None:
    """Reject an edit with the wrong number of matches (`edit_expected_occurrence_mismatch`).

    `lines` has the line numbers of the matches, at least of the first `MAX_LISTED_LINES`.
    """
    count = len(match.spans)
    where = f"line {lines[0]}" if count == 1 else f"lines {', '.join(str(line) for line in lines[:MAX_LISTED_LINES])}"
    if count > MAX_LISTED_LINES:
        where += " and more"
    if count > MAX_MATCHES:
        problem = (
            f"old_string was found {max(count, text.count(old_string)):,} times in '{location.shown}', more than the "
            f"{MAX_MATCHES:,} places that one edit may change. Nothing was written. Give a longer old_string, or use a "
            "stream editor in the shell."
        )
    elif expected is not None and count != expected:
        problem = (
            f"The number of places where old_string was found in '{location.shown}' is {count} ({where}), but "
            f"expected_replacements is {expected}. Nothing was written."
        )
    elif count == 1 or (replaces_all and not match.strategy.is_relaxed):
        return
    elif match.strategy.is_relaxed:
        how = match.strategy.value.replace("_", " ")
        problem = (
            f"old_string has no exact match in '{location.shown}'; {count} places differ from it only in {how} "
            f"({where}). An inexact match must be unique. Nothing was written. Copy the text exactly, with more lines "
            "around it."
        )
    else:
        problem = (
            f"old_string was found {count} times in '{location.shown}' ({where}), so it is unclear which one is meant; "
            "nothing was written. Add lines around it to make it unique, or set replace_all to change every one."
        )
    raise ToolError(ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH, problem)


def not_found(
    location: Location, haystack: Haystack, old_string: str, new_string: str, *, skipped: int, is_read: bool
) -> ToolError:
    """Return the error for an `old_string` that was not found, with the likely cause and the most similar text.

    `skipped` is the number of matches that may begin inside a character (`TextMatch.skipped`).
    """
    sentences = [f"old_string was not found in '{location.shown}' (0 matches), so nothing was written."]
    nearest = None
    if skipped:
        sentences.append(
            f"Places that look like old_string: {skipped}. But the byte before each is not ASCII and may form one "
            "character with the first byte of old_string in this file's encoding. Start old_string earlier or later."
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
        f"The most similar part of the file, lines {nearest.first}-{nearest.last}, is below. If you mean this part, "
        "copy old_string exactly from there."
    )
    if _MARK.search(nearest.text):
        sentences.append("A mark such as <U+200B> in that part means an invisible character; use the character itself.")
    return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, f"{' '.join(sentences)}\n---\n{nearest.text}\n---")


def causes(haystack: Haystack, old: str, new: str) -> Iterator[str]:
    """Yield a sentence about each likely mistake in `old` and each skipped comparison."""
    for name, is_too_large in (
        ("The file", haystack.too_large_for_relaxed),
        ("old_string", is_too_large_for_relaxed(old)),
    ):
        if is_too_large:
            yield (
                f"{name} is too large for inexact comparisons (look-alike characters, trailing white space, "
                "indentation), so they were skipped. Copy the text exactly."
            )
    if len(old) > MAX_CHARS or is_too_large_for_relaxed(old):
        return
    text, wanted, put_in = _lf_head(haystack, MAX_CHARS), to_lf(old), to_lf(new)

    def holds(text: str, wanted: str) -> bool:
        return not wanted or find_text(text, wanted, 0, haystack.checkpoint) >= 0

    lines = wanted.split("\n")
    if all(_LINE_PREFIX.match(line) for line in lines if line.strip()) and holds(
        text, "\n".join(_LINE_PREFIX.sub("", line) for line in lines)
    ):
        yield "old_string contains line numbers that are not in the file; it would match without them."

    unescaped = wanted.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
    if unescaped != wanted and holds(text, unescaped):
        yield 'old_string has escapes such as a literal \\n or \\" where the file has the character itself.'
    elif "\n" in wanted and holds(text, wanted.replace("\n", "\\n")):
        yield "The file has the two characters \\n where old_string has a line break."

    words, folded = _squeezed(haystack, wanted), visible_form(text)
    if not words:
        yield "old_string is only white space."
    elif holds(_squeezed(haystack, text), words):
        if "\u00a0" in wanted or "\u00a0" in text:
            yield "old_string differs from the file only in white space: one of them has no-break spaces (U+00A0)."
        elif ("\t" in wanted) != ("\t" in text):
            where = "old_string" if "\t" in wanted else "the file"
            yield f"old_string differs from the file only in white space: {where} has tabs; the other has none."
        else:
            yield "old_string differs from the file only in white space (indentation, spaces or line breaks)."
    elif (folded != text or visible_form(words) != words) and holds(_squeezed(haystack, folded), visible_form(words)):
        yield (
            "old_string differs from the file in look-alike or invisible characters: quotes, dashes, special spaces, "
            "zero-width characters, or letters with separate accents."
        )

    casefolded = ["".join([piece.casefold() for piece in _pieces(haystack, each)]) for each in (text, wanted)]
    if holds(*casefolded):
        yield "old_string would match if case were ignored."

    position = find_text(text, put_in, 0, haystack.checkpoint) if len(put_in.strip()) > 1 else -1
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


def _squeezed(haystack: Haystack, text: str) -> str:
    """Return the words of `text`, joined by single spaces."""
    joined: list[str] = []
    is_within_word = False
    for piece in _pieces(haystack, text):
        words = " ".join(piece.split())
        if words and joined and not (is_within_word and not piece[0].isspace()):
            joined.append(" ")
        if words:
            joined.append(words)
        is_within_word = not piece[-1].isspace()
    return "".join(joined)


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
    wanted = [line.strip(BLANKS) for line in to_lf(old).split("\n")]
    haystack.checkpoint()
    # Among all runs with as many lines as `old`, find the one with the most text from lines of `old`, in any order.
    weights = {line: min(len(line), _MAX_COMPARED) for line in wanted if _WORD.search(line)}
    scores = [weights.get(key, 0) for key in keys]
    score = best = 0
    best_end = -1
    for end, gained in enumerate(scores):
        score += gained - (scores[end - len(wanted)] if end >= len(wanted) else 0)
        if score > best:
            best, best_end = score, end
    if best_end >= 0:
        start = max(0, best_end - len(wanted) + 1)
        while not scores[start]:
            start += 1
        # The first common line determines where old_string would begin.
        first: int | None = max(0, start - wanted.index(keys[start]))
    else:
        haystack.checkpoint()
        first = _most_similar(keys, [line for line in wanted if line])
    if first is None:
        return None
    lines = bodies[first : first + max(3, min(MAX_REGION_LINES, len(wanted)))]
    if len(lines) > 1 and not lines[-1] and first + len(lines) == len(bodies):
        lines = lines[:-1]
    lines = [marked(Decoded(line, haystack.encoding).shown()) for line in lines]
    cut = (line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}..." for line in lines)
    return Nearest(first + 1, first + len(lines), "\n".join(cut))


def _most_similar(keys: list[str], wanted: list[str]) -> int | None:
    """Return the line where `old` would begin, based on the most similar pair of lines.

    Half of the time is spent on finding lines with many common words, the rest on comparing those lines by character.
    """
    import difflib  # noqa: PLC0415 - needed only for failed edits

    words = set(_WORD.findall(" ".join(wanted)[: 40 * _MAX_WORDS])[:_MAX_WORDS])
    deadline = time.monotonic() + MAX_SECONDS / 2
    rated: list[tuple[int, int]] = []
    for number, key in enumerate(keys):
        if number % 1000 == 0 and time.monotonic() > deadline:
            break
        shared = len(words.intersection(_WORD.findall(key[:_MAX_COMPARED])))
        if shared:
            rated.append((shared, -number))
    rated.sort(reverse=True)
    deadline = time.monotonic() + MAX_SECONDS / 2
    best: int | None = None
    best_ratio = MIN_RATIO
    for position, line in enumerate(wanted[:MAX_REGION_LINES]):
        matcher = difflib.SequenceMatcher(None, b=line[:_MAX_COMPARED], autojunk=False)
        for number in (-negative for _, negative in rated[:_MAX_CANDIDATES]):
            if time.monotonic() > deadline:
                return best
            matcher.set_seq1(keys[number][:_MAX_COMPARED])
            if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
                ratio = matcher.ratio()
                if ratio > best_ratio:
                    best, best_ratio = max(0, number - position), ratio
    return best
