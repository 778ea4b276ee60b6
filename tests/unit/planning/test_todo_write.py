"""The tool `todo_write`: which lists it accepts, to whom they belong, and what the result says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.people import Person
from tools.builtin.todo_write import MAX_TODO_CHARS, MAX_TODOS, Todo, TodoLists, TodoWriteTool
from tools.call.base_tool import ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import Unavailable
from tools.contract.display import MAX_BLOCK_BYTES, display_block, display_object
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_results import FunctionCall, TodoListDisplay, ToolResult
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionPolicy

pytestmark = pytest.mark.anyio

READ_TODO = {"id": "1", "content": "Read", "status": "completed"}
WRITE_TODO = {"id": "2", "content": "Write", "status": "in_progress"}


def stored_todos(lists: TodoLists, context: ToolContext) -> Sequence[Todo]:
    """Return the stored list of the context's client in its workspace."""
    return lists.read(context.client.key, context.workspace)


async def write(context: ToolContext, todos: Any, lists: TodoLists | None = None) -> ToolResult:
    tool = TodoWriteTool(lists)
    return await tool.execute(tool.validate_tool_params({"todos": todos}), context)


def structured(result: ToolResult) -> dict[str, Any]:
    assert result.structured is not None
    return dict(result.structured)


@pytest.mark.requirement("todo.list")
async def test_the_new_list_replaces_the_former_one_and_is_returned(context: ToolContext) -> None:
    lists = TodoLists()
    await write(context, [{**WRITE_TODO, "id": "old"}], lists)
    result = await write(context, [READ_TODO, WRITE_TODO], lists)
    assert structured(result) == {"todos": [READ_TODO, WRITE_TODO], "kept": True, "notes": []}
    assert result.llm_content == (
        "The todo list has 2 todos now, 1 completed:\n1. [completed] Read\n2. [in_progress] Write"
    )
    assert result.return_display == TodoListDisplay((READ_TODO, WRITE_TODO))
    assert display_block(result.return_display) == "[x] Read\n[>] Write"
    assert stored_todos(lists, context) == (
        Todo(id="1", content="Read", status="completed"),
        Todo(id="2", content="Write", status="in_progress"),
    )
    result = await write(context, [], lists)
    assert result.llm_content == "The todo list is empty now."
    assert stored_todos(lists, context) == ()


@pytest.mark.requirement("todo.refused")
@pytest.mark.parametrize(
    ("todos", "stored_fields"),
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
    todos: Any, stored_fields: list[tuple[str, str, str]], context: ToolContext
) -> None:
    result_todos = structured(await write(context, todos))["todos"]
    assert [(todo["id"], todo["content"], todo["status"]) for todo in result_todos] == stored_fields


@pytest.mark.requirement("todo.refused")
def test_the_published_shape_is_that_of_qwen_code() -> None:
    item = TodoWriteTool().parameter_schema["properties"]["todos"]["items"]
    assert list(item["properties"]) == item["required"] == ["id", "content", "status"]
    assert item["properties"]["status"]["enum"][:3] == ["pending", "in_progress", "completed"]


@pytest.mark.requirement("todo.refused")
@pytest.mark.parametrize(
    "todos",
    [
        [READ_TODO, {**WRITE_TODO, "id": "1"}],
        [{**READ_TODO, "id": " "}],
        [{**READ_TODO, "id": ""}],
        [{**READ_TODO, "id": True}],
        [{**READ_TODO, "id": 10**30}],
        [{**READ_TODO, "content": " \n"}],
        [{**READ_TODO, "content": ""}],
        [{**READ_TODO, "content": "x" * (MAX_TODO_CHARS + 1)}],
        [{**READ_TODO, "description": "other"}],
        [{**READ_TODO, "status": "done"}],
        [{"content": "a"}],
        ["a"],
        [[READ_TODO]],
        {"a": 1},
        "a",
        5,
        [{**READ_TODO, "id": str(number)} for number in range(MAX_TODOS + 1)],
    ],
)
def test_an_ambiguous_or_invalid_list_is_refused(todos: Any) -> None:
    with pytest.raises(InvalidToolParamsError):
        TodoWriteTool().validate_tool_params({"todos": todos})


@pytest.mark.requirement("todo.refused")
async def test_several_todos_in_progress_are_accepted_with_advice(context: ToolContext) -> None:
    result = await write(context, [{**READ_TODO, "status": "in_progress"}, WRITE_TODO])
    assert structured(result)["notes"] == ["2 todos are in progress; keep one at a time."]
    assert "keep one at a time" in str(result.llm_content)


