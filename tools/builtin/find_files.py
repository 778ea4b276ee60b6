"""`list_directory` lists one folder, and `glob` finds files whose path matches a pattern."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from tools.builtin.file_tools import (
    FOLDER_ALIASES,
    MAX_PATTERNS,
    OPTIONS,
    FileFilteringOptions,
    PathReader,
    ShortPattern,
    display_path,
    gather_options,
    ignore_flags,
    start_subjects,
)
from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.limits import SEARCH_SECONDS, Deadline
from tools.contract.permission_subjects import Subject, ToolKind
from tools.contract.tool_parameters import ToolParams, object_schema
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import brief


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

    def problems(self, params: LSParams, original_names: Mapping[str, str]) -> Iterator[str]:
        if not params.path.strip():
            yield f"'{original_names['path']}' is empty; give a folder, such as '.' for the first workspace folder."

    def get_description(self, params: LSParams, context: ToolContext) -> str:
        return f"List {display_path(params.path, context.workspace)}"

    async def execute(self, params: LSParams, context: ToolContext) -> ToolResult:
        from tools.files.find.folder_listing import list_folder  # noqa: PLC0415 - loaded on first use

        workspace = context.workspace
        git, agent = ignore_flags(workspace, params.file_filtering_options)
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


RECENT_SECONDS = 24 * 60 * 60  # files that changed within this time come first, as in Qwen Code and Gemini CLI


class GlobParams(ToolParams):
    pattern: str = Field(description="Relative to path: '**/*.py', 'src/**/*.{ts,tsx}'.")
    path: str | None = Field(default=None, description="By default the whole workspace.")
    case_sensitive: bool = Field(default=False, description="Distinguish upper and lower case.")
    respect_git_ignore: bool | None = Field(default=None, description="False also finds what .gitignore hides.")
    respect_agent_ignore: bool | None = Field(default=None, description="The same for .qwenignore and the like.")
    limit: int | None = Field(default=None, ge=1, description="Maximum files: 100 by default.")
    offset: int = Field(default=0, ge=0, description="Files to skip.")


class GlobTool(BuiltinTool[GlobParams]):
    seconds = SEARCH_SECONDS  # after this time, a search returns what it has found so far

    name = "glob"
    title = "Find files"
    display_name = "FindFiles"
    aliases = ("GlobTool", "FindFiles", "Glob")
    description = (
        "Find files by name or path (like find, fd or ls **). Returns absolute paths, files changed in the last 24 "
        "hours first. Includes dotfiles; ignored files, node_modules and .git only on request. For file contents use "
        "grep_search."
    )
    kind = ToolKind.SEARCH
    behaviour = READS
    params_model = GlobParams
    parameter_aliases = FOLDER_ALIASES
    output_schema = object_schema(
        {
            "files": {"type": "array", "items": {"type": "string"}, "description": "Absolute paths."},
            "total": {"type": "integer", "description": "Files found."},
            "ignored": {
                "type": "integer",
                "description": "Matching files, and folders, hidden by ignore files or rules.",
            },
            "partial": {"type": "boolean", "description": "The time limit ended the search early."},
            "next_offset": {"type": ["integer", "null"], "description": "The offset of the next part."},
        },
        is_closed=False,
    )

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Also accept the filter options of the other tools."""
        normalised = gather_options(arguments)
        options = normalised.pop(OPTIONS, None)
        return {**options, **normalised} if isinstance(options, dict) else normalised

    def problems(self, params: GlobParams, original_names: Mapping[str, str]) -> Iterable[str]:
        from tools.files.find.glob_search import compile_glob  # noqa: PLC0415 - loaded on first use

        if not os.path.isabs(params.pattern):
            compile_glob(params.pattern, ignore_case=not params.case_sensitive)
        return ()

    def get_description(self, params: GlobParams, context: ToolContext) -> str:
        scope = f" within {display_path(params.path, context.workspace)}" if params.path else ""
        return f"Find '{brief(params.pattern)}'{scope}"

    def subjects(self, params: GlobParams, context: ToolContext) -> Sequence[Subject]:
        return start_subjects(context.workspace, params.path)

    async def execute(self, params: GlobParams, context: ToolContext) -> ToolResult:
        from tools.files.find.glob_search import find_files  # noqa: PLC0415 - loaded on first use

        workspace = context.workspace
        options = FileFilteringOptions(
            respect_git_ignore=params.respect_git_ignore, respect_agent_ignore=params.respect_agent_ignore
        )
        git, agent = ignore_flags(workspace, options)
        return await run_blocking(
            context.signal,
            lambda: find_files(
                workspace,
                params.pattern,
                params.path,
                ignore_case=not params.case_sensitive,
                git=git,
                agent=agent,
                offset=params.offset,
                limit=params.limit or context.limits.list_entries,
                recent_since=context.clock() - RECENT_SECONDS,
                deadline=Deadline(context.signal, self.seconds),
            ),
        )
