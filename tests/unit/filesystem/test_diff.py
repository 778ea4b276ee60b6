"""Unified diffs: exact, bounded, and cut where they are too long."""

from __future__ import annotations

import pytest

from tools.files.change.diff import MAX_COMPARED_LINES, MAX_DIFF_CHARS, Diff, changed_lines, unified_diff

pytestmark = pytest.mark.requirement("edit.diff")


def numbered(count: int) -> list[str]:
    return [f"line {number}\n" for number in range(1, count + 1)]


def test_a_change_is_shown_with_three_lines_around_it() -> None:
    lines = numbered(20)
    new = "".join([*lines[:9], "changed\n", *lines[10:]])
    diff = unified_diff("".join(lines), new)
    assert (diff.added, diff.removed) == (1, 1)
    assert diff.text("a.txt", ("Current", "Proposed")) == (
        "--- a.txt\tCurrent\n+++ a.txt\tProposed\n"
        "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+changed\n line 11\n line 12\n line 13\n"
    )


def test_nothing_changed_is_an_empty_diff() -> None:
    assert unified_diff("a\n", "a\n") == Diff("", 0, 0)
    assert unified_diff(None, "") == Diff("", 0, 0)
    assert unified_diff("a\n", "a\n").text("a", ("x", "y")) == ""


def test_white_space_counts() -> None:
    assert unified_diff("\tif a:\n", "    if a:\n").hunks == "@@ -1 +1 @@\n-\tif a:\n+    if a:\n"
    assert "-a\r\n+a\n" in unified_diff("a\r\nb\n", "a\nb\n").hunks


def test_a_missing_final_line_ending_is_marked() -> None:
    mark = "\\ No newline at end of file\n"
    assert unified_diff("a", "a\n").hunks == f"@@ -1 +1 @@\n-a\n{mark}+a\n"
    assert unified_diff("a\nb", "x\nb").hunks == f"@@ -1,2 +1,2 @@\n-a\n+x\n b\n{mark}"


def test_a_missing_final_line_ending_does_not_change_the_numbers_of_changed_lines() -> None:
    assert changed_lines(unified_diff("a\nb", "a\nc")) == "line 2"
    assert changed_lines(unified_diff("a\nb", "a\nc\n")) == "line 2"


def test_the_numbers_of_changed_lines_are_not_complete_if_the_diff_was_cut() -> None:
    old = "".join(numbered(MAX_COMPARED_LINES * 2))
    assert changed_lines(unified_diff(old, old.replace("line", "word"))) == "line 1 and more"


def test_a_new_file_and_an_emptied_one_have_diffs() -> None:
    assert unified_diff(None, "a\nb\n").hunks == "@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert unified_diff("a\nb\n", "").hunks == "@@ -1,2 +0,0 @@\n-a\n-b\n"


def test_changes_far_apart_are_shown_apart() -> None:
    lines = numbered(40)
    new = "".join(["first\n", *lines[1:38], *lines[39:]])
    diff = unified_diff("".join(lines), new)
    assert (diff.added, diff.removed) == (1, 2)
    assert diff.hunks.count("@@ -") == 2
    assert "@@ -36,5 +36,4 @@\n line 36\n line 37\n line 38\n-line 39\n line 40\n" in diff.hunks


def test_files_of_old_macs_have_lines_too() -> None:
    assert unified_diff("a\rb\rc\r", "a\rB\rc\r").hunks == "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r\n"


def test_changes_in_a_long_text_are_found_one_by_one() -> None:
    lines = numbered(MAX_COMPARED_LINES - 2)
    new = "".join(["first\n", *lines[1:2_000], "put in\n", "between\n", *lines[2_000:-1], "last\n"])
    diff = unified_diff("".join(lines), new)
    assert (diff.added, diff.removed) == (4, 2)


def test_a_change_in_the_middle_of_a_very_long_text_is_shown_as_it_is() -> None:
    lines = numbered(1_000_000)
    new = "".join([*lines[:500_000], "put in\n", *lines[500_001:]])
    diff = unified_diff("".join(lines), new)
    assert (diff.added, diff.removed) == (1, 1)
    assert diff.hunks.startswith("@@ -499998,7 +499998,7 @@\n line 499998\n")


def test_changes_too_far_apart_to_be_compared_are_shown_as_one() -> None:
    lines = numbered(MAX_COMPARED_LINES + 1)
    diff = unified_diff("".join(["head\n", *lines]), "".join(["head\n", "first\n", *lines[1:-1], "last\n"]))
    assert (diff.added, diff.removed) == (len(lines), len(lines))
    assert diff.hunks.startswith(f"@@ -2,{len(lines)} +2,{len(lines)} @@\n-line 1\n")


@pytest.mark.parametrize("count", [30_000, 300_000])
def test_a_rewrite_of_a_long_text_is_counted_and_cut(count: int) -> None:
    old = "".join(f"old {number}\n" for number in range(count))
    new = "".join(f"new {number}\n" for number in range(count + 1))
    diff = unified_diff(old, new)
    assert (diff.added, diff.removed) == (count + 1, count)
    assert MAX_DIFF_CHARS < len(diff.hunks) < MAX_DIFF_CHARS + 200
    assert diff.hunks.endswith(f"[the diff is cut here; in total +{count + 1} -{count} lines]\n")


def test_texts_without_structure_take_bounded_time() -> None:
    # A full alignment of texts that mix two lines without order would exceed the time limit of the test.
    for count in (MAX_COMPARED_LINES - 1, 20_000):
        old = "".join("a\n" if number * number % 7 < 4 else "b\n" for number in range(count))
        new = "".join("a\n" if number * number % 11 < 5 else "b\n" for number in range(count))
        diff = unified_diff(old, new)
        assert diff.removed is not None
        assert diff.added == diff.removed + new.count("\n") - old.count("\n")
        assert diff.added
