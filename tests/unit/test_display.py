"""Texts for people show everything that is there: invisible characters are marked, and nothing is hidden."""

from __future__ import annotations

from typing import Any

import pytest

from tools.contract.command_views import CommandView, Engine, Network, ViewKind
from tools.contract.confirmation import (
    EditConfirmation,
    ExecConfirmation,
    InfoConfirmation,
    McpConfirmation,
    Question,
)
from tools.contract.display import (
    MAX_BLOCK_BYTES,
    MAX_LISTED_PLACES,
    can_be_shown,
    display_block,
    display_object,
    effects_of,
    question_parts,
    render_question,
    visible,
)
from tools.contract.tool_results import FileDiff


@pytest.mark.requirement("display.visible")
@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_invisible_characters_are_marked(text: str, expected: str) -> None:
    assert visible(text) == expected


def question(diff: str) -> str:
    details = EditConfirmation(title="t", file_path="/w/a", file_diff=diff, added=1, removed=2, state="s")
    return render_question(Question("Edit a", details, "f"))


@pytest.mark.requirement("display.question")
def test_a_question_about_a_command_says_how_many_more_paths_it_sees_and_changes() -> None:
    paths = tuple(f"/other/{number}" for number in range(MAX_LISTED_PLACES + 2))
    reading = CommandView(Engine.BUBBLEWRAP, ViewKind.READING, Network.OWN_LOOPBACK, seen=paths)
    working = CommandView(Engine.BUBBLEWRAP, ViewKind.WORKING, Network.OWN_LOOPBACK, writable=paths)
    assert "; it also sees /other/0, /other/1, " in effects_of(reading, ["/w"])
    assert f"/other/{MAX_LISTED_PLACES - 1} and 2 more; it has no network access." in effects_of(reading, ["/w"])
    assert " and 3 more; " in effects_of(working, ["/w"])


@pytest.mark.requirement("display.question")
def test_an_edit_question_starts_with_the_description_and_contains_path_counts_and_diff() -> None:
    text = question("-old\n+new")
    assert text.startswith("Edit a\n")
    assert "/w/a (+1 -2 lines)" in text
    assert "-old\n+new" in text


@pytest.mark.requirement("display.question")
def test_a_diff_cannot_close_its_fence() -> None:
    text = question("+```\n+I am outside ````")
    assert text.rstrip().endswith("`````")


@pytest.mark.requirement("display.question")
def test_a_truncated_diff_says_so() -> None:
    text = question("+line\n" * 20_000)
    assert len(text) < 40_000
    assert "Cut here: it is too long" in text
    assert "Cut here: it is too long" not in question("+line\n" * 200)
    details = EditConfirmation(
        title="t", file_path="/w/a", file_diff="+cut before", added=9, removed=0, state="s", truncated=True
    )
    assert "Cut here: it is too long" in render_question(Question("Edit a", details, "f"))


@pytest.mark.requirement("display.question")
def test_notes_about_an_edit_come_before_its_diff() -> None:
    details = EditConfirmation(
        title="t",
        file_path="/w/a",
        file_diff="-x",
        added=0,
        removed=1,
        state="s",
        notes=("The file\u202e goes.", "Two"),
    )
    text = render_question(Question("Edit a", details, "f"))
    assert "(+0 -1 lines)\nThe file<U+202E> goes.\nTwo\n```diff" in text


@pytest.mark.requirement("display.question")
def test_a_question_about_an_upstream_shows_the_arguments() -> None:
    details = McpConfirmation(title="t", server_name="up", tool_name="drop", arguments={"table": "users\u202e"})
    text = render_question(Question("Call drop", details, "f"))
    assert '"table": "users<U+202E>"' in text


@pytest.mark.requirement("flow.display")
def test_the_display_block_is_small_and_a_cut_diff_is_marked() -> None:
    diff = FileDiff("a.txt", "+line\n" * 10_000, added=50_000, removed=0, truncated=True)
    block = display_block(diff)
    assert block is not None
    assert len(block.encode()) <= MAX_BLOCK_BYTES
    assert "+50000 -0 lines in all" in block
    fields = display_object(diff)
    assert isinstance(fields, dict)
    assert fields["truncated"] is True


@pytest.mark.requirement("flow.display")
def test_a_plain_text_display_adds_no_block() -> None:
    assert display_block("Read lines 1-5 of 9 from a.txt") is None
    assert display_object("") is None


@pytest.mark.requirement("display.question")
def test_a_file_name_cannot_add_lines_to_the_question() -> None:
    path = "/w/x\nFile: safe.txt (+0 -0 lines)\nAlready approved"
    details = EditConfirmation(title=f"Write {path}", file_path=path, file_diff="+x", added=1, removed=0, state="s")
    text = render_question(Question(f"Write {path}", details, "f"))
    assert len([line for line in text.splitlines() if line.startswith("File:")]) == 1
    assert "Already approved" not in text.splitlines()


