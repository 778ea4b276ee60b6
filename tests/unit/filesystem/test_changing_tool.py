"""What `edit` and `write_file` share: the plan that is kept during a question, and the notice in a cut diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.builtin.edit import EditTool
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_results import FileDiff

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("edit.confirm")
@pytest.mark.parametrize(("size", "is_kept"), [(1_000, True), (3_000_000, False)])
async def test_only_a_small_plan_is_kept_during_the_question(
    size: int, is_kept: bool, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("one\n" + "x" * size)
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "one", "new_string": "two"})
    await tool.should_confirm_execute(params, context)
    assert bool(context.memo) is is_kept
    await tool.execute(params, context)
    assert (root / "a.txt").read_text() == "two\n" + "x" * size


@pytest.mark.requirement("edit.confirm")
async def test_a_plan_for_other_parameters_is_not_executed(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("one\n")
    tool = EditTool()
    confirmed_params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "one", "new_string": "asked"})
    executed_params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "one", "new_string": "other"})
    await tool.should_confirm_execute(confirmed_params, context)
    await tool.execute(executed_params, context)
    assert (root / "a.txt").read_text() == "other\n"


@pytest.mark.requirement("edit.confirm")
async def test_a_cut_diff_is_marked_in_the_question_and_in_the_display(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("".join(f"old {number}\n" for number in range(20_000)))
    tool = EditTool()
    arguments = {"file_path": "a.txt", "old_string": "old", "new_string": "new", "replace_all": True}
    params = tool.validate_tool_params(arguments)
    details = await tool.should_confirm_execute(params, context)
    assert isinstance(details, EditConfirmation)
    result = await tool.execute(params, context)
    assert isinstance(result.return_display, FileDiff)
    assert details.truncated
    assert result.return_display.truncated
    small_edit = tool.validate_tool_params({"file_path": "a.txt", "old_string": "new 5\n", "new_string": "x\n"})
    details = await tool.should_confirm_execute(small_edit, context)
    assert isinstance(details, EditConfirmation)
    assert not details.truncated
