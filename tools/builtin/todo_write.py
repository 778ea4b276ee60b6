"""`todo_write`: replaces the model's whole todo list."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, cast, get_args

from pydantic import Field

from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import ForeignParameter, ToolParams, coerce, foreign, object_schema
from tools.contract.tool_results import TodoListDisplay, ToolResult
from tools.planning.todo_lists import Todo, TodoLists, TodoStatus
from tools.text.file_names import one_line

MAX_TODOS = 100  # nobody can follow a longer plan
MAX_TODO_CHARS = 1_000
MAX_ID_CHARS = 100
# Limit, in characters, on the todos that the text for the model repeats. In any writing system, the text then stays
# below 8 kB. The structured result has all todos.
MAX_TEXT_CHARS = 2_000
_STATUS = {"type": "string", "enum": list(get_args(TodoStatus))}
_TODO_SCHEMA = object_schema({"id": {"type": "string"}, "content": {"type": "string"}, "status": _STATUS})

OUTPUT_SCHEMA = object_schema(
    {
        "todos": {"type": "array", "items": _TODO_SCHEMA, "description": "The list as it is now."},
        "kept": {
            "type": "boolean",
            "description": "False if this client has no session or token, so the list exists only in this result.",
        },
        "notes": {"type": "array", "items": {"type": "string"}, "description": "Further remarks."},
    }
)


class TodoItem(ToolParams):
    """One todo."""

    id: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="Unique; keep it in later calls.")
    content: str = Field(min_length=1, max_length=MAX_TODO_CHARS)
    status: TodoStatus


class TodoWriteParams(ToolParams):
    todos: list[TodoItem] = Field(max_length=MAX_TODOS, description="The whole list, in order. Empty clears it.")


class TodoWriteTool(BuiltinTool[TodoWriteParams]):
    """Replaces a client's list of todos for its workspace folder."""

    name = "todo_write"
    title = "Write todo list"
    display_name = "TodoWrite"
    aliases = ("write_todos", "TodoWriteTool", "TodoWrite", "WriteTodosTool", "WriteTodos")
    description = (
        "Write the whole todo list (plan, checklist) for work in several steps; it replaces the previous one. Mark a "
        "todo in_progress when you start it, one at a time, and completed as soon as it is done. Not for a single "
        "simple step."
    )
    kind = ToolKind.THINK
    behaviour = Behaviour(read_only=False, idempotent=True)
    params_model = TodoWriteParams
    foreign_parameters = {  # noqa: RUF012 - declared as a Mapping
        # Claude Code's text for a todo in progress (`active_form`), and a field that other programs use
        **dict.fromkeys(("active_form", "priority"), ForeignParameter()),
        "merge": foreign("false", way="The list is replaced: give all todos, including unchanged ones."),
    }
    output_schema = OUTPUT_SCHEMA

    def __init__(self, lists: TodoLists | None = None) -> None:
        self._lists = lists if lists is not None else TodoLists()

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept Gemini CLI's form of todos.

        A todo without an id gets its number in the list as its id, or the next free number.
        """
        given = coerce(arguments.get("todos"), {"type": "array"})
        if not isinstance(given, list) or len(cast("list[Any]", given)) > MAX_TODOS:
            return arguments
        todos, taken = list(cast("list[Any]", given)), set[Any]()
        for at, todo in enumerate(todos):
            if not isinstance(todo, dict):
                continue
            fields = {name: value for name, value in cast("dict[str, Any]", todo).items() if value is not None}
            todos[at] = fields
            described = fields.pop("description", None)  # Gemini CLI's name for `content`
            if described is not None and fields.setdefault("content", described) != described:
                raise InvalidToolParamsError(
                    self.name,
                    "'content' and 'description' of a todo mean the same but have different values; give one.",
                )
            if isinstance(identity := coerce(fields.get("id"), {"type": "string"}), str):
                taken.add(identity)
        for number, todo in enumerate(todos, start=1):
            if isinstance(todo, dict) and "id" not in todo:
                todo["id"] = next(other for other in map(str, count(number)) if other not in taken)
                taken.add(todo["id"])
        arguments["todos"] = todos
        return arguments

    def check(self, params: TodoWriteParams, spelled: Mapping[str, str]) -> None:
        seen: set[str] = set()
        for number, todo in enumerate(params.todos, start=1):
            problem = ""
            if not todo.content.strip():
                problem = f"todo {number} has no content; say what to do."
            elif not todo.id.strip():
                problem = f"the id of todo {number} is blank; give another, or omit it."
            elif todo.id in seen:
                problem = f"the id '{one_line(todo.id)}' is used more than once; give each todo its own."
            if problem:
                raise InvalidToolParamsError(self.name, problem)
            seen.add(todo.id)

    def get_description(self, params: TodoWriteParams, context: ToolContext) -> str:
        total = len(params.todos)
        return "Clear the todo list" if not total else f"Write {total} {'todo' if total == 1 else 'todos'}"

    async def execute(self, params: TodoWriteParams, context: ToolContext) -> ToolResult:
        """Replace the list. This needs no consent, because it changes only what the tool itself has stored."""
        context.signal.raise_if_aborted()
        todos = tuple(Todo(todo.id, todo.content, todo.status) for todo in params.todos)
        self._lists.replace(context.client.key, context.workspace, todos)
        is_kept = not context.client.is_anonymous
        notes: list[str] = []
        under_way = sum(todo.status == "in_progress" for todo in todos)
        if under_way > 1:
            notes.append(f"{under_way} todos are in progress; keep one at a time.")
        if not is_kept:
            notes.append("The list is not stored, because this client sends no session or token. Keep it yourself.")
        total, done = len(todos), sum(todo.status == "completed" for todo in todos)
        said = f"The todo list has {total} {'todo' if total == 1 else 'todos'} now, {done} completed:"
        lines = [said if todos else "The todo list is empty now."]
        room = MAX_TEXT_CHARS
        for number, todo in enumerate(todos, start=1):
            line = f"{number}. [{todo.status}] {one_line(todo.content)}"
            room -= len(line)
            if room < 0:
                lines.append(f"[{total - number + 1} more, not repeated here]")
                break
            lines.append(line)
        shown: list[Mapping[str, str]] = [
            {"id": todo.id, "content": todo.content, "status": todo.status} for todo in todos
        ]
        return ToolResult(
            llm_content="\n".join([*lines, *notes]),
            return_display=TodoListDisplay(tuple(shown)),
            structured={"todos": shown, "kept": is_kept, "notes": notes},
        )