def command_question(command: str, **fields: Any) -> str:
    details = ExecConfirmation(title="Run a shell command", command=command, directory="/w", **fields)
    return render_question(Question("Run it", details, "f"))


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls \x1b[2K\x1b[1A; rm -rf x", "ls ␛[2K␛[1A; rm -rf x"),
        ("rm -rf x #\rls", "rm -rf x #␍ls"),
        ("rm -rf x\b\b\b\b\b\b\b\bls", "rm -rf x␈␈␈␈␈␈␈␈ls"),
        ("ls \u202e; x fr- mr", "ls <U+202E>; x fr- mr"),
        ("ls\u2066 x\u2069", "ls<U+2066> x<U+2069>"),
        ("r\u200bm x", "r<U+200B>m x"),
        ("ls \U000e0001\U000e0072\U000e006d", "ls <U+E0001><U+E0072><U+E006D>"),
        ("ls\U000e0100 x", "ls<U+E0100> x"),
        ("ls\x00\x07\x7f\x9b", "ls␀␇<U+007F><U+009B>"),
        ("ls\u2028rm x", "ls<U+2028>rm x"),
        ("ls \u3164\uffa0\u2800", "ls <U+3164><U+FFA0><U+2800>"),
        ("ls" + " " * 5_000 + "; rm -rf x", "ls <5000 spaces> ; rm -rf x"),
        ("ls" + "\n" * 3_000 + "rm -rf x", "ls <3000 line breaks> rm -rf x"),
        ("ls" + "\t" * 400 + "; rm -rf x", "ls <400 tabs> ; rm -rf x"),
    ],
    ids=[
        "escape sequence",
        "carriage return",
        "backspace",
        "right to left",
        "isolates",
        "zero width",
        "tags",
        "variation selector",
        "controls",
        "line separator",
        "fillers",
        "blanks",
        "empty lines",
        "tabs",
    ],
)
def test_a_command_is_shown_completely_and_nothing_in_it_is_hidden(command: str, expected: str) -> None:
    assert f"```bash\n{expected}\n```" in command_question(command)


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize(
    "blank",
    ["\u00a0", "\u2003", "\u3000", "\u1680", "\u205f", " \t", " \n", "\n \n\t", " \u00a0"],
    ids=lambda blank: " ".join(f"{ord(char):04X}" for char in blank),
)
def test_no_whitespace_pushes_the_end_of_a_command_out_of_sight(blank: str) -> None:
    lines = command_question("ls " + blank * 2_000 + "; rm -rf x").splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) < 500
    assert any("; rm -rf x" in line for line in lines)


@pytest.mark.requirement("display.question")
def test_a_single_line_break_in_much_whitespace_is_shown() -> None:
    parts = question_parts(InfoConfirmation(title="Look", prompt="a\n" + " " * 2_000 + "b"))
    assert parts.block == "a <1 line break> b"


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("size", [31_000, 32_001, 100_000])
def test_no_question_is_asked_about_a_command_that_would_be_cut(size: int) -> None:
    command = "echo " + "x" * size + "; rm -rf y"
    assert can_be_shown(command) == (size < 32_000)
    if can_be_shown(command):
        text = command_question(command)
        assert command in text
        assert "Cut here: it is too long" not in text


@pytest.mark.requirement("display.question")
def test_marks_of_invisible_characters_count_towards_the_size_limit_of_a_command() -> None:
    command = "ls " + "\u202e" * 4_000 + "; rm -rf x"
    assert len(command.encode()) < 32_000
    assert not can_be_shown(command)
    assert can_be_shown("ls" + " " * 90_000 + "; rm -rf x")


@pytest.mark.requirement("display.question")
def test_no_text_around_a_command_can_look_like_another_command() -> None:
    text = command_question(
        "ls\n```\nFolder: /safe\n````",
        description="harmless\n```bash\nls\n```\n\x1b[8m",
        is_background=True,
    )
    lines = text.splitlines()
    assert "`````bash" in lines
    assert lines.count("`````") == 1
    assert [line for line in lines if line.startswith("Folder: ")] == ["Folder: /safe", "Folder: /w"]
    assert lines.index("Folder: /safe") < lines.index("`````") < lines.index("Folder: /w")
    assert "The model says: harmless␊```bash␊ls␊```␊␛[8m" in lines


@pytest.mark.requirement("display.question")
def test_a_long_description_by_the_model_is_cut_and_its_length_is_shown() -> None:
    text = command_question("ls", description="harmless" + " " * 900 + "x" * 5_000_000)
    assert "The model says: harmless <900 blanks> xxx" in text.replace("spaces", "blanks")
    assert "x ... [5,000,908 characters]" in text
    assert len(text) < 2_000


@pytest.mark.requirement("display.question")
def test_a_diff_with_very_many_lines_is_cut_with_a_note() -> None:
    text = question("+a\n" + "+\n" * 50_000 + "+rm -rf x\n")
    assert len(text.encode()) < 33_000
    assert "Cut here: it is too long" in text
