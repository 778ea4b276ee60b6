"""`save_memory`: saves a fact for later conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from tools.builtin.file_tools import author_of
from tools.call.base_tool import Behaviour, BuiltinTool, ToolContext
from tools.contract.confirmation import EditConfirmation
from tools.contract.permission_subjects import Access, PathSubject, Subject, ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ForeignParameter, ToolParams
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking
from tools.memory.memory_files import MemoryFiles, MemoryScope
from tools.text.file_names import brief

if TYPE_CHECKING:
    from tools.files.change.file_change import TargetFile

MAX_FACT_CHARS = 1_500  # the result repeats the fact and must stay below 8 kB in any writing system
# Key in a call's memo, set if no question was needed because the file already contained the fact
ALREADY_SAVED = "memory_held_already"


class SaveMemoryParams(ToolParams):
    fact: str = Field(max_length=MAX_FACT_CHARS, description="A short sentence, clear on its own.")
    scope: MemoryScope | None = Field(
        default=None, description="project: for this workspace (the default if there is one); global: for all projects."
    )


class MemoryTool(BuiltinTool[SaveMemoryParams]):
    name = "save_memory"
    title = "Save memory"
    display_name = "SaveMemory"
    aliases = ("MemoryTool", "SaveMemory")
    description = (
        "Remember a fact for later conversations: a preference, convention or detail that the user states or asks to "
        "keep. One short fact per call; no secrets, and nothing that only this conversation needs."
    )
    kind = ToolKind.EDIT
    behaviour = Behaviour(read_only=False, idempotent=True)
    params_model = SaveMemoryParams
    # The dialogs of Qwen Code and Gemini CLI set these parameters when the user edits the fact. They are ignored,
    # because here the user edits the fact in the consent question.
    foreign_parameters = dict.fromkeys(("modified_by_user", "modified_content"), ForeignParameter())

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self._files = files or MemoryFiles()

    def problems(self, params: SaveMemoryParams, original_names: Mapping[str, str]) -> Iterator[str]:
        from tools.memory.memory_entries import entry_of  # noqa: PLC0415 - not needed at startup

        if not entry_of(params.fact):
            yield "'fact' is empty; give the fact to remember as a sentence."

    def get_description(self, params: SaveMemoryParams, context: ToolContext) -> str:
        scope = self._scope(params, context)
        audience = "this project" if scope == "project" else "all projects"
        return f"Remember for {audience}: {brief(params.fact.strip())}"

    def subjects(self, params: SaveMemoryParams, context: ToolContext) -> Sequence[Subject]:
        location = self._files.file(self._scope(params, context), context.workspace).location
        return (PathSubject(Access.WRITE, location.path, location.unresolved_path),)

    async def should_confirm_execute(self, params: SaveMemoryParams, context: ToolContext) -> EditConfirmation | None:
        """Show the new line as a diff, or return `None` if the file already contains the fact."""
        from tools.memory.memory_entries import question_of  # noqa: PLC0415 - not needed at startup

        scope = self._scope(params, context)
        question = await run_blocking(
            context.signal, lambda: question_of(scope, self._target(scope, context), params.fact, self._files.headings)
        )
        if question is None:
            context.memo[ALREADY_SAVED] = (params, True)
        return question

    async def execute(self, params: SaveMemoryParams, context: ToolContext) -> ToolResult:
        """Add the fact to the file that the user was asked about. Other writers are locked out."""
        from tools.files.change.file_change import settled_text  # noqa: PLC0415 - loaded on first use
        from tools.memory.memory_entries import remember  # noqa: PLC0415 - loaded on first use

        scope = self._scope(params, context)
        adds = context.kept(ALREADY_SAVED, params) is None
        fact, is_users = settled_text(params.fact, context.answer)

        def work() -> ToolResult:
            target = self._target(scope, context)
            if context.confirmed is not None and context.confirmed.state not in ("", target.location.path):
                raise ToolError(
                    ToolErrorType.FILE_CHANGED_SINCE_READ,
                    f"The {scope} memory is now a different file from the one the user was asked about, so nothing was "
                    "written. Ask the user before you try again.",
                )
            return remember(scope, target, fact, self._files.headings, adds=adds, is_users=is_users)

        return await run_blocking(context.signal, work)

    def _scope(self, params: SaveMemoryParams, context: ToolContext) -> MemoryScope:
        # By default the project, because a fact about one project would be misleading in the memory of all projects. By
        # default, Qwen Code asks the user, and Gemini CLI uses the global memory.
        return params.scope or ("project" if context.workspace.roots else "global")

    def _target(self, scope: MemoryScope, context: ToolContext) -> TargetFile:
        from tools.files.change.file_change import TargetFile  # noqa: PLC0415 - not needed at startup

        file = self._files.file(scope, context.workspace)
        # Undo covers only files in the workspace.
        author = author_of(self.name, context) if scope == "project" else None
        return TargetFile(file.workspace, file.location, context.reads, context.signal, author)
