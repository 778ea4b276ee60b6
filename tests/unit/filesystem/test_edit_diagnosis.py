"""What an edit says when its `old_string` is not in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.builtin.edit import EditTool
from tools.builtin.read_file import ReadFileTool
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.change.text_edit import MAX_REGION_LINES, nearest_region
from tools.files.change.text_match import Haystack

pytestmark = pytest.mark.anyio


async def failed_edit_message(context: ToolContext, old: str, new: str = "replacement") -> str:
    """Return the error message of an edit whose `old_string` is not in the file."""
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "old_string": old, "new_string": new})
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, context)
    assert error_info.value.code is ToolErrorType.EDIT_NO_OCCURRENCE_FOUND
    assert "0 matches" in error_info.value.message
    return error_info.value.message


@pytest.mark.requirement("edit.causes")
async def test_the_nearest_region_is_shown_with_its_lines(root: Path, context: ToolContext) -> None:
    lines = [f"value_{number} = {number}" for number in range(1, 101)]
    (root / "a.txt").write_text("\n".join(lines))
    message = await failed_edit_message(context, "value_49 = 49\nvalue_50 = FIFTY\nvalue_51 = 51")
    assert "lines 49-51" in message
    assert message.endswith("---\nvalue_49 = 49\nvalue_50 = 50\nvalue_51 = 51\n---")


@pytest.mark.requirement("edit.causes")
async def test_a_single_misspelled_line_is_found(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("import os\n\n\ndef compute_total(items):\n    return sum(items)\n")
    message = await failed_edit_message(context, "def compute_totals(item_list):")
    assert "def compute_total(items):" in message
    assert "lines 4-5" in message


@pytest.mark.requirement("edit.causes")
async def test_nothing_similar_shows_nothing(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("alpha\nbeta\n")
    message = await failed_edit_message(context, "zzz 123")
    assert "---" not in message
    assert "alpha" not in message


@pytest.mark.requirement("edit.causes")
async def test_the_region_is_short_and_its_lines_are_cut() -> None:
    text = "\n".join(f"shared line {number}" for number in range(50)) + "\n" + "y" * 5_000
    nearest = nearest_region(Haystack(text), text.replace("line 7", "line seven"))
    assert nearest is not None
    assert nearest.last - nearest.first + 1 == MAX_REGION_LINES
    nearest = nearest_region(Haystack("x\n" + "word " * 1000), "x\n" + "word " * 999)
    assert nearest is not None
    assert len(nearest.text) < 400


@pytest.mark.requirement("edit.causes")
@pytest.mark.parametrize(
    ("content", "old", "cause"),
    [
        ("def f():\n    return 1\n", "  12\tdef f():\n  13\t    return 1", "line numbers"),
        ("def f():\n    return 1\n", "12: def f():\n13:     return 1", "line numbers"),
        ("a\nb\n", "a\\nb", "literal \\n"),
        ('print("a\\nb")\n', 'print("a\nb")', "two characters \\n"),
        ("foo(a,  b)\n", "foo(a, b)", "white space"),
        ("if a:\n\tb = 1; c\n", "if a: b = 1; c", "tabs"),
        ("if a:\n    b\n  c\n", "if a:\n  b\nc", "white space"),
        ("a\u00a0 b\n", "a   b\u00a0", "no-break spaces"),
        ("it\u2019s  fine\n", "it's fine", "look-alike"),
        ("Value = 1\n", "value = 1", "case were ignored"),
        ("a = 2\n", "a = 1", "at line 1"),
        ("a\n", "   \t", "only white space"),
    ],
)
async def test_the_cause_is_named(content: str, old: str, cause: str, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(content)
    assert cause in await failed_edit_message(context, old, "a = 2")


@pytest.mark.requirement("edit.causes")
async def test_the_error_says_that_the_file_was_not_read(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("alpha\n")
    assert "not read this file" in await failed_edit_message(context, "beta")
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    assert "not read this file" not in await failed_edit_message(context, "beta")


@pytest.mark.requirement("edit.bounded")
@pytest.mark.parametrize("old", ["q" * 50_000, "word other\n" * 5_000, "word" * 10_000 + "\n" + "w\n" * 1000])
async def test_the_search_for_a_similar_region_is_bounded(old: str, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("word and another word in a rather long line of text\n" * 30_000)
    assert await failed_edit_message(context, old)


@pytest.mark.requirement("edit.causes")
async def test_invisible_characters_are_marked_in_the_region(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("say zero\u200bwidth, no\u00a0break, cafe\u0301, \u1112\u1161\u11ab now\nplain\n")
    message = await failed_edit_message(context, "say zerowidth, no break, caf\u00e9, \ud55c now")
    assert "say zero<U+200B>width, no<U+00A0>break, cafe<U+0301>, \u1112<U+1161><U+11AB> now\n" in message
    assert "<U+200B>" in message.partition("---")[0]
    assert "invisible" in message
    assert "<U+" not in await failed_edit_message(context, "plan")


@pytest.mark.requirement("edit.causes")
async def test_the_error_says_that_a_notebook_is_json(root: Path, context: ToolContext) -> None:
    (root / "a.ipynb").write_text('{"cells": [{"cell_type": "code", "source": ["print(\\"hi\\")"]}]}')
    tool = EditTool()
    arguments = {"file_path": "a.ipynb", "old_string": 'print("hi")', "new_string": "pass"}
    with pytest.raises(ToolError, match="JSON, and read_file shows only its cells") as error_info:
        await tool.execute(tool.validate_tool_params(arguments), context)
    assert error_info.value.code is ToolErrorType.EDIT_NO_OCCURRENCE_FOUND
