"""The completion of a path as a call: the rules for `list_directory` decide whether the names may be shown.

It is not published. The server runs it for a client that completes an argument, through the same flow as every call.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from tools.builtin.path_parameters import path_subject, shown
from tools.call.base_tool import READS, BuiltinTool
from tools.call.context import ToolContext
from tools.contract.parameters import ToolParams
from tools.contract.permission_subjects import Access, Kind, Subject
from tools.contract.results import ToolResult
from tools.contract.threads import run_blocking
from tools.files.find.path_completion import entries_that_start_with, files_that_hold

MAX_VALUES = 100  # values of one completion; the protocol allows no more


class CompletePathParams(ToolParams):
    path: str = Field(description="The folder.")
    start: str = Field(description="The beginning of a name in it; with below, a part of a name.")
    below: bool = Field(default=False, description="Look for files in the folders below as well.")


class CompletePathTool(BuiltinTool[CompletePathParams]):
    """Lists what a path may become; the facts of its result are `names`, `total` and `partial`."""

    name = "list_directory"
    display_name = "CompletePath"
    description = "What a path that is being typed may become."
    kind = Kind.SEARCH
    behaviour = READS
    params_model = CompletePathParams

    def get_description(self, params: CompletePathParams, context: ToolContext) -> str:
        return f"Complete a path in {shown(params.path, context.workspace)}"

    def subjects(self, params: CompletePathParams, context: ToolContext) -> Sequence[Subject]:
        return (path_subject(context.workspace, params.path, Access.READ),)

    async def execute(self, params: CompletePathParams, context: ToolContext) -> ToolResult:
        def complete() -> ToolResult:
            folder = context.workspace.locate(params.path)
            find = files_that_hold if params.below else entries_that_start_with
            found = find(context.workspace, folder, params.start, MAX_VALUES, context.signal)
            return ToolResult(facts={"names": found.names, "total": found.total, "partial": found.partial})

        return await run_blocking(context.signal, complete)
