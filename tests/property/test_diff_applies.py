"""For any two texts: the diff, applied to the first, gives the second."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.files.change.diff import unified_diff

pytestmark = pytest.mark.requirement("edit.diff")

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NO_NEWLINE = "\\ No newline at end of file"

text = st.lists(st.sampled_from(["a", "b", "c", "", " a", "unique"]), max_size=30).map("\n".join)
texts = st.tuples(text, st.sampled_from(["", "\n"])).map("".join)


def lines_of(content: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", content)


def apply_diff(old: str, hunks: str) -> str:
    """Apply a diff strictly: every context line and every removed line must be in the old text."""
    source = lines_of(old)
    result: list[str] = []
    position = 0
    lines = hunks.split("\n")[:-1]
    for number, line in enumerate(lines):
        header = HUNK.fullmatch(line)
        if header is not None:
            count = 1 if header[2] is None else int(header[2])
            start = int(header[1]) - (count > 0)
            result += source[position:start]
            position = start
            assert len(result) == int(header[3]) - (header[4] != "0")
        elif line != NO_NEWLINE:
            follower = lines[number + 1] if number + 1 < len(lines) else ""
            content = line[1:] + ("" if follower == NO_NEWLINE else "\n")
            if line[0] in " -":
                assert source[position] == content
                position += 1
            if line[0] in " +":
                result.append(content)
    return "".join(result + source[position:])


@examples(300)
@given(texts, texts)
def test_a_diff_turns_one_text_into_the_other(old: str, new: str) -> None:
    diff = unified_diff(old, new)
    assert apply_diff(old, diff.hunks) == new
    diff_lines = [line for line in diff.hunks.split("\n") if not line.startswith("@@")]
    assert diff.added == sum(line.startswith("+") for line in diff_lines)
    assert diff.removed is not None
    assert diff.removed == sum(line.startswith("-") for line in diff_lines)
    assert diff.added - diff.removed == len(lines_of(new)) - len(lines_of(old))


@examples(200)
@given(texts, st.integers(0, 30), st.integers(0, 4), st.lists(st.sampled_from(["a", "new", ""]), max_size=4))
def test_a_small_change_has_a_small_diff(old: str, start: int, removed_count: int, inserted_lines: list[str]) -> None:
    lines = lines_of(old)
    new = "".join([*lines[:start], *(f"{line}\n" for line in inserted_lines), *lines[start + removed_count :]])
    diff = unified_diff(old, new)
    assert apply_diff(old, diff.hunks) == new
    assert (diff.removed or 0) <= removed_count + 1
    assert diff.added <= len(inserted_lines) + 1
