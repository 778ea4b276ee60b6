"""Unified diffs for people.

White space is kept exactly. The running time is bounded for any input: a common beginning and end are removed first,
and `difflib` compares the rest. If the rest has too many lines, it is shown as completely replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, islice

from tools.contract.tool_results import line_counts
from tools.files.text_encodings import count_lines
from tools.text.file_names import shown_name

CONTEXT_LINES = 3  # unchanged lines around each change (as usual in unified diffs)
MAX_DIFF_CHARS = 64_000  # longer diffs are truncated
# `difflib` compares at most this many lines of either text, from the first difference to the last. If every other line
# has changed, it takes half a second for this many lines, and its time grows with the square of their number.
MAX_COMPARED_LINES = 4_000
# A longer line is reduced to its beginning, its differences from the old or new version of the line, and its end
MAX_LINE_CHARS = 2_000
# Maximum number of characters to show of all differences between two versions of a line. Each version gets a share in
# proportion to the length of its differences, and each of these differences gets an equal part of that share. A longer
# difference is reduced to its two ends.
MAX_CHANGED_CHARS = 24_000
NEARBY = 10  # how many lines away from a long line's own position its old or new version may be
MAX_PARTS = 40  # maximum number of differences shown within one line
# If two lines differ over a range of more characters than this, the whole range counts as one difference
MAX_COMPARED_CHARS = 100_000
_SYNC_WORDS = 50  # how many words to look ahead for a place where two lines agree again
# Limit on the number of word comparisons in one line; beyond it, the rest of the line counts as one difference
_MAX_SYNC_WORK = 1_000_000
# How many characters of a long line to show: at its beginning, on each side of a difference, and at its end
_HEAD, _AROUND, _TAIL = 300, 200, 100
_NEAR = 20  # differences with at most this many characters between them are shown as one
_WORD = re.compile(r"\w+|\W")
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
MAX_LISTED_RUNS = 10  # maximum number of runs of consecutive changed lines to list
_IN_PART = " characters, shown in part]"  # ends a shortened line


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff between the old and the new content of a file."""

    hunks: str  # the unified diff without its header, truncated at `MAX_DIFF_CHARS`; empty if nothing changed
    added: int
    removed: int | None  # `None` if the old content is hidden
    truncated: bool = False  # whether the hunks or a line in them were truncated

    @property
    def counts(self) -> str:
        return line_counts(self.added, self.removed)

    def text(self, name: str, labels: tuple[str, str]) -> str:
        """Return the whole diff of a file. The labels name the two sides, such as `("Current", "Proposed")`."""
        if not self.hunks:
            return ""
        name = shown_name(name)
        return f"--- {name}\t{labels[0]}\n+++ {name}\t{labels[1]}\n{self.hunks}"


def changed_lines(diff: Diff) -> str:
    """List the changed lines by their numbers in the new text: `lines 3-5, 9`.

    A deletion counts as a change of the next line. `and more` is appended if some changes are not listed.
    """
    runs: list[list[int]] = []
    number, rest = 0, ""
    for line in diff.hunks.split("\n"):
        if header := _HUNK.match(line):
            number = int(header[1]) + (header[2] == "0")
        elif line.startswith(("+", "-")):
            if runs and runs[-1][1] >= number - 1:
                runs[-1][1] = number
            elif len(runs) < MAX_LISTED_RUNS:
                runs.append([number, number])
            else:
                rest = " and more"
                break
            number += line[0] == "+"
        elif line.startswith("["):  # the rest of the diff was cut
            rest = " and more"
        elif line.startswith(" "):
            number += 1
    lines = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return f"line{'s' if '-' in lines or ',' in lines else ''} {lines}{rest}" if lines else ""


def line_range(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first}-{last}"


# Appended to a last line that has no ending, so that it differs from the same line with an ending
_NO_ENDING = "\n\\ No newline at end of file"
_Change = tuple[int, int, int, int]  # start and end of the changed lines in the old text, then in the new text


def line_start_before(text: str, line_start: int, lines: int, separator: str) -> int:
    """Return the start of the line that is `lines` lines before the line at `line_start`."""
    for _ in range(lines):
        if line_start == 0:
            break
        line_start = text.rfind(separator, 0, line_start - 1) + 1
    return line_start


def line_start_after(text: str, position: int, lines: int, separator: str) -> int:
    """Return the start of the line that is `lines` lines after a position, or the end of the text."""
    for _ in range(lines):
        index = text.find(separator, position)
        if index < 0:
            return len(text)
        position = index + 1
    return position


