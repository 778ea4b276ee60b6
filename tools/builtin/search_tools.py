"""`list_directory` lists one folder, `glob` finds files by their path, and `grep_search` finds lines by a pattern."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

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
from tools.contract.call_options import SEARCH_SECONDS, Deadline
from tools.contract.permission_subjects import Subject, ToolKind
from tools.contract.tool_parameters import UNPUBLISHED, ToolParams, foreign
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


MAX_LIMIT = 1_000_000  # maximum matches per call; a result reaches its character limit long before that
MAX_CONTEXT = 1_000  # maximum number of lines shown before and after a match


class GrepParams(ToolParams):
    pattern: str = Field(
        description="Rust (ripgrep) syntax, within single lines, no look-around or back-references: 'fn\\s+\\w+', "
        "'TODO|FIXME'."
    )
    path: str | None = Field(default=None, description="Folder or file; by default the whole workspace.")
    glob: str | None = Field(
        default=None, description="Only matching files: '*.py' (any folder), 'src/**/*.{ts,tsx}'; '!*.min.js' excludes."
    )
    case_sensitive: bool = Field(default=False, description="Distinguish upper and lower case.")
    fixed_strings: bool = Field(default=False, description="The pattern is literal text.")
    context: int | None = Field(default=None, ge=0, description="Lines around each match.")
    before: int | None = Field(default=None, ge=0, description="Lines before.")
    after: int | None = Field(default=None, ge=0, description="Lines after.")
    names_only: bool = Field(default=False, description="Only the paths of matching files.")
    max_matches_per_file: int | None = Field(default=None, ge=1, description="Maximum matches per file.")
    limit: int | None = Field(default=None, ge=1, description="Maximum matches, or files: 100 by default.")
    exclude_pattern: str | None = Field(default=None, description="Omit matching lines that also match this.")
    no_ignore: bool = Field(default=False, description="Also search ignored files, node_modules and the like.")
    output_mode: Literal["content", "files_with_matches", "count"] | None = Field(
        default=None, json_schema_extra=UNPUBLISHED
    )


class GrepTool(BuiltinTool[GrepParams]):
    seconds = SEARCH_SECONDS  # after this time, a search returns what it has found so far

    name = "grep_search"
    title = "Search files"
    display_name = "SearchText"
    aliases = ("GrepTool", "Grep", "SearchText", "search_file_content", "SearchFiles")
    description = (
        "Search file contents with a regular expression or literal text (grep, ripgrep, rg, code search). Returns "
        "numbered matches by file; paths are relative (absolute for several folders). Case is ignored by default. "
        "Skips ignored files, node_modules, .git, binary and very large files. For file names use glob."
    )
    kind = ToolKind.SEARCH
    behaviour = READS
    params_model = GrepParams
    parameter_aliases: Mapping[str, str] = {
        **FOLDER_ALIASES, "include": "glob", "include_pattern": "glob",
        "total_max_matches": "limit", "max_results": "limit", "head_limit": "limit",
        "-A": "after", "-B": "before", "-C": "context",
    }  # fmt: skip
    foreign_parameters = {  # noqa: RUF012 - declared as a Mapping
        **dict.fromkeys(
            ("-i", "ignore_case", "case_insensitive"), foreign("true", way="Set case_sensitive to distinguish case.")
        ),
        "-n": foreign("true", way="Line numbers are always shown."),
        "multiline": foreign("false", way="A pattern matches within one line."),
        "type": foreign(way="Give glob: '*.py'."),
    }

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept the other tools' `respect_git_ignore` parameter: false means `no_ignore`."""
        normalised = gather_options(arguments)
        options = normalised.pop(OPTIONS, None)
        if isinstance(options, dict) and cast("dict[str, Any]", options).get("respect_git_ignore") in (False, "false"):
            normalised.setdefault("no_ignore", True)
        return normalised

    def problems(self, params: GrepParams, original_names: Mapping[str, str]) -> Iterator[str]:
        from tools.files.search.content_search import check_pattern, compile_file_filter  # noqa: PLC0415 - loaded on first use

        check_pattern(original_names["pattern"], params.pattern)
        if params.exclude_pattern is not None:
            check_pattern(original_names["exclude_pattern"], params.exclude_pattern)
        if params.glob is not None:
            compile_file_filter(params.glob)
        if params.names_only and params.output_mode in ("content", "count"):
            yield f"'names_only' and the output_mode '{params.output_mode}' contradict each other; give one of them."

    def get_description(self, params: GrepParams, context: ToolContext) -> str:
        files = f" in {brief(params.glob)}" if params.glob else ""
        scope = f" within {display_path(params.path, context.workspace)}" if params.path else ""
        return f"Search '{brief(params.pattern)}'{files}{scope}"

    def subjects(self, params: GrepParams, context: ToolContext) -> Sequence[Subject]:
        return start_subjects(context.workspace, params.path)

    async def execute(self, params: GrepParams, context: ToolContext) -> ToolResult:
        from tools.files.search.content_search import search_contents  # noqa: PLC0415 - loaded on first use
        from tools.files.search.match_report import ContentQuery  # noqa: PLC0415

        around = params.context or 0
        query = ContentQuery(
            pattern=params.pattern,
            path=params.path,
            glob=params.glob,
            ignore_case=not params.case_sensitive,
            fixed_strings=params.fixed_strings,
            exclude=params.exclude_pattern,
            no_ignore=params.no_ignore,
            before=min(params.before or around, MAX_CONTEXT),
            after=min(params.after or around, MAX_CONTEXT),
            names_only=params.names_only or params.output_mode == "files_with_matches",
            counts=params.output_mode == "count",
            per_file=params.max_matches_per_file,
            limit=min(params.limit or context.limits.grep_matches, MAX_LIMIT),
        )
        return await run_blocking(
            context.signal,
            lambda: search_contents(context.workspace, query, context.limits, Deadline(context.signal, self.seconds)),
        )
