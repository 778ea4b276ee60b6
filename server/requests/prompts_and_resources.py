"""Prompts, resources and completion for workspace files, and memories as resources.

The `at` prompt adds files to the conversation of any client, like `@` in Qwen Code and Gemini CLI. Clients get memories
as resources, and load them into conversations themselves.

Clients' requests to read a file or to complete a path go through the call flow, under the name of the tool whose rules
apply, and with the same workspace, limits and consent as a call to that tool. Completion never asks for consent. If the
built-in tools are off, this server offers no prompts, resources or completion of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from server.clients.client_request import rights_of
from server.protocol.file_uris import FILE_TEMPLATE, MAX_URI_CHARS, UriRefusedError, path_of_uri
from server.protocol.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, MCPError, as_mapping
from server.protocol.request_table import NEVER_CACHED, Handler, RequestContext, RequestTable
from server.questions.client_confirmer import ClientConfirmer, ConsentPolicy
from server.requests.call_contexts import TooManyCallsError
from server.requests.wire_results import contents_to_wire, prompt_to_wire
from tools.builtin.todo_write import TodoLists
from tools.call.base_tool import ToolContext
from tools.call.consent import refuse
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.confirmation import Question, Unavailable
from tools.contract.tool_errors import ExecutionDeniedError, ToolError, ToolErrorType
from tools.contract.tool_results import FunctionCall, TextPart, ToolResult, package
from tools.machine.threads import run_blocking
from tools.machine.unlocked_cached_property import cached_property
from tools.memory.memory_files import SCOPES, MemoryFile, MemoryFiles, MemoryScope
from tools.permissions.verdict import Permission

if TYPE_CHECKING:
    from server.requests.completion_requests import Runner

RunIn = Callable[[FunctionCall, ToolContext], Awaitable[ToolResult | Question]]
"""Runs an internal call under the rules of the tool that it corresponds to."""
Wire = dict[str, Any]
READER = "read_file"  # the tool whose rules apply to reading a resource
MANY_READER = "read_many_files"  # the tool that reads files for the `at` prompt

AT = "at"
PATHS = "paths"
MAX_ERROR_CHARS = 2_000  # maximum length of the prompt's error message, which clients show in a line or a box
AT_PROMPT: Wire = {
    "name": AT,
    "title": "Files (@)",
    "description": "Add the content of files to the conversation, like @ in Qwen Code and Gemini CLI.",
    "arguments": [
        {
            "name": PATHS,
            "title": "Paths",
            "description": "Files, folders or globs, separated by spaces or commas: README.md src/**/*.py. Put a "
            'path with spaces in quotes: "my notes.txt". An @ before a path is allowed.',
            "required": True,
        }
    ],
}

TEMPLATE: Wire = {
    "uriTemplate": FILE_TEMPLATE,
    "name": "workspace-file",
    "title": "Workspace file",
    "description": "A file by its absolute path. Text is truncated at the limits of read_file; any other file is "
    "returned whole, as bytes.",
}

RESOURCE_NOT_FOUND = -32002  # in the handshake revisions; the 2026-07-28 revision uses `INVALID_PARAMS`

_NOT_OF_THE_CLIENT = frozenset(
    {ToolErrorType.EXECUTION_FAILED, ToolErrorType.CANCELLED, ToolErrorType.STORE_UNAVAILABLE}
)

_NOT_FOUND = frozenset(
    {
        ToolErrorType.FILE_NOT_FOUND,
        ToolErrorType.PATH_NOT_IN_WORKSPACE,
        ToolErrorType.PATH_IGNORED,
        ToolErrorType.TARGET_IS_DIRECTORY,
        ToolErrorType.READ_CONTENT_FAILURE,
    }
)
"""Failures that clients receive as the error `RESOURCE_NOT_FOUND`, except in the 2026-07-28 revision."""

TODO_LIST = "todo://list"
MARKDOWN = "text/markdown"
JSON = "application/json"
_MEMORY_URIS: Mapping[str, MemoryScope] = {f"memory://{scope}": scope for scope in SCOPES}

_DESCRIPTIONS: Mapping[MemoryScope, str] = {
    "global": "The user's memory for all projects.",
    "project": "The memory for this project, and everything else in the memory file.",
}


@dataclass(frozen=True)
class FileRequests:
    """Answers requests for prompts, resources and completion."""

    runner: ToolRunner
    context_of: Callable[[RequestContext], Awaitable[ToolContext]]
    at_work: Callable[[RequestContext], AbstractContextManager[Any]]
    consent: ConsentPolicy
    memory_resources: MemoryResources

    def register(self, table: RequestTable) -> None:
        """Add the handlers that the available tools make possible."""
        names = {tool.name for tool in self.runner.registry.get_all_tools()}
        has_prompt, has_files = MANY_READER in names, READER in names
        handlers: dict[str, Handler] = {}
        if has_prompt:
            handlers |= {"prompts/list": self._list_prompts, "prompts/get": self._get_prompt}
        if has_files:
            handlers["resources/list"] = self._list_resources
            handlers["resources/templates/list"] = self._list_templates
            handlers["resources/read"] = self._read_resource
        if "list_directory" in names and (has_prompt or has_files):
            handlers["completion/complete"] = self._complete
        for method, handler in handlers.items():
            table.add(method, partial(self._at_work, handler))

    async def _at_work(self, handler: Handler, ctx: RequestContext) -> Mapping[str, Any]:
        try:
            with self.at_work(ctx):
                return await handler(ctx)
        except TooManyCallsError as error:
            raise MCPError(INVALID_REQUEST, error.message) from None

    def _why_not_offered(self, tool_name: str, ctx: RequestContext) -> Permission | None:
        """Return the verdict that hides a tool's prompt or resources from a client; `None` if they are not hidden."""
        tool = self.runner.registry.find(tool_name)
        return None if tool is None else self.runner.policy.why_not_offered(tool.traits, rights_of(ctx))

    async def _list_prompts(self, ctx: RequestContext) -> Wire:
        return {"prompts": [] if self._why_not_offered(MANY_READER, ctx) else [AT_PROMPT], **NEVER_CACHED}

    async def _get_prompt(self, ctx: RequestContext) -> Wire:
        params = ctx.params or {}
        if params["name"] != AT:
            raise MCPError(INVALID_PARAMS, "Unknown prompt. Use the exact names listed.")
        context = await self.context_of(ctx)
        confirmer = ClientConfirmer(self.consent, ctx, context.client.key)
        outcome = await read_at(
            params.get("arguments"), context, lambda call: self.runner.run(call, context, confirmer)
        )
        if isinstance(outcome, Question):
            return self.consent.input_required(outcome, context.client.key, ctx.connection.protocol_version)
        file_count = len(outcome.facts["files"])
        description = f"Content of {file_count} {'file' if file_count == 1 else 'files'}"
        return prompt_to_wire(description, MANY_READER, outcome, ctx.connection.protocol_version)

    async def _list_resources(self, ctx: RequestContext) -> Wire:
        """List memories and todos. Files are reached through the template, because there may be 100,000 of them."""
        is_open = self._why_not_offered(READER, ctx) is None
        resources = await self.memory_resources.list_resources(await self.context_of(ctx)) if is_open else []
        return {"resources": resources, **NEVER_CACHED}

    async def _list_templates(self, ctx: RequestContext) -> Wire:
        return {"resourceTemplates": [] if self._why_not_offered(READER, ctx) else [TEMPLATE], **NEVER_CACHED}

    async def _read_resource(self, ctx: RequestContext) -> Wire:
        uri, call = str((ctx.params or {})["uri"]), None
        uri_data = {"uri": uri[:MAX_URI_CHARS]}
        if not self.memory_resources.knows(uri):
            try:
                call = FunctionCall(READER, {"absolute_path": path_of_uri(uri)})
            except UriRefusedError as error:
                raise MCPError(INVALID_PARAMS, str(error), data=uri_data) from None
        context = await self.context_of(ctx)
        confirmer = ClientConfirmer(self.consent, ctx, context.client.key)

        async def run(call: FunctionCall, context: ToolContext) -> ToolResult | Question:
            return await self._internal_runner.run(call, context, confirmer)

        try:
            if call is None and (verdict := self._why_not_offered(READER, ctx)) is not None:
                refuse(verdict)
            outcome = await (self.memory_resources.read(uri, context, run) if call is None else run(call, context))
        except ExecutionDeniedError as error:
            outcome = ToolResult.failed(error)
        if isinstance(outcome, Question):
            return self.consent.input_required(outcome, context.client.key, ctx.connection.protocol_version)
        if (failure := outcome.error) is not None:
            # A resource result cannot report a failure, so the failure becomes a protocol error.
            code = INVALID_PARAMS
            if failure.code in _NOT_OF_THE_CLIENT:
                code = INTERNAL_ERROR
            elif failure.code in _NOT_FOUND and not ctx.connection.is_modern:
                code = RESOURCE_NOT_FOUND
            raise MCPError(code, failure.message, {**uri_data, "type": failure.code.value})
        return contents_to_wire(uri, outcome)

    async def _complete(self, ctx: RequestContext) -> Wire:
        from server.requests.completion_requests import complete_line, complete_template  # noqa: PLC0415 - loaded on first use

        ref, argument = as_mapping((ctx.params or {})["ref"]), as_mapping((ctx.params or {})["argument"])
        name, value = str(argument["name"]), str(argument["value"])
        if ref["type"] == "ref/prompt":
            is_known, completer = (ref["name"], name) == (AT, PATHS), complete_line
        else:
            # Some clients mistake the `+` operator in the template for a part of the variable's name.
            is_known = ref["uri"] == FILE_TEMPLATE and name.removeprefix("+") == "path"
            completer = complete_template
        if not is_known:
            message = f"Nothing to complete: use '{PATHS}' of the prompt '{AT}', or 'path' of {FILE_TEMPLATE}."
            raise MCPError(INVALID_PARAMS, message)
        context = await self.context_of(ctx)
        try:
            _ = context.workspace.first_root
        except ToolError as error:
            raise MCPError(INVALID_PARAMS, error.message, {"type": error.code.value}) from None
        result = await completer(
            value, context.workspace.roots, lambda call: self._internal_runner.run(call, context, _NoQuestions())
        )
        has_more = result.partial or result.total > len(result.values)
        completion: Wire = {"values": list(result.values), "hasMore": has_more}
        return {"completion": completion if result.partial else {**completion, "total": result.total}}

    @cached_property
    def _internal_runner(self) -> ToolRunner:
        """The call flow for internal calls. Each of its tools has the name of the tool whose rules it follows."""
        from tools.builtin.internal_file_tools import (  # noqa: PLC0415 - loaded on first use
            CompletePathTool,
            FileResourceTool,
        )

        registry = ToolRegistry()
        for tool in (CompletePathTool(), FileResourceTool()):
            registry.register_tool(tool)
        return ToolRunner(registry, self.runner.policy)


