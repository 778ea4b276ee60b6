"""`todo_write`: replaces the model's whole todo list. There is one list per client and workspace folder.

The lists are a model's working notes, replaced many times an hour. So they are kept only in memory, while the server
runs, and replicas of the server do not share them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, cast

from pydantic import Field

from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import ForeignParameter, ToolParams, coerce, foreign
from tools.contract.tool_results import TodoListDisplay, ToolResult
from tools.files.workspace import Workspace
from tools.text.file_names import one_line

# Qwen Code has the first three values, and Gemini CLI has all of them.
TodoStatus = Literal["pending", "in_progress", "completed", "cancelled", "blocked"]
MAX_LISTS = 250  # the least recently written list is dropped first; 250 lists of maximum size take about 100 MB


MAX_TODOS = 100  # nobody can follow a longer plan
MAX_TODO_CHARS = 1_000
MAX_ID_CHARS = 100


class Todo(ToolParams):
    id: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="Unique; keep it in later calls.")
    content: str = Field(min_length=1, max_length=MAX_TODO_CHARS)
    status: TodoStatus


class TodoLists:
    """Stores the lists. An anonymous client has an empty key and no list."""

    def __init__(self) -> None:
        # Keyed by the client's key and the first workspace folder, if there is one
        self._lists: OrderedDict[tuple[str, tuple[str, ...]], tuple[Todo, ...]] = OrderedDict()

    def replace(self, client_key: str, workspace: Workspace, todos: Sequence[Todo]) -> None:
        """Replace the list of a client in a workspace, or remove it if `todos` is empty."""
        key = (client_key, workspace.roots[:1])
        self._lists.pop(key, None)
        if todos and client_key:
            self._lists[key] = tuple(todos)
        if len(self._lists) > MAX_LISTS:
            self._lists.popitem(last=False)

    def read(self, client_key: str, workspace: Workspace) -> Sequence[Todo]:
        """Return the list as last written, or an empty one."""
        return self._lists.get((client_key, workspace.roots[:1]), ())

    def forget(self, client_key: str) -> None:
        """Drop the lists of a client that will not return."""
        for key in [key for key in self._lists if key[0] == client_key]:
            del self._lists[key]


# Maximum number of characters of todos to repeat in the text for the model. In any writing system, the text then stays
# below 8 kB. The structured result has all todos.
MAX_TEXT_CHARS = 2_000


class TodoWriteParams(ToolParams):
    todos: list[Todo] = Field(max_length=MAX_TODOS, description="The whole list, in order. Empty clears it.")


class TodoWriteTool(BuiltinTool[TodoWriteParams]):
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

    def __init__(self, lists: TodoLists | None = None) -> None:
        self._lists = lists if lists is not None else TodoLists()

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept Gemini CLI's form of todos. A todo without an id gets its number in the list, or the next free one."""
        raw_todos = coerce(arguments.get("todos"), {"type": "array"})
        if not isinstance(raw_todos, list) or len(cast("list[Any]", raw_todos)) > MAX_TODOS:
            return arguments
        todos, used_ids = list(cast("list[Any]", raw_todos)), set[Any]()
        for index, todo in enumerate(todos):
            if not isinstance(todo, dict):
                continue
            fields = {name: value for name, value in cast("dict[str, Any]", todo).items() if value is not None}
            todos[index] = fields
            description = fields.pop("description", None)  # Gemini CLI's name for `content`
            if description is not None and fields.setdefault("content", description) != description:
                problem = "'content' and 'description' are the same field of a todo, but their values differ"
                raise InvalidToolParamsError(self.name, f"{problem}; give only one.")
            if isinstance(identity := coerce(fields.get("id"), {"type": "string"}), str):
                used_ids.add(identity)
        for number, todo in enumerate(todos, start=1):
            if isinstance(todo, dict) and "id" not in todo:
                todo["id"] = next(candidate for candidate in map(str, count(number)) if candidate not in used_ids)
                used_ids.add(todo["id"])
        arguments["todos"] = todos
        return arguments

    def problems(self, params: TodoWriteParams, original_names: Mapping[str, str]) -> Iterator[str]:
        seen: set[str] = set()
        for number, todo in enumerate(params.todos, start=1):
            if not todo.content.strip():
                yield f"todo {number} has no content; say what to do."
            if not todo.id.strip():
                yield f"the id of todo {number} is blank; give another, or omit it."
            if todo.id in seen:
                yield f"the id '{one_line(todo.id)}' is used more than once; give each todo its own."
            seen.add(todo.id)

    def get_description(self, params: TodoWriteParams, context: ToolContext) -> str:
        total = len(params.todos)
        return "Clear the todo list" if not total else f"Write {total} {'todo' if total == 1 else 'todos'}"

    async def execute(self, params: TodoWriteParams, context: ToolContext) -> ToolResult:
        """Replace the list. This needs no consent, because it changes only what the tool itself has stored."""
        context.signal.raise_if_aborted()
        todos = params.todos
        self._lists.replace(context.client.key, context.workspace, todos)
        is_kept = not context.client.is_anonymous
        notes: list[str] = []
        in_progress_count = sum(todo.status == "in_progress" for todo in todos)
        if in_progress_count > 1:
            notes.append(f"{in_progress_count} todos are in progress; keep one at a time.")
        if not is_kept:
            notes.append("The list is not stored, because this client sends no session ID or token. Keep it yourself.")
        total, completed_count = len(todos), sum(todo.status == "completed" for todo in todos)
        heading = f"The todo list has {total} {'todo' if total == 1 else 'todos'} now, {completed_count} completed:"
        lines = [heading if todos else "The todo list is empty now."]
        room = MAX_TEXT_CHARS
        for number, todo in enumerate(todos, start=1):
            line = f"{number}. [{todo.status}] {one_line(todo.content)}"
            room -= len(line)
            if room < 0:
                lines.append(f"[{total - number + 1} more, not repeated here]")
                break
            lines.append(line)
        items = [todo.model_dump() for todo in todos]
        structured = {"todos": items, "kept": is_kept, "notes": notes}
        return ToolResult("\n".join([*lines, *notes]), TodoListDisplay(tuple(items)), structured)
