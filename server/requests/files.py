"""Prompts, resources and completion over the files of the workspace: the requests, and what runs for them.

Everything that is read or listed goes through the flow: under the name of the tool whose rules hold for it, with the
same workspace, limits and consent. What is not built in, because the tools are switched off, is not announced either.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from server.clients import RequestContext, TooManyCallsError
from server.consent.confirmers import Confirmers
from server.exposure import complete, completion_to_wire, contents_to_wire, prompt_to_wire
from server.requests.prompts import AT, AT_PROMPT, PATHS, Runner, read_at
from server.requests.resources import MemoryResources
from tools.call.context import ToolContext
from tools.call.flow import Flow
from tools.call.registry import ToolRegistry
from tools.contract.confirmation import Confirmer, Question, Unavailable
from tools.contract.errors import ToolError
from tools.contract.results import FunctionCall, ToolResult

logger = logging.getLogger(__name__)

ContextOf = Callable[[RequestContext], Awaitable[ToolContext]]
AtWork = Callable[[RequestContext], AbstractContextManager[None]]
Wire = dict[str, Any]

_LISTED: Wire = {"ttlMs": 0, "cacheScope": "private"}
"""Lists depend on what the operator configured."""


class FileFeatures:
    """Answers requests for prompts, resources and completion.

    Args:
        flow: Where calls run.
        context_of: Whose request it is, and where it may act.
        at_work: Counts a request as a call of its client is counted.
        confirmers: Ask for consent where a rule demands it.
        remembered: What is remembered; it comes beside the files.
    """

    def __init__(
        self,
        flow: Flow,
        context_of: ContextOf,
        at_work: AtWork,
        confirmers: Confirmers,
        remembered: MemoryResources,
    ) -> None:
        self._flow = flow
        self._context_of = context_of
        self._at_work = at_work
        self._confirmers = confirmers
        self._remembered = remembered

    def register(self, server: Server[Any]) -> None:
        """Add the handlers for what the tools that are there make possible; the SDK announces what has one."""
        names = {tool.name for tool in self._flow.registry.get_all_tools()}
        has_prompt, has_files = "read_many_files" in names, "read_file" in names
        page = types.PaginatedRequestParams
        if has_prompt:
            server.add_request_handler("prompts/list", page, self._guarded(self._list_prompts))
            server.add_request_handler("prompts/get", types.GetPromptRequestParams, self._guarded(self._get_prompt))
        if has_files:
            server.add_request_handler("resources/list", page, self._guarded(self._list_resources))
            server.add_request_handler("resources/templates/list", page, self._guarded(self._list_templates))
            server.add_request_handler(
                "resources/read", types.ReadResourceRequestParams, self._guarded(self._read_resource)
            )
        if "list_directory" in names and (has_prompt or has_files):
            server.add_request_handler(
                "completion/complete", types.CompleteRequestParams, self._guarded(self._complete)
            )

    @cached_property
    def _unpublished(self) -> Flow:
        """The flow for calls that no client can name: the tools in it carry the names whose rules they keep."""
        from tools.builtin.complete_path import CompletePathTool  # noqa: PLC0415 - starting up does not need them
        from tools.builtin.file_resource import FileResourceTool  # noqa: PLC0415

        registry = ToolRegistry()
        for tool in (CompletePathTool(), FileResourceTool()):
            registry.register_tool(tool)
        return Flow(registry, self._flow.policy)

    async def _list_prompts(self, ctx: RequestContext, params: types.PaginatedRequestParams) -> Wire:
        del params
        return complete({"prompts": [AT_PROMPT], **_LISTED}, ctx.protocol_version)

    async def _get_prompt(self, ctx: RequestContext, params: types.GetPromptRequestParams) -> Wire:
        if params.name != AT:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt. This server has one: {AT}.")
        context = await self._context_of(ctx)
        run = _runner(self._flow, context, self._confirmer(ctx, params, context))
        outcome = await read_at(params.arguments, context, run)
        if isinstance(outcome, Question):
            return self._confirmers.input_required(outcome, context.client.key, ctx.protocol_version)
        read = len(outcome.facts["files"])
        description = f"Content of {read} {'file' if read == 1 else 'files'}"
        return prompt_to_wire(description, "read_many_files", outcome, ctx.protocol_version)

    async def _list_resources(self, ctx: RequestContext, params: types.PaginatedRequestParams) -> Wire:
        """What is remembered. A workspace may hold a hundred thousand files; the template reaches each of them."""
        del params
        resources = await self._remembered.listed(await self._context_of(ctx))
        return complete({"resources": resources, **_LISTED}, ctx.protocol_version)

    async def _list_templates(self, ctx: RequestContext, params: types.PaginatedRequestParams) -> Wire:
        from server.requests.resources import TEMPLATE  # noqa: PLC0415 - starting up does not need it

        del params
        return complete({"resourceTemplates": [TEMPLATE], **_LISTED}, ctx.protocol_version)

    async def _read_resource(self, ctx: RequestContext, params: types.ReadResourceRequestParams) -> Wire:
        from server.requests.resources import call_of, read_error  # noqa: PLC0415 - starting up does not need it

        call = None if self._remembered.knows(params.uri) else call_of(params.uri)
        context = await self._context_of(ctx)
        confirmer = self._confirmer(ctx, params, context)

        async def run(call: FunctionCall, context: ToolContext) -> ToolResult | Question:
            return await self._unpublished.run(call, context, confirmer)

        outcome = await (self._remembered.read(params.uri, context, run) if call is None else run(call, context))
        if isinstance(outcome, Question):
            return self._confirmers.input_required(outcome, context.client.key, ctx.protocol_version)
        if outcome.error is not None:
            raise read_error(params.uri, outcome.error, ctx.protocol_version)
        return contents_to_wire(params.uri, outcome, ctx.protocol_version)

    async def _complete(self, ctx: RequestContext, params: types.CompleteRequestParams) -> Wire:
        from server.file_uris import FILE_TEMPLATE  # noqa: PLC0415
        from server.requests.completion import complete_line, complete_template  # noqa: PLC0415 - starting up does not need it

        ref, name, value = params.ref, params.argument.name, params.argument.value
        if isinstance(ref, types.PromptReference):
            is_known, completer = (ref.name, name) == (AT, PATHS), complete_line
        else:
            # Some clients take the operator of the expression for a part of the variable's name.
            is_known = ref.uri == FILE_TEMPLATE and name.removeprefix("+") == "path"
            completer = complete_template
        if not is_known:
            message = f"Nothing to complete: known are '{PATHS}' of the prompt {AT} and 'path' of {FILE_TEMPLATE}."
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        context = await self._context_of(ctx)
        try:
            _ = context.workspace.first_root
        except ToolError as error:
            data = {"type": error.code.value}
            raise MCPError(code=types.INVALID_PARAMS, message=error.message, data=data) from None
        run = _runner(self._unpublished, context, _NobodyIsAsked())
        found = await completer(value, context.workspace.roots, run)
        total = None if found.partial else found.total
        return completion_to_wire(found.values, total, has_more=found.has_more, version=ctx.protocol_version)

    def _confirmer(
        self, ctx: RequestContext, params: types.InputResponseRequestParams, context: ToolContext
    ) -> Confirmer:
        return self._confirmers.of(ctx, params, context.client.key)

    def _guarded(
        self, handler: Callable[[RequestContext, Any], Awaitable[Wire]]
    ) -> Callable[[RequestContext, Any], Any]:
        """The handler with nothing of an unexpected exception told to the client; the SDK would tell its text."""

        async def guarded(ctx: RequestContext, params: Any) -> Mapping[str, Any]:
            try:
                with self._at_work(ctx):
                    return await handler(ctx, params)
            except MCPError:
                raise
            except TooManyCallsError as error:
                raise MCPError(code=types.INVALID_REQUEST, message=error.message) from None
            except Exception as error:
                logger.exception("%s raised %s", ctx.method, type(error).__name__)
                message = "The request failed because of an internal error; the server's log has the details."
                raise MCPError(code=types.INTERNAL_ERROR, message=message) from None

        return guarded


class _NobodyIsAsked:
    """Nobody wants a question with every key: what would have to be asked for is not proposed."""

    async def ask(self, question: Question) -> Unavailable:
        del question
        return Unavailable(client_decides=False, way_out="")


def _runner(flow: Flow, context: ToolContext, confirmer: Confirmer) -> Runner:
    async def run(call: FunctionCall) -> ToolResult | Question:
        return await flow.run(call, context, confirmer)

    return run
