"""The common steps of tools that change one file: locate the file, plan the change, ask, and write."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import Field

from tools.builtin.path_parameters import check_file_path, located_subject
from tools.call.base_tool import BuiltinTool, ToolContext
from tools.contract.permission_subjects import Access, Subject, ToolKind
from tools.contract.tool_parameters import ForeignParameter, ToolParams, foreign
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking

if TYPE_CHECKING:
    from tools.contract.confirmation import ConfirmationDetails, EditConfirmation
    from tools.files.change.file_change import Author, FileChange, TargetFile
    from tools.files.workspace import Location

logger = logging.getLogger(__name__)
SHA256_PATTERN = r"^[0-9a-fA-F]{64}$"
# Limit on the old and new content kept while a person decides. A larger change is planned again after the answer.
MAX_PLAN_BYTES = 4_000_000
# Keys in a call's memo for the file's location and the planned change
_LOCATION, _PLAN = "location", "plan"

_APPEND = "To append, use edit with the last line as old_string, and that line plus the new text as new_string."
CREATE_ONLY = "To create a file but never replace one, use edit with an empty old_string."
FOREIGN_PARAMETERS: Mapping[str, ForeignParameter] = {
    "append": foreign("false", way=_APPEND),
    **dict.fromkeys(("mode", "flag", "flags"), foreign(way=f"{_APPEND} {CREATE_ONLY}")),
    **dict.fromkeys(
        ("create_only", "exclusive", "fail_if_exists", "if_not_exists", "no_clobber", "no_overwrite"),
        foreign("false", way=CREATE_ONLY),
    ),
    **dict.fromkeys(
        ("create_dirs", "create_directories", "create_parents", "create_if_missing", "mkdir", "parents"),
        foreign("true", way="Missing folders are created. Check with list_directory whether one exists."),
    ),
    **dict.fromkeys(
        ("insert_line", "insert_at", "line", "line_number", "start_line", "end_line", "position", "view_range"),
        foreign(
            way="edit finds the place by its text: give the lines there as old_string (read_file shows them), and the "
            "replacement as new_string."
        ),
    ),
}


class ChangeParams(ToolParams):
    file_path: str = Field(description="Absolute, or relative to the workspace.")


ChangeParamsT = TypeVar("ChangeParamsT", bound=ToolParams)


def author_of(tool: str, context: ToolContext) -> Author | None:
    """Return the author to record in the journal, or `None` if changes are not recorded."""
    from tools.files.change.file_change import Author  # noqa: PLC0415 - loaded on first use
    from tools.files.change.journal import client_name  # noqa: PLC0415 - loaded on first use

    if context.services.journal is None or context.client.is_anonymous:
        return None
    return Author(context.services.journal(), client_name(context.client.key), tool)


async def change_and_tell_errors(
    context: ToolContext, location: Location | None, make: Callable[[], ToolResult]
) -> ToolResult:
    """Change a file in a thread. If a language server is running for the file, add new errors to the result."""
    code, awaited, new_errors = context.services.code(), None, ""
    if code is not None and location is not None and not location.in_scratch:
        try:
            awaited = await code.before_change(context.workspace, context.rights, location)
        except Exception:  # a language server's failure must not prevent the change
            logger.exception("a language server could not check a file before a change")
    result = await run_blocking(context.signal, make)
    if awaited is not None:
        try:
            new_errors = await awaited.told()
        except Exception:
            logger.exception("a language server could not report the errors after a change")
    if not new_errors:
        return result
    structured = dict(result.structured or {})
    structured["notes"] = [*structured.get("notes", ()), new_errors]
    return replace(result, llm_content=f"{result.llm_content}\n{new_errors}", structured=structured)


class ChangingTool(BuiltinTool[ChangeParamsT], Generic[ChangeParamsT]):
    """Base class of tools that write one file.

    The path is resolved once, and exactly the change that the user saw is made.
    """

    kind = ToolKind.EDIT

    path_parameter = "file_path"
    text_parameter: str  # the parameter whose text a person may replace when asked for consent

    @abstractmethod
    def plan(self, params: ChangeParamsT, target: TargetFile, text: str, *, is_users: bool) -> FileChange:
        """Plan the change to the file's current content, with `text` as the value of the text parameter.

        This blocks the thread and writes nothing. `is_users` is true if a person wrote the text. Raises a `ToolError`
        if the change is impossible.
        """

    def check(self, params: ChangeParamsT, spelled: Mapping[str, str]) -> None:
        check_file_path(self.name, self._path(params), spelled.get(self.path_parameter, self.path_parameter))

    def _path(self, params: ChangeParamsT) -> str:
        return getattr(params, self.path_parameter)

    def _proposed(self, params: ChangeParamsT) -> str:
        return getattr(params, self.text_parameter) or ""

    def subjects(self, params: ChangeParamsT, context: ToolContext) -> Sequence[Subject]:
        location = context.workspace.locate(self._path(params))
        context.workspace.refuse_to_write(location)
        context.memo[_LOCATION] = (params, location)
        return (located_subject(context.workspace, location, Access.WRITE),)

    async def should_confirm_execute(self, params: ChangeParamsT, context: ToolContext) -> ConfirmationDetails:
        """Show the change as a diff against the current content. An impossible change raises an error instead."""
        proposed = self._proposed(params)

        def preview() -> EditConfirmation:
            change = self.plan(params, self._target(params, context), proposed, is_users=False)
            if change.held_bytes <= MAX_PLAN_BYTES:
                context.memo[_PLAN] = (params, change)
            return change.question(proposed)

        return await run_blocking(context.signal, preview)

    async def execute(self, params: ChangeParamsT, context: ToolContext) -> ToolResult:
        """Change the file while other writers are locked out."""
        from tools.files.change.file_change import make_change  # noqa: PLC0415 - loaded on first use

        planned: FileChange | None = context.kept(_PLAN, params)

        def make() -> ToolResult:
            target = self._target(params, context)
            return make_change(
                target,
                lambda text, is_users: self.plan(params, target, text, is_users=is_users),
                self._proposed(params),
                planned=planned,
                answer=context.answer,
                confirmed_state=context.confirmed.state if context.confirmed is not None else None,
            )

        location: Location | None = context.memo.get(_LOCATION, (None, None))[1]
        return await change_and_tell_errors(context, location, make)

    def _target(self, params: ChangeParamsT, context: ToolContext) -> TargetFile:
        """Return the file that was located for the permission check.

        A symlink that appeared since then is not followed.
        """
        from tools.files.change.file_change import TargetFile  # noqa: PLC0415 - loaded on first use

        location: Location = context.kept(_LOCATION, params) or context.workspace.locate(self._path(params))
        return TargetFile(
            context.workspace,
            location,
            context.reads,
            context.signal,
            None if location.in_scratch else author_of(self.name, context),
            [job.id for job in context.client.jobs.running()] if context.client.jobs is not None else (),
        )


# The output properties of every tool that changes a file; each tool adds its own properties
COMMON_OUTPUT: dict[str, dict[str, Any]] = {
    "path": {"type": "string", "description": "Real path of the file."},
    "created": {"type": "boolean", "description": "The file did not exist before."},
    "added": {"type": "integer", "description": "Lines added."},
    "removed": {"type": "integer", "description": "Lines removed."},
    "bytes": {"type": "integer", "description": "Size of the file now."},
    "encoding": {"type": "string"},
    "eol": {"type": ["string", "null"], "description": "lf, crlf, cr or mixed; null if there is no line ending."},
    "sha256": {"type": "string", "description": "Digest of the file now; usable as expected_sha256."},
    "links_broken": {"type": "integer", "description": "Hard links that keep the old content."},
    "user_modified": {"type": "boolean", "description": "The user changed the text before it was written."},
    "notes": {"type": "array", "items": {"type": "string"}, "description": "Further remarks."},
    "diff": {"type": "string", "description": "The final change if the user modified it, else empty."},
}
