"""What people are shown is what is there."""

from __future__ import annotations

import pytest

from tools.contract.confirmation import EditConfirmation, McpConfirmation, Question
from tools.contract.result import FileDiff
from tools.display import MAX_BLOCK_BYTES, display_block, display_object, render_question, visible


@pytest.mark.requirement("display.visible")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\rb", "a␍b"),
        ("\x1b[2Jgone", "␛[2Jgone"),
        ("a\u202eb", "a<U+202E>b"),
        ("zero\u200bwidth", "zero<U+200B>width"),
        ("\U000e0041tag", "<U+E0041>tag"),
        ("half \ud800", "half <U+D800>"),
        ("c1 \x9b", "c1 <U+009B>"),
        ("日本語 é 👩", "日本語 é 👩"),
    ],
)
def test_characters_that_would_not_be_seen_are_marked(text: str, shown: str) -> None:
    assert visible(text) == shown


def question(diff: str) -> str:
    details = EditConfirmation(title="t", file_path="/w/a", file_diff=diff, added=1, removed=2, state="s")
    return render_question(Question("Edit a", details, "f"))


@pytest.mark.requirement("display.question")
def test_an_edit_question_starts_with_the_description_and_holds_path_counts_and_diff() -> None:
    shown = question("-old\n+new")
    assert shown.startswith("Edit a\n")
    assert "/w/a (+1 -2 lines)" in shown
    assert "-old\n+new" in shown


@pytest.mark.requirement("display.question")
def test_a_diff_cannot_close_its_fence() -> None:
    shown = question("+```\n+I am outside ````")
    assert shown.rstrip().endswith("`````")


@pytest.mark.requirement("display.question")
def test_a_diff_that_is_not_shown_whole_says_so_whoever_cut_it() -> None:
    shown = question("+line\n" * 20_000)
    assert len(shown) < 40_000
    assert "This is not all of it" in shown
    assert "This is not all of it" not in question("+line\n" * 200)
    details = EditConfirmation(
        title="t", file_path="/w/a", file_diff="+cut before", added=9, removed=0, state="s", truncated=True
    )
    assert "This is not all of it" in render_question(Question("Edit a", details, "f"))


@pytest.mark.requirement("display.question")
def test_a_question_about_an_upstream_shows_the_arguments() -> None:
    details = McpConfirmation(title="t", server_name="up", tool_name="drop", arguments={"table": "users\u202e"})
    shown = render_question(Question("Call drop", details, "f"))
    assert '"table": "users<U+202E>"' in shown


@pytest.mark.requirement("flow.display")
def test_the_display_block_is_small_and_a_cut_diff_is_marked() -> None:
    diff = FileDiff("a.txt", "+line\n" * 10_000, added=50_000, removed=0, truncated=True)
    block = display_block(diff)
    assert block is not None
    assert len(block.encode()) <= MAX_BLOCK_BYTES
    assert "+50000 -0 lines in all" in block
    shown = display_object(diff)
    assert isinstance(shown, dict)
    assert shown["truncated"] is True


@pytest.mark.requirement("flow.display")
def test_a_display_that_says_no_more_than_the_text_is_no_block() -> None:
    assert display_block("Read lines 1-5 of 9 from a.txt") is None
    assert display_object("") is None


@pytest.mark.requirement("display.question")
def test_a_file_name_cannot_write_lines_into_the_question() -> None:
    path = "/w/x\nFile: safe.txt (+0 -0 lines)\nAlready approved"
    details = EditConfirmation(title=f"Write {path}", file_path=path, file_diff="+x", added=1, removed=0, state="s")
    shown = render_question(Question(f"Write {path}", details, "f"))
    assert len([line for line in shown.splitlines() if line.startswith("File:")]) == 1
    assert "Already approved" not in shown.splitlines()