@pytest.mark.requirement("todo.owner")
async def test_each_client_has_a_list_for_each_workspace_folder(tmp_path: Path, context: ToolContext) -> None:
    lists = TodoLists()
    other_folder = replace(context, workspace=Workspace([str(tmp_path)]))
    other_client = replace(context, client=ClientState("other"))
    no_folder = replace(context, workspace=Workspace([]))
    contexts = {"a": context, "b": other_folder, "c": other_client, "d": no_folder}
    for name, list_context in contexts.items():
        await write(list_context, [{**READ_TODO, "content": name}], lists)
    assert {name: stored_todos(lists, list_context)[0].content for name, list_context in contexts.items()} == {
        n: n for n in contexts
    }
    lists.forget("test")
    assert [bool(stored_todos(lists, list_context)) for list_context in contexts.values()] == [
        False,
        False,
        True,
        False,
    ]


@pytest.mark.requirement("todo.refused")
@pytest.mark.parametrize(
    ("todo", "problem"),
    [
        ({"content": "b"}, "'todos.1.status' is required (pending, in_progress, completed, cancelled, blocked)."),
        ("b", "'todos.1': must be an object, got 'b'."),
    ],
)
def test_an_invalid_todo_is_refused_with_what_is_accepted_in_its_place(todo: Any, problem: str) -> None:
    with pytest.raises(InvalidToolParamsError) as error:
        TodoWriteTool().validate_tool_params({"todos": [READ_TODO, todo]})
    assert error.value.message.endswith(f"{problem} Accepted in 'todos.1': id, content, status.")


@pytest.mark.requirement("todo.owner")
async def test_an_anonymous_client_gets_its_list_back_and_nothing_is_stored(
    context: ToolContext,
) -> None:
    lists = TodoLists()
    anonymous = replace(context, client=ClientState(""))
    result = await write(anonymous, [READ_TODO], lists)
    assert (structured(result)["todos"], structured(result)["kept"]) == ([READ_TODO], False)
    assert "not stored" in str(result.llm_content)
    assert stored_todos(lists, anonymous) == ()


@pytest.mark.requirement("todo.owner")
async def test_lists_are_bounded_and_the_oldest_goes_first(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.builtin.todo_write.MAX_LISTS", limit := 5)
    lists = TodoLists()
    contexts = [replace(context, client=ClientState(str(number))) for number in range(limit + 1)]
    for list_context in contexts[:-1]:
        await write(list_context, [READ_TODO], lists)
    await write(contexts[0], [WRITE_TODO], lists)
    await write(contexts[-1], [READ_TODO], lists)
    assert [
        bool(stored_todos(lists, list_context))
        for list_context in (contexts[0], contexts[1], contexts[2], contexts[-1])
    ] == [
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
    assert structured(result)["todos"] == todos


@pytest.mark.requirement("todo.list")
async def test_people_see_a_small_block_and_programs_get_the_whole_list(context: ToolContext) -> None:
    todos = [{"id": str(number), "content": "x\ny" * 50, "status": "blocked"} for number in range(MAX_TODOS)]
    display = (await write(context, todos)).return_display
    block = display_block(display)
    assert block is not None
    assert len(block.encode()) <= MAX_BLOCK_BYTES
    assert block.startswith("[!] x␊y")
    assert block.endswith("[the list goes on: 100 todos in all]")
    assert display_object(display) == {"type": "todo_list", "todos": todos}
    assert display_block((await write(context, [])).return_display) is None


@pytest.mark.requirement("todo.list")
@pytest.mark.parametrize("mode", list(ApprovalMode))
async def test_nobody_is_asked_in_any_mode(mode: ApprovalMode, context: ToolContext) -> None:
    nobody = Person(Unavailable(client_decides=False, way_out=""))
    registry = ToolRegistry()
    registry.register_tool(TodoWriteTool())
    context.client.approval_mode = mode
    call = FunctionCall("write_todos", {"todos": [{"description": "Plan\nmore", "status": "pending"}]})
    outcome = await ToolRunner(registry, PermissionPolicy()).run(call, context, nobody)
    assert nobody.questions == []
    assert isinstance(outcome, ToolResult)
    assert outcome.llm_content == "The todo list has 1 todo now, 0 completed:\n1. [pending] Plan\\nmore"


@pytest.mark.requirement("todo.list")
@pytest.mark.parametrize(
    ("todos", "description"),
    [([], "Clear the todo list"), ([READ_TODO], "Write 1 todo"), ([READ_TODO, WRITE_TODO], "Write 2 todos")],
)
def test_the_description_counts_the_todos(todos: Any, description: str, context: ToolContext) -> None:
    tool = TodoWriteTool()
    assert tool.get_description(tool.validate_tool_params({"todos": todos}), context) == description