async def read_at(arguments: dict[str, str] | None, context: ToolContext, run: Runner) -> ToolResult | Question:
    """Read the files that the `at` prompt names.

    Raises `MCPError`, which clients show to the user, if no file was read and no question must be asked first.
    """
    from server.requests.completion_requests import MAX_LINE_CHARS  # noqa: PLC0415 - loaded on first use
    from tools.files.find.path_suggestions import typed_paths  # noqa: PLC0415

    line = (arguments or {}).get(PATHS, "")
    if len(line) > MAX_LINE_CHARS:
        raise _refusal(
            f"'{PATHS}' has {len(line):,} characters; the maximum is {MAX_LINE_CHARS:,}. Name folders or globs."
        )
    items = typed_paths(line)
    if not items:
        raise _refusal(f"'{PATHS}' is required: files, folders or globs, separated by spaces or commas.")
    if items[-1].is_open:
        raise _refusal(f"The quote before '{items[-1].path[:80]}' is not closed.")
    paths: list[str] = []
    uri_paths: list[str] = []
    for item in items:
        path = item.path
        if path.lower().startswith("file://"):
            try:
                path = path_of_uri(path)
            except UriRefusedError as error:
                raise _refusal(str(error)) from None
            uri_paths.append(path)
        paths.append(path)
    if uri_paths:
        # A person typed these URIs, so their paths are taken literally: an approximate match could read other files.
        try:
            await run_blocking(context.signal, lambda: [context.workspace.locate_exactly(path) for path in uri_paths])
        except ToolError as error:
            raise _refusal(error.message, error.code.value) from None
    outcome = await run(FunctionCall(MANY_READER, {"paths": paths}))
    if len(paths) > 1 and isinstance(outcome, ToolResult) and not outcome.facts.get("files"):
        # Some clients remove quotes from the argument, so spaces in the argument may belong to a single path.
        single_outcome = await run(FunctionCall(MANY_READER, {"paths": [line.strip().removeprefix("@")]}))
        if isinstance(single_outcome, ToolResult) and single_outcome.facts.get("files"):
            outcome = single_outcome
    if isinstance(outcome, Question):
        return outcome
    # If no file was read, the client shows the text that the model would have received.
    if outcome.error is not None:
        raise _refusal(outcome.error.message, outcome.error.code.value)
    if not outcome.facts.get("files"):
        text = "\n".join(part.text for part in package(MANY_READER, outcome).parts if isinstance(part, TextPart))
        raise _refusal(text, "nothing_read")
    return outcome


