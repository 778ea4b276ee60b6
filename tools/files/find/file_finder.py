"""The work of `glob`: every start is walked with the pattern, and what fits is put in order and told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tools.call.context import ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.limits import Deadline
from tools.contract.names_on_one_line import brief, one_line, sendable_name, shown_path, shown_whole_path
from tools.contract.results import ToolResult
from tools.files.find.file_filtering import FileFilteringOptions, respects
from tools.files.find.patterns import Names, PathPattern, PatternRefusedError, compile_patterns
from tools.files.find.walk import (
    Filters,
    Start,
    Walk,
    count,
    excluded_folders,
    fitting,
    names_below,
    page_end,
    search_starts,
    walk_notes,
)
from tools.files.ignore_files import is_hidden_target
from tools.files.opener import PathKind
from tools.files.workspace import Location, Workspace, contains, explain

if TYPE_CHECKING:
    from tools.builtin.glob import GlobParams


RECENT_SECONDS = 24 * 60 * 60
"""Files changed within this time come first, as in both seeds."""


class FileFinder:
    """Finds files by a pattern of their path.

    Args:
        tool: The name of the tool, for errors.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def check(self, params: GlobParams) -> None:
        """The pattern must mean something.

        Raises:
            InvalidToolParamsError: It means nothing.
        """
        self._compile(params.pattern, params, None)

    def find(self, params: GlobParams, context: ToolContext, seconds: float) -> ToolResult:
        """Search, blocking.

        Args:
            params: What to find, checked.
            context: Where, and for whom.
            seconds: How long it may take before it returns what it has.
        """
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
        deadline = Deadline(context.signal, seconds)
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
            raise InvalidToolParamsError(
                self._tool, f"the pattern '{pattern[:200]}' cannot be used: {error}."
            ) from None


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
