"""`list_directory`: lists one folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tools.builtin.path_parameters import (
    FOLDER_ALIASES,
    MAX_PATTERNS,
    FileFilteringOptions,
    PathReader,
    ShortPattern,
    gather_options,
    respects,
    shown,
)
from tools.call.base_tool import ToolContext
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import ToolParams, object_schema
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking


class LSParams(ToolParams):
    path: str = Field(description="Absolute, or relative to the workspace ('.').")
    ignore: list[ShortPattern] | None = Field(
        default=None, max_length=MAX_PATTERNS, description="Names to omit, with * and ?: ['*.log']."
    )
    offset: int = Field(default=0, ge=0, description="Entries to skip.")
    limit: int | None = Field(default=None, ge=1, description="Maximum entries: 100 by default.")
    file_filtering_options: FileFilteringOptions | None = Field(
        default=None, description="False also lists what .gitignore, .qwenignore and the like hide."
    )


class LSTool(PathReader[LSParams]):
    name = "list_directory"
    title = "List folder"
    display_name = "ReadFolder"
    aliases = ("LSTool", "ReadFolder", "ListFiles")
    description = (
        "List one folder (directory), like ls: subfolders first, then files with sizes in bytes, and targets of links. "
        "Lists dotfiles; ignored entries are only counted. Not recursive: for a whole tree use glob."
    )
    kind = ToolKind.SEARCH
    params_model = LSParams
    parameter_aliases = FOLDER_ALIASES
    output_schema = object_schema(
        {
            "path": {"type": "string", "description": "Absolute path of the folder."},
            "entries": {
                "type": "array",
                "items": object_schema(
                    {
                        "name": {"type": "string"},
                        "type": {"enum": ["directory", "file", "link", "other"]},
                        "size": {"type": ["integer", "null"], "description": "Bytes, for files."},
                        "target": {"type": ["string", "null"], "description": "Where a link points."},
                    },
                    is_closed=False,
                ),
            },
            "total": {"type": "integer", "description": "Entries in the folder, hidden ones excluded."},
            "hidden": object_schema({"git": {"type": "integer"}, "agent": {"type": "integer"}}, is_closed=False),
            "next_offset": {"type": ["integer", "null"], "description": "The offset of the next part."},
        },
        is_closed=False,
    )

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return gather_options(arguments)

    def check(self, params: LSParams, spelled: Mapping[str, str]) -> None:
        if not params.path.strip():
            raise InvalidToolParamsError(
                self.name, f"'{spelled['path']}' is empty; give a folder, such as '.' for the first workspace folder."
            )

    def get_description(self, params: LSParams, context: ToolContext) -> str:
        return f"List {shown(params.path, context.workspace)}"

    async def execute(self, params: LSParams, context: ToolContext) -> ToolResult:
        from tools.files.find.folder_listing import list_folder  # noqa: PLC0415 - loaded on first use

        workspace = context.workspace
        git, agent = respects(workspace, params.file_filtering_options)
        return await run_blocking(
            context.signal,
            lambda: list_folder(
                workspace,
                params.path,
                git=git,
                agent=agent,
                ignore=params.ignore or (),
                offset=params.offset,
                limit=params.limit or context.limits.list_entries,
                signal=context.signal,
            ),
        )