def unified_diff(old: str | None, new: str, *, is_old_hidden: bool = False) -> Diff:
    """Compare two texts. If the old one is hidden, only the new lines are shown, and no old lines are counted."""
    old_text = old or ""
    if old_text == new:
        return Diff("", 0, None if is_old_hidden else 0)
    # Lines end with LF, or with CR if neither text has LF.
    separator = "\r" if "\n" not in old_text and "\n" not in new and ("\r" in old_text or "\r" in new) else "\n"
    # The range of whole lines that contains all differences. It starts at the same position in both texts.
    prefix_length, suffix_length = _common_ends(old_text, new)
    start = old_text.rfind(separator, 0, prefix_length) + 1
    old_stop, new_stop = len(old_text) - suffix_length, len(new) - suffix_length
    if suffix_length and not all(
        stop == 0 or text[stop - 1] == separator for text, stop in ((old_text, old_stop), (new, new_stop))
    ):
        step = line_start_after(old_text, old_stop, 1, separator) - old_stop
        old_stop, new_stop = old_stop + step, new_stop + step
    old_region, new_region = old_text[start:old_stop], new[start:new_stop]
    removals, additions = count_lines(old_region, separator), count_lines(new_region, separator)
    if max(removals, additions) > MAX_COMPARED_LINES:
        base = old_text.count(separator, 0, start)
        # Build only the lines that are shown.
        removed_head = _lines(old_region[: MAX_DIFF_CHARS + 1], separator)
        added_head = _lines(new_region[: MAX_DIFF_CHARS + 1], separator)
        header = f"@@ -{_range(base, base + removals)} +{_range(base, base + additions)} @@\n"
        old_diff_lines = _diff_lines("-", removed_head, added_head, separator)
        new_diff_lines = _diff_lines("+", added_head, removed_head, separator)
        hunk = chain([] if is_old_hidden else [header], old_diff_lines, new_diff_lines)
        return _truncate(hunk, additions, None if is_old_hidden else removals)

    import difflib  # noqa: PLC0415 - not needed at startup

    first = line_start_before(old_text, start, CONTEXT_LINES, separator)
    leading_context = _lines(old_text[first:start], separator)
    last = line_start_after(old_text, old_stop, CONTEXT_LINES, separator)
    trailing_context = _lines(old_text[old_stop:last], separator)
    old_lines, new_lines = _lines(old_region, separator), _lines(new_region, separator)
    opcodes, shift = difflib.SequenceMatcher(None, old_lines, new_lines).get_opcodes(), len(leading_context)
    changes = [(a + shift, b + shift, c + shift, d + shift) for tag, a, b, c, d in opcodes if tag != "equal"]
    removals = sum(old_end - old_start for old_start, old_end, _, _ in changes)
    additions = sum(new_end - new_start for _, _, new_start, new_end in changes)
    groups: list[list[_Change]] = []
    for change in changes:
        if groups and change[0] - groups[-1][-1][1] <= 2 * CONTEXT_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    base = old_text.count(separator, 0, first)
    sides = [*leading_context, *old_lines, *trailing_context], [*leading_context, *new_lines, *trailing_context]
    hunks = chain.from_iterable(_hunk(group, *sides, base, separator) for group in groups)
    if is_old_hidden:
        return _truncate(islice(hunks, 1, None), additions, None)  # without the header
    return _truncate(hunks, additions, removals)


def common_prefix(old: str, new: str) -> int:
    """Return the length of the common prefix. Each step compares half as much as the previous one."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old.startswith(new[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _common_ends(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the common prefix, and of the common suffix of the rest."""
    prefix_length = common_prefix(old, new)
    low, high = 0, min(len(old), len(new)) - prefix_length
    while low < high:
        middle = (low + high + 1) // 2
        if old.endswith(new[len(new) - middle : len(new) - low], 0, len(old) - low):
            low = middle
        else:
            high = middle - 1
    return prefix_length, low


def _lines(text: str, separator: str) -> list[str]:
    """Split text into lines and strip their endings. A last line that had no ending is marked."""
    lines = text.split(separator)
    if lines[-1]:
        lines[-1] += _NO_ENDING
    else:
        lines.pop()
    return lines


def _hunk(group: list[_Change], old: list[str], new: list[str], base: int, separator: str) -> Iterator[str]:
    (old_first, _, new_first, _), (_, old_last, _, new_last) = group[0], group[-1]
    lines_before = min(CONTEXT_LINES, old_first)
    lines_after = min(CONTEXT_LINES, len(old) - old_last)
    old_range = _range(old_first - lines_before + base, old_last + lines_after + base)
    yield f"@@ -{old_range} +{_range(new_first - lines_before + base, new_last + lines_after + base)} @@\n"
    position = old_first - lines_before
    for old_start, old_end, new_start, new_end in group:
        old_lines, new_lines = old[old_start:old_end], new[new_start:new_end]
        yield from _diff_lines(" ", old[position:old_start], None, separator)
        yield from _diff_lines("-", old_lines, new_lines, separator)
        yield from _diff_lines("+", new_lines, old_lines, separator)
        position = old_end
    yield from _diff_lines(" ", old[position : position + lines_after], None, separator)


def _range(start: int, stop: int) -> str:
    """Format the lines from `start` up to `stop`, counted from 0, for a hunk header, which counts from 1.

    If there are none, the header has the number of the line before them.
    """
    count = stop - start
    first = start + 1 if count else start
    return f"{first}" if count == 1 else f"{first},{count}"


