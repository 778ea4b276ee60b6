"""What `edit` and `write_file` share: the plan that is kept during a question, and the notice in a cut diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.edit import EditTool, WriteFileTool
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import FileDiff
from tools.files.workspace import Workspace

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


@pytest.mark.requirement("write.confirm")
async def test_writing_the_present_content_needs_no_question_and_never_replaces_newer_content(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("same\n")
    tool = WriteFileTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "content": "same\n"})
    assert await tool.should_confirm_execute(params, context) is None
    (root / "a.txt").write_text("newer\n")
    with pytest.raises(ToolError, match="was changed in the meantime") as refusal:
        await tool.execute(params, context)
    assert refusal.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert (root / "a.txt").read_text() == "newer\n"
    (root / "a.txt").write_text("same\n")
    assert await tool.should_confirm_execute(params, context) is None
    assert "already has exactly this content" in str((await tool.execute(params, context)).llm_content)


@pytest.mark.requirement("write.confirm")
@pytest.mark.parametrize(
    ("tool", "text"), [(WriteFileTool(), {"content": "a"}), (EditTool(), {"old_string": "", "new_string": "a"})]
)
async def test_no_question_is_asked_about_a_path_that_leads_through_a_file(
    tool: WriteFileTool | EditTool, text: dict[str, str], root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("file\n")
    params: Any = tool.validate_tool_params({"file_path": "a.txt/b/c.txt", **text})
    with pytest.raises(ToolError, match="part of the path is a file, not a folder"):
        await tool.should_confirm_execute(params, context)


@pytest.mark.requirement("write.hidden")
@pytest.mark.parametrize("is_rule", [False, True])
@pytest.mark.parametrize("name", ["secret.env", "no_secret.env"])
async def test_a_path_through_a_hidden_file_gets_the_same_question_whether_the_file_exists_or_not(
    is_rule: bool, name: str, root: Path, context: ToolContext
) -> None:
    (root / "secret.env").write_text("KEY=1")
    if is_rule:
        hides = Workspace([str(root)], forbidden=lambda path: "rule" if "secret" in path else None)
        context = replace(context, workspace=hides)
    else:
        (root / ".coretoolsignore").write_text("*secret.env\n")
    tool = WriteFileTool()
    params = tool.validate_tool_params({"file_path": f"{name}/a.txt", "content": "a"})
    assert isinstance(await tool.should_confirm_execute(params, context), EditConfirmation)
