"""The tool `todo_write`: which lists it takes, whose they are, and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tools.builtin.todo_write import MAX_TODO_CHARS, MAX_TODOS, Todo, TodoLists, TodoWriteTool
from tools.call.base_tool import ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.confirmation import Question, Unavailable
from tools.contract.display import MAX_BLOCK_BYTES, display_block, display_object
from tools.contract.limits import ApprovalMode
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_results import FunctionCall, TodoListDisplay, ToolResult
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionPolicy

pytestmark = pytest.mark.anyio

ONE = {"id": "1", "content": "Read", "status": "completed"}
TWO = {"id": "2", "content": "Write", "status": "in_progress"}


def kept(lists: TodoLists, context: ToolContext) -> Sequence[Todo]:
    """The list of a call's client in its folder."""
    return lists.read(context.client.key, context.workspace)


async def write(context: ToolContext, todos: Any, lists: TodoLists | None = None) -> ToolResult:
    tool = TodoWriteTool(lists)
    result = await tool.execute(tool.validate_tool_params({"todos": todos}), context)
    assert tool.output_schema is not None
    assert result.structured is not None
    jsonschema.validate(result.structured, tool.output_schema)
    return result


def told(result: ToolResult) -> dict[str, Any]:
    assert result.structured is not None
    return dict(result.structured)


@pytest.mark.requirement("todo.list")
async def test_the_whole_list_replaces_the_former_one_and_comes_back(context: ToolContext) -> None:
    lists = TodoLists()
    await write(context, [{**TWO, "id": "old"}], lists)
    result = await write(context, [ONE, TWO], lists)
    assert told(result) == {"todos": [ONE, TWO], "kept": True, "notes": []}
    assert result.llm_content == (
        "The todo list has 2 todos now, 1 completed:\n1. [completed] Read\n2. [in_progress] Write"
    )
    assert result.return_display == TodoListDisplay((ONE, TWO))
    assert display_block(result.return_display) == "[x] Read\n[>] Write"
    assert kept(lists, context) == (
        Todo(id="1", content="Read", status="completed"),
        Todo(id="2", content="Write", status="in_progress"),
    )
    result = await write(context, [], lists)
    assert result.llm_content == "The todo list is empty now."
    assert kept(lists, context) == ()


@pytest.mark.requirement("todo.refused")
@pytest.mark.parametrize(
    ("todos", "expected"),
    [
        ([{"description": "a", "status": "blocked"}], [("1", "a", "blocked")]),
        ([{"content": "a", "description": "a", "status": "cancelled", "id": None}], [("1", "a", "cancelled")]),
        (
            [{"description": "a", "status": "pending"}, {"id": 1, "content": "b", "status": "pending"}],
            [("2", "a", "pending"), ("1", "b", "pending")],
        ),
        ('[{"description": "a", "status": "pending"}]', [("1", "a", "pending")]),
        ([{"content": "a", "status": "pending", "activeForm": "Doing a"}], [("1", "a", "pending")]),
    ],
)
async def test_the_shape_of_gemini_cli_is_accepted_and_ids_are_made(
    todos: Any, expected: list[tuple[str, str, str]], context: ToolContext
) -> None:
    written = told(await write(context, todos))["todos"]
    assert [(todo["id"], todo["content"], todo["status"]) for todo in written] == expected


@pytest.mark.requirement("todo.refused")
def test_the_published_shape_is_that_of_qwen_code() -> None:
    item = TodoWriteTool().parameter_schema["properties"]["todos"]["items"]
    assert list(item["properties"]) == item["required"] == ["id", "content", "status"]
    assert item["properties"]["status"]["enum"][:3] == ["pending", "in_progress", "completed"]


@pytest.mark.requirement("todo.refused")
@pytest.mark.parametrize(
    "todos",
    [
        [ONE, {**TWO, "id": "1"}],
        [{**ONE, "id": " "}],
        [{**ONE, "id": ""}],
        [{**ONE, "id": True}],
        [{**ONE, "id": 10**30}],
        [{**ONE, "content": " \n"}],
        [{**ONE, "content": ""}],
        [{**ONE, "content": "x" * (MAX_TODO_CHARS + 1)}],
        [{**ONE, "description": "other"}],
        [{**ONE, "status": "done"}],
        [{"content": "a"}],
        ["a"],
        [[ONE]],
        {"a": 1},
        "a",
        5,
        [{**ONE, "id": str(number)} for number in range(MAX_TODOS + 1)],
    ],
)
def test_a_list_that_says_nothing_clear_is_refused(todos: Any) -> None:
    with pytest.raises(InvalidToolParamsError):
        TodoWriteTool().validate_tool_params({"todos": todos})