def _diff_lines(mark: str, lines: list[str], counterparts: list[str] | None, separator: str) -> Iterator[str]:
    """Yield lines of a hunk. A long line is reduced to its differences from the most similar line in `counterparts`."""
    ending = "\n" if separator == "\n" else f"{separator}\n"
    for at, line in enumerate(lines):
        visible_line = line
        if len(line) > MAX_LINE_CHARS:
            counterpart = line
            if counterparts is not None:  # lines may have been inserted or removed, so another line may be more similar
                own, around = counterparts[at : at + 1], counterparts[max(at - NEARBY, 0) : at + NEARBY + 1]
                counterpart = max((*own, *around, ""), key=lambda other: sum(_common_ends(line, other)))
            visible_line = _shorten(line, counterpart)
        yield f"{mark}{visible_line}\n" if visible_line.endswith(_NO_ENDING) else f"{mark}{visible_line}{ending}"


def _shorten(line: str, counterpart: str) -> str:
    """Return the parts of a long line that identify the line and show its differences from `counterpart`."""
    text, other_text = line.removesuffix(_NO_ENDING), counterpart.removesuffix(_NO_ENDING)
    parts = [(0, _HEAD), (len(text) - _TAIL, len(text))]
    changes = _changes_within(text, other_text)
    length = sum(last - first for first, last in changes)
    length_of_both = 2 * length + len(other_text) - len(text)  # the differences in both lines together
    changes = changes if len(changes) <= MAX_PARTS else [*changes[: MAX_PARTS - 1], changes[-1]]
    share = MAX_CHANGED_CHARS
    if length_of_both > MAX_CHANGED_CHARS:
        share = max(MAX_CHANGED_CHARS * length // length_of_both // len(changes) // 2, _TAIL)
    for first, last in changes:
        around = min(_AROUND, MAX_CHANGED_CHARS // len(changes) // 4)
        parts += [(first - around, min(last + around, first + share)), (max(first, last - share), last + around)]
    pieces: list[str] = []
    position = 0
    for first, last in sorted(parts):
        if first > position:
            unit = "character" if first - position == 1 else "characters"
            pieces.append(f"[... {first - position:,} {unit} ...]")
            position = first
        pieces.append(text[position : max(position, last)])
        position = max(position, min(last, len(text)))
    mark = f" [a line of {len(text):,}{_IN_PART}" if len(pieces) > len(parts) else ""
    return f"{''.join(pieces)}{mark}{line[len(text) :]}"


def _changes_within(line: str, counterpart: str) -> list[tuple[int, int]]:
    """Return the start and end, in `line`, of each difference from `counterpart`, within the search limits.

    After a difference, both lines are scanned word by word until they agree again. `difflib` is not used, because it
    handles repeated words badly.
    """
    if line == counterpart:
        return []
    start, suffix_length = _common_ends(line, counterpart)
    end, counterpart_end = len(line) - suffix_length, len(counterpart) - suffix_length
    if max(end, counterpart_end) - start > MAX_COMPARED_CHARS:
        return [(start, end)]
    new, old = _WORD.findall(line, start, end), _WORD.findall(counterpart, start, counterpart_end)
    if max(map(len, (*new, *old)), default=0) > _AROUND:
        new, old = list(line[start:end]), list(counterpart[start:counterpart_end])
    positions = [*accumulate(map(len, new), initial=start)]
    word_ranges: list[tuple[int, int]] = []
    old_at = new_at = 0
    work = _MAX_SYNC_WORK
    while old_at < len(old) and new_at < len(new):
        if old[old_at] == new[new_at]:
            old_at, new_at = old_at + 1, new_at + 1
            continue
        # Skip as few words as possible, counted over both lines, until two consecutive words agree.
        skips = (
            (old_skip, distance - old_skip)
            for distance in range(1, 2 * _SYNC_WORDS if work > 0 else 1)
            for old_skip in range(max(0, distance - _SYNC_WORDS), min(distance, _SYNC_WORDS) + 1)
        )
        for in_old, in_new in skips:
            pair = old[old_at + in_old : old_at + in_old + 2]
            if pair and pair == new[new_at + in_new : new_at + in_new + 2]:
                break
        else:
            break
        work -= (in_old + 1) * (in_new + 1)
        word_ranges.append((new_at, new_at + in_new))
        old_at, new_at = old_at + in_old, new_at + in_new
    if old_at < len(old) or new_at < len(new):
        word_ranges.append((new_at, len(new)))
    parts: list[tuple[int, int]] = []
    for changed_from, changed_to in word_ranges:
        first, last = positions[changed_from], positions[changed_to]
        if parts and first - parts[-1][1] <= _NEAR:
            first = parts.pop()[0]
        parts.append((first, last))
    return parts


def _truncate(lines: Iterable[str], additions: int, removals: int | None) -> Diff:
    shown_lines: list[str] = []
    room = MAX_DIFF_CHARS
    for line in lines:
        if len(line) > room:
            counts = line_counts(additions, removals)
            shown_lines.append(f"{line[:room]}\n[the diff is cut here; in total {counts} lines]\n")
            return Diff("".join(shown_lines), additions, removals, truncated=True)
        shown_lines.append(line)
        room -= len(line)
    return Diff("".join(shown_lines), additions, removals, truncated=any(_IN_PART in line for line in shown_lines))
