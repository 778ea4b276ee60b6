"""What is remembered, as resources: the memory files, and the todo list of the client that asks.

Loading memories into a conversation is the client's part; this is how it gets them. A memory file is read through the
flow, as any file of the workspace is, under the rules for `read_file`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from tools.contract.blocking import run_blocking
from tools.contract.confirmation import Question
from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.result import FunctionCall, ToolResult
from tools.memory.memory_files import SCOPES, MemoryFile, MemoryFiles, MemoryScope
from tools.planning.todo_lists import TodoLists

READER = "read_file"
"""The tool whose rules hold for reading a memory file."""

TODO_LIST = "todo://list"

MARKDOWN = "text/markdown"
JSON = "application/json"

_MEMORY_URIS: Mapping[str, MemoryScope] = {f"memory://{scope}": scope for scope in SCOPES}

_TITLES: Mapping[MemoryScope, str] = {"global": "Global memory", "project": "Project memory"}

_DESCRIPTIONS: Mapping[MemoryScope, str] = {
    "global": "What is remembered for all projects of the user.",
    "project": "What is remembered for this project, with whatever else its file says.",
}

Run = Callable[[FunctionCall, ToolContext], Awaitable[ToolResult | Question]]
"""Runs one call that no client can name, under the rules that hold for it."""


class MemoryResources:
    """Lists and reads what is remembered.

    Args:
        files: Which files hold memories.
        todos: The todo lists of all clients.
    """

    def __init__(self, files: MemoryFiles, todos: TodoLists) -> None:
        self._files = files
        self._todos = todos

    def knows(self, uri: str) -> bool:
        """Whether a URI is one of these, whether or not it leads to something now."""
        return uri in _MEMORY_URIS or uri == TODO_LIST

    async def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        """What there is for this client now, in wire shape."""
        files = await run_blocking(context.signal, lambda: self._present(context))
        resources = [
            {
                "uri": f"memory://{file.scope}",
                "name": f"{file.scope}-memory",
                "title": _TITLES[file.scope],
                "description": _DESCRIPTIONS[file.scope],
                "mimeType": MARKDOWN,
            }
            for file in files
        ]
        if self._todos.of(context):
            todo_list = {
                "uri": TODO_LIST,
                "name": "todo-list",
                "title": "Todo list",
                "description": "The todo list that this client has written for its workspace.",
                "mimeType": JSON,
            }
            resources.append(todo_list)
        return resources

    async def read(self, uri: str, context: ToolContext, run: Run) -> ToolResult | Question:
        """The content of one of these as `contents_to_wire` takes it, a failed result, or a question that comes first.

        Args:
            uri: One that `knows` takes.
            context: Whose request it is, and where it may act.
            run: Runs the call that reads a file.
        """
        if uri == TODO_LIST:
            return self._todo_list(context)
        try:
            file = await run_blocking(context.signal, lambda: self._files.file(_MEMORY_URIS[uri], context.workspace))
        except ToolError as error:
            return ToolResult.failed(error)
        call = FunctionCall(READER, {"absolute_path": file.location.path})
        outcome = await run(call, replace(context, workspace=file.workspace))
        if isinstance(outcome, Question) or "mime_type" not in outcome.facts:
            return outcome
        return replace(outcome, facts={**outcome.facts, "mime_type": MARKDOWN})

    def _todo_list(self, context: ToolContext) -> ToolResult:
        todos = [asdict(todo) for todo in self._todos.of(context)]
        if not todos:
            missing = ToolError(ToolErrorType.FILE_NOT_FOUND, "There is no todo list now; todo_write makes one.")
            return ToolResult.failed(missing)
        text = json.dumps({"todos": todos}, ensure_ascii=False, indent=2)
        return ToolResult(llm_content=text, facts={"mime_type": JSON})

    def _present(self, context: ToolContext) -> list[MemoryFile]:
        from tools.filesystem.descriptors import PathKind  # noqa: PLC0415
        from tools.filesystem.ignore_files import is_hidden_target  # noqa: PLC0415 - starting up does not need it

        found: list[MemoryFile] = []
        for scope in SCOPES:
            try:
                file = self._files.file(scope, context.workspace)
            except ToolError:
                continue
            if file.workspace.kind_of(file.location) is not PathKind.FILE:
                continue
            if not is_hidden_target(file.workspace, file.location, agent=True):
                found.append(file)
        return found
