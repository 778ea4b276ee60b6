"""What an edit says when its `old_string` matched nothing, or not as often as it should.

Where nothing matched, the likely cause is named, and the part of the file that is most like it. The time for that is
bounded for every input; nothing found here is ever replaced, it only helps to write the next call.
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
from tools.text.look_alikes import marked, visible_form

MAX_LISTED_LINES = 10  # line numbers of matches that an error lists
MAX_REGION_LINES = 10  # lines of the nearest region
MAX_LINE_CHARS = 300  # characters of each of them
MAX_SECONDS = 0.5  # time for the comparison of single lines
MIN_RATIO = 0.5  # similarity below which a line does not help
MAX_LINES = 300_000  # lines of the file that are considered
MAX_CHARS = 4_000_000  # characters of the file that causes are looked for in
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
    """Refuse an edit that matches another number of times than it should (`edit_expected_occurrence_mismatch`).

    `lines` has the numbers of the first matches at least.
    """
    count = len(match.spans)
    where = f"line {lines[0]}" if count == 1 else f"lines {', '.join(str(line) for line in lines[:MAX_LISTED_LINES])}"
    if count > MAX_LISTED_LINES:
        where += " and more"
    if count > MAX_MATCHES:
        problem = (
            f"old_string was found {max(count, text.count(old_string)):,} times in '{location.shown}', more than the "
            f"{MAX_MATCHES:,} places that one edit changes. Nothing was written. Give a longer old_string, or use a "
            "stream editor in the shell."
        )
    elif expected is not None and count != expected:
        problem = (
            f"old_string was found {count} times in '{location.shown}' ({where}), expected_replacements says "
            f"{expected}; nothing was written."
        )
    elif count == 1 or (replaces_all and not match.strategy.is_relaxed):
        return
    elif match.strategy.is_relaxed:
        how = match.strategy.value.replace("_", " ")
        problem = (
            f"old_string is not in '{location.shown}' exactly; {count} places are like it but for {how} ({where}). "
            "Such a match must be unique. Nothing was written. Copy the text exactly, with more lines around it."
        )
    else:
        problem = (
            f"old_string was found {count} times in '{location.shown}' ({where}), so it is not clear which one is "
            "meant; nothing was written. Add lines around it to make it unique, or set replace_all to change every one."
        )
    raise ToolError(ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH, problem)


def not_found(
    location: Location, haystack: Haystack, old_string: str, new_string: str, *, skipped: int, is_read: bool
) -> ToolError:
    """Nothing matched: why, and what is nearest. Skipped places may begin inside a character."""
    sentences = [f"old_string was not found in '{location.shown}' (0 matches), so nothing was written."]
    nearest = None
    if skipped:
        sentences.append(
            f"{skipped} places look like it, but the character before each is not ASCII and may be one with "
            "the first character of old_string in this file's encoding; begin old_string earlier or later."
        )
    else:
        sentences += causes(haystack, old_string, new_string)
        nearest = nearest_region(haystack, old_string)
    if location.path.lower().endswith(NOTEBOOK_ENDING):
        sentences.append(
            "The file is a notebook, which is JSON; read_file shows another view of it, its cells. To change a cell "
            "use notebook_edit. To change anything else copy old_string from the JSON: there a quote is "
            '\\" and every line of a cell a string that ends in \\n.'
        )
    if not is_read:
        sentences.append("You have not read this file yet; read it first.")
    if nearest is None:
        sentences.append("Copy old_string from the file exactly as it is, without line numbers.")
        return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, " ".join(sentences))
    sentences.append(
        f"The most similar part of the file, lines {nearest.first}-{nearest.last}, is below; copy old_string from "
        "there exactly if it is what you mean."
    )
    if _MARK.search(nearest.text):
        sentences.append("A mark such as <U+200B> in it stands for a character that cannot be seen; give that itself.")
    return ToolError(ToolErrorType.EDIT_NO_OCCURRENCE_FOUND, f"{' '.join(sentences)}\n---\n{nearest.text}\n---")


def causes(haystack: Haystack, old: str, new: str) -> Iterator[str]:
    """Sentences that name what is likely wrong with `old`, or what was not tried; none if nothing is recognised."""
    for name, is_too_large in (
        ("The file", haystack.too_large_for_relaxed),
        ("old_string", is_too_large_for_relaxed(old)),
    ):
        if is_too_large:
            yield (
                f"{name} is too large for the relaxed comparisons (look-alikes, trailing white space, indentation), "
                "so they were not tried; copy the text exactly."
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
        yield "old_string has line-number prefixes that are not in the file; without them it would match."

    unescaped = wanted.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
    if unescaped != wanted and holds(text, unescaped):
        yield 'old_string has escapes such as a literal \\n or \\" where the file has the character itself.'
    elif "\n" in wanted and holds(text, wanted.replace("\n", "\\n")):
        yield "The file has the two characters \\n where old_string has a line break."

    words, folded = _squeezed(haystack, wanted), visible_form(text)
    if not words:
        yield "old_string is nothing but white space."
    elif holds(_squeezed(haystack, text), words):
        if "\u00a0" in wanted or "\u00a0" in text:
            yield "It differs from the file in white space only; there are no-break spaces (U+00A0) in one of them."
        elif ("\t" in wanted) != ("\t" in text):
            where = "old_string" if "\t" in wanted else "the file"
            yield f"It differs from the file in white space only; {where} has tabs, the other one has none."
        else:
            yield "It differs from the file in white space only (indentation, blanks or line breaks)."
    elif (folded != text or visible_form(words) != words) and holds(_squeezed(haystack, folded), visible_form(words)):
        yield (
            "It differs from the file in characters that look alike or are not seen: quotes, dashes, special spaces, "
            "characters without width, or letters whose accents are characters of their own."
        )

    casefolded = ["".join([piece.casefold() for piece in _pieces(haystack, each)]) for each in (text, wanted)]
    if holds(*casefolded):
        yield "It would match if upper and lower case were ignored."

    position = find_text(text, put_in, 0, haystack.checkpoint) if len(put_in.strip()) > 1 else -1
    if position >= 0:
        line = haystack.line_number(haystack.raw(position))
        yield f"new_string is in the file already, at line {line}; perhaps this edit was made before."


def _lf_head(haystack: Haystack, size: int) -> str:
    head = haystack if len(haystack.text) <= size else Haystack(haystack.text[:size], checkpoint=haystack.checkpoint)
    return head.lf_text


def _pieces(haystack: Haystack, text: str) -> Iterator[str]:
    """A text piece by piece, so that nobody else is held up for long and the call can be ended."""
    for start in range(0, len(text), PIECE_CHARS):
        haystack.checkpoint()
        yield text[start : start + PIECE_CHARS]


def _squeezed(haystack: Haystack, text: str) -> str:
    """The words of a text with one blank between them."""
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
    first: int  # number of its first line, from 1
    last: int
    text: str  # its lines, long ones cut


def nearest_region(haystack: Haystack, old: str) -> Nearest | None:
    """The part of the file that shares most lines with `old`, else the line most like one of its lines."""
    if is_too_large_for_relaxed(old):
        return None
    # What follows the last of these lines is one more, so that a line is never taken for the last one of the file.
    bodies = _lf_head(haystack, MAX_RELAXED_CHARS).split("\n", MAX_LINES + MAX_REGION_LINES)
    keys = [line.strip(BLANKS) for line in bodies[:MAX_LINES]]
    wanted = [line.strip(BLANKS) for line in to_lf(old).split("\n")]
    haystack.checkpoint()
    # Where does a run as long as the wanted lines hold most of them, wherever they stand in it?
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
        # The first line in common says where old_string would begin.
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
    """The line where the wanted ones would begin if one of them were the one most like it.

    Half of the time goes into finding the lines that share most words, the rest into comparing these by character.
    """
    import difflib  # noqa: PLC0415 - only failed edits need it

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
