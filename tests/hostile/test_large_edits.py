"""Edits of texts of many megabytes: memory is bounded, work is linear, cancellation works, and answers are right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.harness import ROOT
from tests.variants import one_in
from tools.files.change.text_edit import apply_edit, causes, nearest_region
from tools.files.change.text_match import (
    MAX_RELAXED_CHARS,
    MAX_RELAXED_LINES,
    PIECE_CHARS,
    Haystack,
    Span,
    Strategy,
    TextMatch,
    find_match,
    find_text,
)

TOO_LARGE = "too large for inexact comparisons"

CHILD = """
import resource
import sys
sys.path.insert(0, sys.argv[1])
from tools.files.change.text_edit import causes, nearest_region
from tools.files.change.text_match import Haystack, find_match

text = sys.argv[2].encode().decode("unicode_escape") * 10_000_000 + "a\\nb\\n"
old = sys.argv[3].encode().decode("unicode_escape")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
haystack = Haystack(text)
match = find_match(haystack, old)
if match is None:
    list(causes(haystack, old, "new text"))
    nearest_region(haystack, old)
else:
    print(match.strategy.value, [(span.start, span.end, haystack.line_number(span.start)) for span in match.spans])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


class EndedError(Exception):
    """A checkpoint has ended the work."""


class Checkpoint:
    """Counts how often it is passed, and ends the work when it is passed for the `last` time."""

    def __init__(self, last: int | None = None) -> None:
        self.passed = 0
        self.last = last

    def __call__(self) -> None:
        self.passed += 1
        if self.passed == self.last:
            raise EndedError


@pytest.mark.requirement("edit.large")
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is Linux's")
@pytest.mark.parametrize(
    ("line", "old", "match"),
    one_in(
        4,
        [
            (r"\r\n", r"a\r\nb", "line_endings [(20000000, 20000003, 10000001)]"),
            (r"\r\n", "absent", None),
            (r"\r", "absent", None),
            (r"\n", r"a \nb", None),
        ],
    ),
)
def test_ten_million_lines_are_searched_in_the_memory_of_a_few_copies(line: str, old: str, match: str | None) -> None:
    command = [sys.executable, "-P", "-c", CHILD, str(ROOT), line, old]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout.splitlines()
    assert lines[:-1] == ([match] if match else [])
    # With one object for each line, this would be 1,600 MB.
    assert int(lines[-1]) < 200_000


