"""`glob`: files found by a pattern of their path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from tools.contract.base import READS, Kind
from tools.contract.builtin_tool import BuiltinTool, run_blocking
from tools.contract.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.names import brief, one_line, sendable_name, shown_path, shown_whole_path
from tools.contract.parameters import ToolParams
from tools.contract.result import ToolResult
from tools.contract.subject import Subject
from tools.filesystem.descriptors import PathKind
from tools.filesystem.finding.braces import PatternRefusedError
from tools.filesystem.finding.deadline import SEARCH_SECONDS, Deadline
from tools.filesystem.finding.listing_text import count, fitting, page_end, walk_notes
from tools.filesystem.finding.options import OPTIONS, FileFilteringOptions, gather_options, respects
from tools.filesystem.finding.patterns import Names, PathPattern, compile_patterns
from tools.filesystem.finding.starts import Start, excluded_folders, names_below, search_starts, start_subjects
from tools.filesystem.finding.walk import Filters, Walk
from tools.filesystem.ignore import is_hidden_target
from tools.filesystem.paths import FOLDER_ALIASES, shown
from tools.filesystem.workspace import Location, Workspace, contains, explain

RECENT_SECONDS = 24 * 60 * 60
"""Files changed within this time come first, as in both seeds."""


class GlobParams(ToolParams):
    """Which files to find."""

    pattern: str = Field(
        description="Glob pattern, relative to the folder searched: '**/*.py', 'src/**/*.{ts,tsx}', 'docs/*.md'. "
        "** stands for any folders; * ? [...] for characters; {a,b} for alternatives. A path that exists as written "
        "is taken literally."
    )
    path: str | None = Field(
        default=None, description="The folder to search, absolute or relative. Default: the whole workspace."
    )
    case_sensitive: bool = Field(default=False, description="Whether upper and lower case differ.")
    respect_git_ignore: bool | None = Field(
        default=None, description="False also finds what .gitignore hides. Default: the server's setting, usually true."
    )
    respect_agent_ignore: bool | None = Field(
        default=None,
        description="False also finds what .coretoolsignore, .qwenignore and .geminiignore hide. "
        "Default: the server's setting, usually true.",
    )
    limit: int | None = Field(default=None, ge=1, description="Most files to return; 100 by default.")
    offset: int = Field(default=0, ge=0, description="Files to skip, to continue a list that was cut.")


class GlobTool(BuiltinTool[GlobParams]):
    """Finds files by name."""

    seconds = SEARCH_SECONDS
    """How long one search may take before it returns what it has."""

    name = "glob"
    display_name = "FindFiles"
    aliases = ("GlobTool", "FindFiles", "Glob")
    description = (
        "Find files by name or path with a glob pattern (like find, fd or ls **): returns absolute paths, files "
        "changed in the last 24 hours first (newest first), then by path. Fast in large trees: what .gitignore and "
        "agent-ignore files hide, node_modules and version control folders are not searched unless asked for. "
        "Dotfiles are included. To search file contents use grep_search; for one folder list_directory."
    )
    kind = Kind.SEARCH
    behaviour = READS
    params_model = GlobParams
    parameter_aliases = FOLDER_ALIASES
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "files": {"type": "array", "items": {"type": "string"}, "description": "Absolute paths."},
            "total": {"type": "integer", "description": "Files that fit the pattern."},
            "ignored": {"type": "integer", "description": "Fitting files, and folders, that ignore files left out."},
            "partial": {"type": "boolean", "description": "The time limit ended the search early."},
            "next_offset": {"type": ["integer", "null"], "description": "The offset that continues the list."},
        },
        "required": ["files", "total", "ignored", "partial", "next_offset"],
    }

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the filter options of the other tools as well."""
        gathered = gather_options(arguments)
        options = gathered.pop(OPTIONS, None)
        return {**options, **gathered} if isinstance(options, dict) else gathered

    def check(self, params: GlobParams, spelled: Mapping[str, str]) -> None:
        """The pattern must mean something."""
        del spelled
        if not os.path.isabs(params.pattern):
            self._compile(params.pattern, params, None)

    def get_description(self, params: GlobParams, context: ToolContext) -> str:
        """The pattern, and where."""
        where = f" within {shown(params.path, context.workspace)}" if params.path else ""
        return f"Find '{brief(params.pattern)}'{where}"

    def subjects(self, params: GlobParams, context: ToolContext) -> Sequence[Subject]:
        """Where the search begins."""
        return start_subjects(context.workspace, params.path)

    async def execute(self, params: GlobParams, context: ToolContext) -> ToolResult:
        """Search in one thread hop."""
        return await run_blocking(context.signal, lambda: self._find(params, context))

    def _find(self, params: GlobParams, context: ToolContext) -> ToolResult:
        workspace = context.workspace
        params = _inside_root(params, workspace)
        options = FileFilteringOptions(
            respect_git_ignore=params.respect_git_ignore, respect_agent_ignore=params.respect_agent_ignore
        )
        git, agent = respects(workspace, options)
        starts = search_starts(workspace, params.path, agent=agent)
        if starts[0].is_file:
            raise ToolError(
                ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
                f"'{starts[0].location.shown}' is a file; give the folder to search as path and the name as pattern.",
            )
        deadline = Deadline(context.signal, self.seconds)
        patterns = [
            self._compile(params.pattern, params, names_below(workspace, start.location, deadline)) for start in starts
        ]
        named = frozenset[str]().union(*(pattern.literals for pattern in patterns))
        filters = Filters(git=git, agent=agent, folders=excluded_folders(starts, named), links=True, stats=True)
        walk = Walk(workspace, filters, deadline)
        try:
            files = _files(walk, starts, patterns, recent=context.clock() - RECENT_SECONDS)
        except OSError as error:
            raise explain(error, starts[0].location.shown, ToolErrorType.GLOB_EXECUTION_ERROR) from None
        return _result(params, context, starts, files, walk)

    def _compile(self, pattern: str, params: GlobParams, exists: Names | None) -> PathPattern:
        try:
            return compile_patterns([pattern], ignore_case=not params.case_sensitive, exists=exists)
        except PatternRefusedError as error:
            raise InvalidToolParamsError(self.name, f"the pattern '{pattern[:200]}' cannot be used: {error}.") from None


