"""Finding a text in a file: the strategies, their order, and how many matches each one counts."""

from __future__ import annotations

import pytest

from tests.tables import each_of
from tools.files.change.text_match import Haystack, Strategy, TextMatch, find_match, indentation_map
from tools.files.text_encodings import UNKNOWN


def match(text: str, old: str) -> TextMatch:
    text_match = find_match(Haystack(text), old)
    assert text_match is not None
    return text_match


def matched_texts(text: str, old: str) -> list[str]:
    return [text[span.start : span.end] for span in match(text, old).spans]


@pytest.mark.requirement("edit.strategies")
@each_of(
    ("text", "old", "strategy", "slices"),
    [
        ("a b a", "a", Strategy.EXACT, ["a", "a"]),
        ("aaaa", "aa", Strategy.EXACT, ["aa", "aa"]),
        ("x\r\ny\r\n", "x\ny", Strategy.LINE_ENDINGS, ["x\r\ny"]),
        ("x\ry\r", "x\ny\n", Strategy.LINE_ENDINGS, ["x\ry\r"]),
        ("x\ny\n", "x\r\ny\r\n", Strategy.LINE_ENDINGS, ["x\ny\n"]),
        ("x\r\ny\nx\r\ny\r\n", "x\ny\n", Strategy.LINE_ENDINGS, ["x\r\ny\n", "x\r\ny\r\n"]),
        ("a\nend", "end\n", Strategy.FINAL_NEWLINE, ["end"]),
        ("a\r\nb\r\nend", "b\nend\n", Strategy.FINAL_NEWLINE, ["b\r\nend"]),
        ("say \u201chi\u201d \u2013 ok", 'say "hi" - ok', Strategy.LOOK_ALIKES, ["say \u201chi\u201d \u2013 ok"]),
        ("say 'hi'", "say \u2018hi\u2019", Strategy.LOOK_ALIKES, ["say 'hi'"]),
        ("a\u00a0=\u00a01", "a = 1", Strategy.LOOK_ALIKES, ["a\u00a0=\u00a01"]),
        ("a  \nb\t\nc\n", "a\nb\nc", Strategy.TRAILING_WHITESPACE, ["a  \nb\t\nc"]),
        ("a  \r\nb\r\nc\r\n", "a\nb \n", Strategy.TRAILING_WHITESPACE, ["a  \r\nb\r\n"]),
        (
            "\u201ca\u201d  \nb\n",
            '"a"\nb',
            Strategy.LOOK_ALIKES_AND_TRAILING_WHITESPACE,
            ["\u201ca\u201d  \nb"],
        ),
        ("    if a:\n        b()\n", "if a:\n    b()", Strategy.INDENTATION, ["    if a:\n        b()"]),
        ("\tif a:\n\t\tb()\n", "  if a:\n    b()\n", Strategy.INDENTATION, ["\tif a:\n\t\tb()\n"]),
    ],
)
def test_each_strategy_finds_a_text_despite_the_differences_that_it_forgives(
    text: str, old: str, strategy: Strategy, slices: list[str]
) -> None:
    assert match(text, old).strategy is strategy
    assert matched_texts(text, old) == slices


@pytest.mark.requirement("edit.strategies")
def test_an_earlier_strategy_wins_over_more_matches_of_a_later_one() -> None:
    text = "a = 1\na = 1  \na\u00a0= 1\n"
    assert match(text, "a = 1\n").strategy is Strategy.EXACT
    assert matched_texts(text, "a = 1\n") == ["a = 1\n"]


@pytest.mark.requirement("edit.strategies")
def test_matches_are_counted_within_the_strategy_that_matched() -> None:
    text_match = match("a \nb\n\na\t\nb\n", "a\nb")
    assert (text_match.strategy, len(text_match.spans)) == (Strategy.TRAILING_WHITESPACE, 2)


@pytest.mark.requirement("edit.strategies")
@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("abc", "abd"),
        ("def f():\n    a()\n    b()\n", "def f():\n  a()\nb()"),
        ("a\nb", "a\nb\nc"),
        ("foo(a, b)", "foo(a,b)"),
        ("\n\n\n", "   "),
        ("", "a"),
    ],
)
def test_a_text_that_is_only_similar_is_not_found(text: str, old: str) -> None:
    assert find_match(Haystack(text), old) is None


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize("old", ["\nb", "a\n", "\n"])
def test_a_match_never_splits_a_carriage_return_from_its_line_feed(old: str) -> None:
    text = "a\r\nb\r\n"
    for span in match(text, old).spans:
        assert text[span.start - 1 : span.start + 1] != "\r\n"
        assert text[span.end - 1 : span.end + 1] != "\r\n"


@pytest.mark.requirement("edit.unknown_encoding")
def test_a_character_that_may_be_half_of_another_one_is_left_alone() -> None:
    # In Shift JIS, the second byte of this character is a backslash. In GB18030, a second byte may be a letter.
    text = "\u8868 = 'a\\b'".encode("shift_jis").decode("latin-1")
    text_match = find_match(Haystack(text, UNKNOWN), "\\")
    assert text_match is not None
    assert (len(text_match.spans), text_match.skipped) == (1, 1)
    text_match = find_match(Haystack("caf\xe9 = 1", UNKNOWN), " = 1")
    assert text_match is not None
    assert (len(text_match.spans), text_match.skipped) == (1, 0)


@pytest.mark.requirement("edit.ambiguous")
@pytest.mark.parametrize("text", ["a\nb\na\n", "a\r\nb\r\na\r\n", "a\rb\ra\r", "a\r\nb\ra\n"])
def test_line_numbers_count_every_kind_of_ending(text: str) -> None:
    haystack = Haystack(text)
    assert [haystack.line_number(span.start) for span in match(text, "a").spans] == [1, 3]


@pytest.mark.requirement("edit.strategies")
def test_nesting_must_be_the_same_to_match_without_indentation() -> None:
    assert indentation_map("a\n  b", "    a\n\tb") == {"": "    ", "  ": "\t"}
    assert indentation_map("a\nb", "a\n  b") is None


@pytest.mark.requirement("edit.bounded")
def test_a_text_that_nearly_matches_everywhere_is_searched_in_linear_steps() -> None:
    # A comparison at every line would take billions of steps and exceed the time limit of the test.
    text = "x \n" * 200_000
    old = "x\n" * 20_000 + "y"
    assert find_match(Haystack(text), old) is None