@pytest.mark.requirement("edit.large")
@pytest.mark.parametrize(
    "filler",
    [
        pytest.param("x" * 99 + "\n", id="characters"),
        pytest.param("\n", id="LF"),
        pytest.param("\r\n", id="CRLF"),
        pytest.param("\r", id="CR"),
        pytest.param("\n\r\n\r", id="mixed"),
    ],
)
def test_in_a_large_text_only_line_endings_may_differ_and_the_failure_says_so(filler: str) -> None:
    text = filler * (max(MAX_RELAXED_CHARS // len(filler), 1) if len(filler) > 9 else MAX_RELAXED_LINES) + "  a \n\tb"
    haystack = Haystack(text)
    assert haystack.too_large_for_relaxed
    assert find_match(haystack, "a\nb") is None
    assert any(TOO_LARGE in sentence and "The file" in sentence for sentence in causes(haystack, "a\nb", "c"))
    start = len(text) - 7
    assert find_match(haystack, "a \n\tb") == TextMatch(Strategy.EXACT, (Span(start + 2, start + 7),))
    match = find_match(haystack, "a \r\n\tb\r\n")
    assert match == TextMatch(Strategy.FINAL_NEWLINE, (Span(start + 2, start + 7),))
    assert find_match(haystack, "a \r\n\tb") == TextMatch(Strategy.LINE_ENDINGS, (Span(start + 2, start + 7),))


@pytest.mark.requirement("edit.large")
def test_a_text_just_below_the_limit_is_compared_line_by_line() -> None:
    text = "\n" * (MAX_RELAXED_LINES - 1) + "  a \n\tb"
    match = find_match(Haystack(text), "  a\n\tb")
    assert match == TextMatch(Strategy.TRAILING_WHITESPACE, (Span(len(text) - 7, len(text)),))
    assert not any(TOO_LARGE in sentence for sentence in causes(Haystack(text), "absent", "c"))


@pytest.mark.requirement("edit.large")
def test_a_large_old_string_for_a_small_file_is_named_as_the_reason() -> None:
    haystack, old = Haystack("a \nb\n"), "a\nb" + " \n" * (3 * MAX_RELAXED_LINES)
    assert find_match(haystack, old) is None
    assert [sentence.split(" is ")[0] for sentence in causes(haystack, old, "c")] == ["old_string"]
    assert nearest_region(haystack, old) is None


@pytest.mark.requirement("edit.bounded")
@pytest.mark.parametrize("size", [PIECE_CHARS // 8, PIECE_CHARS, 1_000_000])
def test_a_search_for_a_long_text_takes_few_steps(size: int) -> None:
    old = "ab" * (size // 2) + "c"
    checkpoint = Checkpoint()
    assert find_text("ab" * 4_000_000, old, 0, checkpoint) == -1
    # A step reads one piece and the length of the old text beyond it, so this bounds the whole work.
    assert checkpoint.passed * (max(PIECE_CHARS, len(old)) + len(old)) < 3 * 8_000_000


@pytest.mark.requirement("edit.bounded")
def test_a_text_longer_than_the_file_is_not_searched_for() -> None:
    checkpoint = Checkpoint()
    assert find_text("ab" * 1000, "ab" * 1001, 0, checkpoint) == -1
    assert checkpoint.passed == 0


@pytest.mark.requirement("edit.bounded")
@pytest.mark.parametrize("shift", range(-2, 3))
@pytest.mark.parametrize("size", [1, 10, PIECE_CHARS, 3 * PIECE_CHARS])
def test_a_match_across_two_steps_is_found(size: int, shift: int) -> None:
    old = "b" * size
    offset = max(PIECE_CHARS, size) + shift
    assert find_text("a" * offset + old + "a" * PIECE_CHARS, old) == offset


@pytest.mark.requirement("edit.bounded")
def test_many_matches_in_a_large_text_are_counted_and_replaced_in_one_pass() -> None:
    # A search of the whole text for the line or the line ending of each match would exceed the time limit.
    count = 20_000
    text = "word " * count + "x" * 4_000_000 + "\r" + "word " * count
    haystack = Haystack(text)
    match = find_match(haystack, "word ")
    assert match is not None
    assert [haystack.line_number(span.start) for span in match.spans] == [1] * count + [2] * count
    new_text = apply_edit(haystack, match, "word ", "new\nword ")[0]
    assert new_text == text.replace("word ", "new\rword ")
    longer_haystack = Haystack("x\n" + text)
    match = find_match(longer_haystack, "word ")
    assert match is not None
    new_text = apply_edit(longer_haystack, match, "word ", "new\nword ")[0]
    assert new_text == "x\n" + text.replace("word ", "new\rword ")


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize(
    ("text", "ending"), [("x\na\ra\r", "\r"), ("x\ra\r\n", "\r\n"), ("x\r\ra\n", "\n"), ("x\r\na", "\r\n")]
)
def test_new_lines_take_the_ending_of_their_line_even_in_the_last_one(text: str, ending: str) -> None:
    haystack = Haystack(text)
    match = find_match(haystack, "a")
    assert match is not None
    assert apply_edit(haystack, match, "a", "b\nb")[0] == text.replace("a", f"b{ending}b")


def _diagnosis(haystack: Haystack) -> object:
    return list(causes(haystack, "absent  thing", "new")), nearest_region(haystack, "absent thing")


def _replace_spans(haystack: Haystack) -> object:
    spans = tuple(Span(start, start + 1) for start in range(0, 100, 10))
    return apply_edit(haystack, TextMatch(Strategy.EXACT, spans), "w", "x")


OPERATIONS: list[Callable[[Haystack], object]] = [
    lambda haystack: find_match(haystack, "absent"),
    lambda haystack: haystack.line_number(len(haystack.text)),
    lambda haystack: haystack.raw(1_000_000),
    _diagnosis,
    _replace_spans,
]


@pytest.mark.requirement("edit.bounded")
@pytest.mark.parametrize("operation", OPERATIONS, ids=["search", "line number", "place", "diagnosis", "replacing"])
def test_operations_on_a_large_text_can_be_ended_at_any_checkpoint(operation: Callable[[Haystack], object]) -> None:
    text = "word and another word\r\n" * 60_000 + "end\n"
    counter = Checkpoint()
    operation(Haystack(text, checkpoint=counter))
    assert counter.passed >= 10
    for last in (1, counter.passed // 2, counter.passed):
        checkpoint = Checkpoint(last)
        with pytest.raises(EndedError):
            operation(Haystack(text, checkpoint=checkpoint))
        assert checkpoint.passed == last


@pytest.mark.requirement("edit.large")
@pytest.mark.parametrize("shift", range(3))
def test_offsets_are_mapped_correctly_where_a_piece_ends_within_a_line_ending(shift: int) -> None:
    text = "x" * (PIECE_CHARS - 2 + shift) + "\r\n" + "y\r\n" * PIECE_CHARS + "a\r\nb\n"
    haystack = Haystack(text)
    assert haystack.lf_text == text.replace("\r\n", "\n")
    assert (haystack.endings.lf, haystack.endings.crlf, haystack.endings.cr) == (1, PIECE_CHARS + 2, 0)
    match = find_match(haystack, "a\nb")
    assert match is not None
    assert [text[span.start : span.end] for span in match.spans] == ["a\r\nb"]
    # The offsets may come in any order.
    for offset in (0, PIECE_CHARS, len(haystack.lf_text), PIECE_CHARS - 1, 5):
        assert len(text[: haystack.raw(offset)].replace("\r\n", "\n")) == offset
    assert haystack.line_number(len(text)) == PIECE_CHARS + 4
    assert haystack.line_number(0) == 1