def _inside_root(params: GlobParams, workspace: Workspace) -> GlobParams:
    """An absolute pattern below a root, and below the folder to search, becomes a relative one."""
    if not os.path.isabs(params.pattern):
        return params
    place = workspace.locate(params.pattern)
    base = workspace.locate(params.path).path if params.path else place.root
    if not contains(base, place.path) or base == place.path:
        raise InvalidToolParamsError(
            "glob",
            f"the pattern '{brief(params.pattern)}' is absolute and lies outside '{shown_path(base)}', "
            "the folder to search; give a pattern relative to it.",
        )
    relative = os.path.relpath(place.path, base).replace(os.sep, "/")
    return params.model_copy(update={"path": base, "pattern": relative})


def _files(walk: Walk, starts: Sequence[Start], patterns: Sequence[PathPattern], *, recent: float) -> list[str]:
    """The files that fit: those changed since a time, the newest first, then the others by path."""
    roots = [start.location.path for start in starts]
    changed: list[tuple[float, str]] = []
    others: list[str] = []
    for start, pattern in zip(starts, patterns, strict=True):
        position = pattern.start()
        if position is None:
            continue
        base = os.path.join(start.location.path, "")
        for below, is_link, info in walk.files(start.location, position, roots):
            if info is None:
                continue  # it has gone meanwhile
            path = base + below.replace("/", os.sep)
            if is_link and (walk.is_out_of_time() or not _is_reachable(walk, path)):
                continue
            if info.st_mtime > recent:
                changed.append((-info.st_mtime, path))
            else:
                others.append(path)
    return [path for _, path in sorted(changed)] + sorted(others)


def _is_reachable(walk: Walk, path: str) -> bool:
    """Whether a link leads to a file that could be read."""
    try:
        location = walk.workspace.locate(path)
    except ToolError:
        return False
    is_file = walk.workspace.kind_of(location) is PathKind.FILE
    return is_file and not is_hidden_target(walk.workspace, location, agent=walk.filters.agent)


def _where(params: GlobParams, starts: Sequence[Start]) -> str:
    if params.path:
        return f"within {shown_whole_path(starts[0].location.path)}"
    return "in the workspace directory" if len(starts) == 1 else f"across {len(starts)} workspace directories"


def _result(
    params: GlobParams, context: ToolContext, starts: Sequence[Start], files: Sequence[str], walk: Walk
) -> ToolResult:
    total = len(files)
    where = _where(params, starts)
    found = f'{count(total, "file")} matching "{one_line(params.pattern)}" {where}'
    head = [f"Found {found}, changed in the last 24 hours first (newest first), then by path:", "---"]
    if not total:
        head = [f'No files found matching pattern "{one_line(params.pattern)}" {where}.']
        head += _hint(params, context.workspace, starts)
    page = files[params.offset : params.offset + (params.limit or context.limits.list_entries)]
    lines = [shown_whole_path(path) for path in page]
    page = page[: fitting(lines, head)]
    end = params.offset + len(page)
    left = max(0, total - end)
    text = [*head, *lines[: len(page)]]
    text += page_end(total, params.offset, len(page), "file")
    notes = walk_notes(walk)
    if notes:
        text += ["", " ".join(notes)]
    ignored = sum(walk.hidden.values())
    summary = f"Found {count(total, 'matching file')}" if total else "No files found"
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary + (f" ({ignored} ignored)" if ignored else "") + (" (truncated)" if left else ""),
        structured={
            "files": [sendable_name(path) for path in page],
            "total": total,
            "ignored": ignored,
            "partial": walk.timed_out,
            "next_offset": end if left else None,
        },
    )


def _hint(params: GlobParams, workspace: Workspace, starts: Sequence[Start]) -> list[str]:
    """What else may have been meant by a pattern that found nothing."""
    pattern = one_line(params.pattern)
    for start in starts:
        if _is_folder(workspace, start.location, params.pattern):
            return [f"It names a folder: use '{pattern.rstrip('/')}/**' for the files in it, or list_directory."]
    if "/" not in params.pattern and "*" in params.pattern:
        return [f"Only files directly in that folder were looked at; '**/{pattern}' searches folders below."]
    return []


def _is_folder(workspace: Workspace, folder: Location, path: str) -> bool:
    try:
        place = workspace.locate(path, within=folder.path)
    except ToolError:
        return False
    return workspace.kind_of(place) is PathKind.FOLDER and not is_hidden_target(workspace, place, agent=True)
