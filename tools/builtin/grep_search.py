"""`grep_search`: finds lines that match a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import Field

from tools.builtin.file_tools import FOLDER_ALIASES, OPTIONS, display_path, gather_options, start_subjects
from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.limits import SEARCH_SECONDS, Deadline
from tools.contract.permission_subjects import Subject, ToolKind
from tools.contract.tool_parameters import UNPUBLISHED, ToolParams, foreign
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import brief

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
        "matching lines by file, with line numbers; paths are relative to the folder. Case is ignored by default. "
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
