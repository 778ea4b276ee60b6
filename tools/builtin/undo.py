"""The tools that list file changes and undo them: `list_changes` and `undo_change`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from tools.builtin.file_tools import author_of, change_and_report_errors
from tools.call.base_tool import READS, Behaviour, BuiltinTool, ToolContext
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.permission_subjects import Access, PathSubject, Subject, ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking

if TYPE_CHECKING:
    from tools.files.change.file_change import Author
    from tools.files.change.journal import JournaledChange
    from tools.files.change.revert import ChangeUndo

MAX_LISTED = 30  # maximum number of changes in a list
MAX_COUNTED = 1_000  # maximum number of older changes that are counted
_CHANGE, _PLAN = "undone_change", "undo_plan"  # keys in a call's memo


def _author(tool: str, context: ToolContext) -> Author:
    author = author_of(tool, context)
    if author is None:
        raise ToolError(
            ToolErrorType.EXECUTION_FAILED,
            "No changes are recorded for this client: it has no session and no token to assign them to, or there is no "
            "folder to store them in. Edit the file instead.",
        )
    return author


class ListChangesParams(ToolParams):
    before: int | None = Field(default=None, ge=1, description="Only changes before this id.")


class ListChangesTool(BuiltinTool[ListChangesParams]):
    name = "list_changes"
    title = "List changes"
    display_name = "ListChanges"
    description = "List recent file changes (history) for undo_change. Excludes changes by commands."
    kind = ToolKind.READ
    behaviour = READS
    params_model = ListChangesParams

    def get_description(self, params: ListChangesParams, context: ToolContext) -> str:
        return "List changes" if params.before is None else f"List changes before {params.before}"

    async def execute(self, params: ListChangesParams, context: ToolContext) -> ToolResult:
        author = _author(self.name, context)

        def list_recorded() -> ToolResult:
            from tools.files.change.revert import (  # noqa: PLC0415 - loaded on first use
                NOT_COVERED,
                change_as_json,
                describe_changes,
            )

            is_own = author.journal.is_own
            found = author.journal.changes(
                author.client, context.workspace.roots, limit=MAX_LISTED + MAX_COUNTED, before=params.before
            )
            changes, older = found[:MAX_LISTED], len(found[MAX_LISTED:])
            lines = describe_changes(changes, context.workspace, is_own)
            if older:
                count = f"{older:,}{' or more' if older == MAX_COUNTED else ''}"
                lines.append(f"Older changes not shown: {count}. Continue with before={changes[-1].id}.")
            period = "" if params.before is None else f" before {params.before}"
            lines = lines or [f"No file changes{period} are recorded in this workspace."]
            structured = {
                "changes": [{**change_as_json(change, "change_id"), "own": is_own(change.id)} for change in changes],
                "older": older,
            }
            return ToolResult("\n".join([*lines, NOT_COVERED]), f"Changes: {len(changes)}", structured)

        return await run_blocking(context.signal, list_recorded)


class UndoParams(ToolParams):
    change_id: int | None = Field(
        default=None, ge=1, description="From list_changes; by default the last one not undone."
    )


class UndoChangeTool(BuiltinTool[UndoParams]):
    """Undoes one change. The permission rules for editing the file apply. Each call looks up the change only once."""

    name = "undo_change"
    title = "Undo change"
    display_name = "UndoChange"
    description = "Undo (revert, restore) a change by a tool such as edit, if the file has not changed since."
    kind = ToolKind.EDIT
    behaviour = Behaviour(read_only=False, destructive=True, idempotent=False)
    params_model = UndoParams
    parameter_aliases = {"id": "change_id"}  # noqa: RUF012 - declared as a Mapping

    def get_description(self, params: UndoParams, context: ToolContext) -> str:
        return "Undo the last change" if params.change_id is None else f"Undo change {params.change_id}"

    def subjects(self, params: UndoParams, context: ToolContext) -> Sequence[Subject]:
        change = self._change(params, context)
        return (PathSubject(Access.WRITE, change.path, change.path),)

    async def should_confirm_execute(self, params: UndoParams, context: ToolContext) -> ConfirmationDetails:
        def preview() -> ConfirmationDetails:
            plan = self._plan(params, context)
            context.memo[_PLAN] = (params, plan)
            return plan.confirmation("")

        return await run_blocking(context.signal, preview)

    async def execute(self, params: UndoParams, context: ToolContext) -> ToolResult:
        from tools.files.change.file_change import make_change  # noqa: PLC0415 - loaded on first use

        def make() -> ToolResult:
            plan: ChangeUndo = context.kept(_PLAN, params) or self._plan(params, context)
            return make_change(
                plan.target,
                lambda _text, _is_users: self._plan(params, context),
                "",
                planned=plan,
                answer=None,
                confirmed_state=context.confirmed.state if context.confirmed is not None else None,
            )

        change: JournaledChange | None = context.memo.get(_CHANGE, (None, None))[1]
        is_inside = change is not None and context.workspace.holds(change.path)
        return await change_and_report_errors(
            context, context.workspace.at(change.path) if change is not None and is_inside else None, make
        )

    def _change(self, params: UndoParams, context: ToolContext) -> JournaledChange:
        from tools.files.change.revert import find_change  # noqa: PLC0415 - loaded on first use

        change: JournaledChange | None = context.kept(_CHANGE, params)
        if change is None:
            author = _author(self.name, context)
            change = find_change(author.journal, author.client, context.workspace, params.change_id)
            context.memo[_CHANGE] = (params, change)
        return change

    def _plan(self, params: UndoParams, context: ToolContext) -> ChangeUndo:
        from tools.files.change.revert import plan_chosen, plan_undo, target_of  # noqa: PLC0415 - loaded on first use

        author, change = _author(self.name, context), self._change(params, context)
        if params.change_id is None:
            return plan_chosen(change, context.workspace, author, author.client, context.reads, context.signal)
        target = target_of(change, context.workspace, context.reads, context.signal, author)
        return plan_undo(target, change, author.journal, author.client)