@pytest.mark.requirement("todo.refused")
async def test_several_todos_in_progress_are_taken_with_a_word_of_advice(context: ToolContext) -> None:
    result = await write(context, [{**ONE, "status": "in_progress"}, TWO])
    assert told(result)["notes"] == ["2 todos are in progress; keep one at a time."]
    assert "keep one at a time" in str(result.llm_content)


@pytest.mark.requirement("todo.owner")
async def test_each_client_has_a_list_for_each_workspace_folder(tmp_path: Path, context: ToolContext) -> None:
    lists = TodoLists()
    elsewhere = replace(context, workspace=Workspace([str(tmp_path)]))
    other = replace(context, client=ClientState("other"))
    nowhere = replace(context, workspace=Workspace([]))
    everywhere = {"a": context, "b": elsewhere, "c": other, "d": nowhere}
    for name, where in everywhere.items():
        await write(where, [{**ONE, "content": name}], lists)
    assert {name: kept(lists, where)[0].content for name, where in everywhere.items()} == {n: n for n in everywhere}
    lists.forget("test")
    assert [bool(kept(lists, where)) for where in everywhere.values()] == [
        False,
        False,
        True,
        False,
    ]


@pytest.mark.requirement("todo.owner")
async def test_a_client_that_cannot_be_told_from_others_gets_its_list_back_and_nothing_is_kept(
    context: ToolContext,
) -> None:
    lists = TodoLists()
    anonymous = replace(context, client=ClientState(""))
    result = await write(anonymous, [ONE], lists)
    assert (told(result)["todos"], told(result)["kept"]) == ([ONE], False)
    assert "not stored" in str(result.llm_content)
    assert kept(lists, anonymous) == ()


@pytest.mark.requirement("todo.owner")
async def test_lists_are_bounded_and_the_oldest_goes_first(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.builtin.todo_write.MAX_LISTS", most := 5)
    lists = TodoLists()
    contexts = [replace(context, client=ClientState(str(number))) for number in range(most + 1)]
    for where in contexts[:-1]:
        await write(where, [ONE], lists)
    await write(contexts[0], [TWO], lists)
    await write(contexts[-1], [ONE], lists)
    assert [bool(kept(lists, where)) for where in (contexts[0], contexts[1], contexts[2], contexts[-1])] == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.requirement("todo.owner")
async def test_the_text_of_the_longest_list_stays_short_and_the_structured_result_has_all(context: ToolContext) -> None:
    todos = [{"id": str(number), "content": "𝄞" * MAX_TODO_CHARS, "status": "pending"} for number in range(MAX_TODOS)]
    result = await write(context, todos)
    assert len(str(result.llm_content).encode()) < 8_192
    assert "more, not repeated here]" in str(result.llm_content)
    assert told(result)["todos"] == todos


@pytest.mark.requirement("todo.list")
async def test_people_see_the_list_in_a_small_block_and_programs_all_of_it(context: ToolContext) -> None:
    todos = [{"id": str(number), "content": "x\ny" * 50, "status": "blocked"} for number in range(MAX_TODOS)]
    shown = (await write(context, todos)).return_display
    block = display_block(shown)
    assert block is not None
    assert len(block.encode()) <= MAX_BLOCK_BYTES
    assert block.startswith("[!] x␊y")
    assert block.endswith("[the list goes on: 100 todos in all]")
    assert display_object(shown) == {"type": "todo_list", "todos": todos}
    assert display_block((await write(context, [])).return_display) is None


@pytest.mark.requirement("todo.list")
@pytest.mark.parametrize("mode", list(ApprovalMode))
async def test_nobody_is_asked_in_any_mode(mode: ApprovalMode, context: ToolContext) -> None:
    class Nobody:
        async def ask(self, question: Question) -> Unavailable:
            raise AssertionError(question)

    registry = ToolRegistry()
    registry.register_tool(TodoWriteTool())
    context.client.approval_mode = mode
    call = FunctionCall("write_todos", {"todos": [{"description": "Plan\nmore", "status": "pending"}]})
    outcome = await ToolRunner(registry, PermissionPolicy()).run(call, context, Nobody())
    assert isinstance(outcome, ToolResult)
    assert outcome.llm_content == "The todo list has 1 todo now, 0 completed:\n1. [pending] Plan\\nmore"


@pytest.mark.requirement("todo.list")
@pytest.mark.parametrize(
    ("todos", "said"), [([], "Clear the todo list"), ([ONE], "Write 1 todo"), ([ONE, TWO], "Write 2 todos")]
)
def test_the_description_counts_the_todos(todos: Any, said: str, context: ToolContext) -> None:
    tool = TodoWriteTool()
    assert tool.get_description(tool.validate_tool_params({"todos": todos}), context) == said