def _refusal(message: str, kind: str | None = None) -> MCPError:
    return MCPError(INVALID_PARAMS, message[:MAX_ERROR_CHARS], None if kind is None else {"type": kind})


class _NoQuestions:
    """Answers all questions with `Unavailable`, because completion must not ask a person on every keystroke."""

    async def ask(self, question: Question) -> Unavailable:
        del question
        return Unavailable(client_decides=False, way_out="")


@dataclass(frozen=True, slots=True)
class MemoryResources:
    files: MemoryFiles
    todos: TodoLists

    def knows(self, uri: str) -> bool:
        """Return whether a URI is that of a memory or of the todo list, even if the memory or list is empty now."""
        return uri in _MEMORY_URIS or uri == TODO_LIST

    async def list_resources(self, context: ToolContext) -> list[dict[str, Any]]:
        files = await run_blocking(context.signal, lambda: self._existing_files(context))
        resources = [
            {
                "uri": f"memory://{file.scope}",
                "name": f"{file.scope}-memory",
                "title": f"{file.scope.capitalize()} memory",
                "description": _DESCRIPTIONS[file.scope],
                "mimeType": MARKDOWN,
            }
            for file in files
        ]
        if self.todos.read(context.client.key, context.workspace):
            texts = {"title": "Todo list", "description": "The todo list that this client wrote for its workspace."}
            resources.append({"uri": TODO_LIST, "name": "todo-list", **texts, "mimeType": JSON})
        return resources

    async def read(self, uri: str, context: ToolContext, run: RunIn) -> ToolResult | Question:
        """Return a resource's content for `contents_to_wire`, a failed result, or a question to ask first."""
        if uri == TODO_LIST:
            todos = [todo.model_dump() for todo in self.todos.read(context.client.key, context.workspace)]
            if not todos:
                message = "There is no todo list now; todo_write creates one."
                return ToolResult.failed(ToolError(ToolErrorType.FILE_NOT_FOUND, message))
            text = json.dumps({"todos": todos}, ensure_ascii=False, indent=2)
            return ToolResult(llm_content=text, facts={"mime_type": JSON})

        def find() -> MemoryFile:
            file = self.files.file(_MEMORY_URIS[uri], context.workspace)
            if not os.path.lexists(file.location.path):
                message = f"There is no {file.scope} memory yet; save_memory creates one."
                raise ToolError(ToolErrorType.FILE_NOT_FOUND, message)
            return file

        try:
            file = await run_blocking(context.signal, find)
        except ToolError as error:
            return ToolResult.failed(error)
        call = FunctionCall(READER, {"absolute_path": file.location.path})
        outcome = await run(call, replace(context, workspace=file.workspace))
        if isinstance(outcome, Question) or "mime_type" not in outcome.facts:
            return outcome
        return replace(outcome, facts={**outcome.facts, "mime_type": MARKDOWN})

    async def read_all(self, context: ToolContext) -> list[tuple[str, str]]:
        """Return titles and texts of memories and todos for the dashboard; this does not count as a client's read."""

        def read() -> list[tuple[str, str]]:
            texts: list[tuple[str, str]] = []
            for file in self._existing_files(context):
                with suppress(ToolError), file.workspace.open_file(file.location) as reader:
                    text = reader.whole(context.signal).decode("utf-8", "replace")
                    texts.append((f"{file.scope.capitalize()} memory", text))
            return texts

        texts = await run_blocking(context.signal, read)
        todos = self.todos.read(context.client.key, context.workspace)
        if todos:
            texts.append(("Todo list", "\n".join(f"[{todo.status}] {todo.content}" for todo in todos)))
        return texts

    def _existing_files(self, context: ToolContext) -> list[MemoryFile]:
        from tools.files.ignore_files import is_hidden_target  # noqa: PLC0415 - loaded on first use
        from tools.files.path_opener import PathKind  # noqa: PLC0415

        files: list[MemoryFile] = []
        for scope in SCOPES:
            try:
                file = self.files.file(scope, context.workspace)
            except ToolError:
                continue
            if file.workspace.kind_of(file.location) is not PathKind.FILE:
                continue
            if not is_hidden_target(file.workspace, file.location, agent=True):
                files.append(file)
        return files
