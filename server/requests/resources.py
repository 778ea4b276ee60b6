"""What is remembered, as resources: the memory files, and the todo list of the client that asks.

Loading memories into a conversation is the client's part; this is how it gets them. A memory file is read through the
flow, as any file of the workspace is, under the rules for `read_file`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from server.exposure import encodable
from server.file_uris import FILE_TEMPLATE, MAX_URI_CHARS, UriRefusedError, path_of_uri
from tools.call.context import ToolContext
from tools.contract.confirmation import Question
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.results import FunctionCall, ToolFailure, ToolResult
from tools.contract.threads import run_blocking
from tools.memory.memory_files import SCOPES, MemoryFile, MemoryFiles, MemoryScope
from tools.planning.todo_lists import TodoLists

READER = "read_file"
"""The tool whose rules hold for reading a resource."""

TEMPLATE: dict[str, Any] = {
    "uriTemplate": FILE_TEMPLATE,
    "name": "workspace-file",
    "title": "File of the workspace",
    "description": "A file by its absolute path. Texts come within the limits of read_file, other files as bytes.",
}

RESOURCE_NOT_FOUND = -32002
"""What the handshake revisions of the specification say of an unknown resource; 2026-07-28 says invalid params."""

_NOT_FOUND = frozenset(
    {
        ToolErrorType.FILE_NOT_FOUND,
        ToolErrorType.PATH_NOT_IN_WORKSPACE,
        ToolErrorType.PATH_IGNORED,
        ToolErrorType.TARGET_IS_DIRECTORY,
        ToolErrorType.READ_CONTENT_FAILURE,
    }
)
"""For this server there is no such resource, whatever is at the path."""

_OURS = frozenset({ToolErrorType.EXECUTION_FAILED, ToolErrorType.CANCELLED})


def call_of(uri: str) -> FunctionCall:
    """The call that reads a resource.

    Raises:
        MCPError: The URI means no file.
    """
    try:
        return FunctionCall(READER, {"absolute_path": path_of_uri(uri)})
    except UriRefusedError as error:
        raise MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": _shown(uri)}) from None


def read_error(uri: str, failure: ToolFailure, protocol_version: str) -> MCPError:
    """A failed read as the protocol says it; a resource has no result that tells of a failure."""
    code = types.INVALID_PARAMS
    if failure.code in _OURS:
        code = types.INTERNAL_ERROR
    elif failure.code in _NOT_FOUND and protocol_version not in MODERN_PROTOCOL_VERSIONS:
        code = RESOURCE_NOT_FOUND
    data = {"uri": _shown(uri), "type": failure.code.value}
    return MCPError(code=code, message=encodable(failure.message), data=data)


def _shown(uri: str) -> str:
    return encodable(uri[:MAX_URI_CHARS])


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
        if self._todos.of(context.client.key, context.workspace):
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
        todos = [asdict(todo) for todo in self._todos.of(context.client.key, context.workspace)]
        if not todos:
            missing = ToolError(ToolErrorType.FILE_NOT_FOUND, "There is no todo list now; todo_write makes one.")
            return ToolResult.failed(missing)
        text = json.dumps({"todos": todos}, ensure_ascii=False, indent=2)
        return ToolResult(llm_content=text, facts={"mime_type": JSON})

    def _present(self, context: ToolContext) -> list[MemoryFile]:
        from tools.files.ignore_files import is_hidden_target  # noqa: PLC0415 - starting up does not need it
        from tools.files.opener import PathKind  # noqa: PLC0415

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
