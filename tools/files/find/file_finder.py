"""`glob`: finds out where to search, walks each folder, and sorts and reports the files that match the pattern."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from tools.contract.limits import Deadline
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_walk import Filters, Walk, count, excluded_folders, list_page, visible_kind, walk_notes
from tools.files.find.glob_patterns import Names, PathPattern, PatternRefusedError, compile_patterns, glob_hint
from tools.files.find.near_names import not_there
from tools.files.ignore_files import refuse_hidden
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace, contains, explain
from tools.text.file_names import brief, one_line, sendable_name, shown_path, shown_whole_path


def compile_glob(pattern: str, *, ignore_case: bool, exists: Names | None = None) -> PathPattern:
    try:
        return compile_patterns([pattern], ignore_case=ignore_case, exists=exists)
    except PatternRefusedError as error:
        raise InvalidToolParamsError("glob", f"the pattern '{pattern[:200]}' cannot be used: {error}.") from None


def search_starts(
    workspace: Workspace, path: str | None, deadline: Deadline, *, agent: bool
) -> tuple[list[Location], bool]:
    """Return where a search starts (the given folder or file, or every root), and whether it is a single file."""
    if path is None or not path.strip():
        return workspace.root_locations(), False
    location = workspace.locate(path, by_look=True)
    info = workspace.stat(location)
    if info is None:
        so, code = ", so nothing was searched", ToolErrorType.SEARCH_PATH_NOT_FOUND
        raise not_there(workspace, location, deadline.signal, folders=True, so=so, code=code)
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{location.shown}' is a device, pipe or socket; these are never opened.",
        )
    if agent:
        refuse_hidden(workspace, location, "searched")
    return [location], stat.S_ISREG(info.st_mode)


def find_files(
    workspace: Workspace,
    pattern: str,
    path: str | None,
    *,
    ignore_case: bool,
    git: bool,
    agent: bool,
    offset: int,
    limit: int,
    recent_since: float,
    deadline: Deadline,
) -> ToolResult:
    """Find files whose path relative to a folder, or to any root, matches a pattern. Blocking.

    An absolute pattern must be inside the folder to search. Files changed after `recent_since` come first, newest
    first, then the others by path.
    """
    if os.path.isabs(pattern):
        absolute = workspace.locate(pattern)
        path = workspace.locate(path).name if path else workspace.at(absolute.root).name
        if not contains(path, absolute.name) or path == absolute.name:
            raise InvalidToolParamsError(
                "glob",
                f"the pattern '{brief(pattern)}' is absolute and outside '{shown_path(path)}', the folder to search; "
                "give a pattern relative to it.",
            )
        pattern = os.path.relpath(absolute.name, path).replace(os.sep, "/")
    starts, is_file = search_starts(workspace, path, deadline, agent=agent)
    if is_file:
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{starts[0].shown}' is a file. Give the folder to search as path, and the name as pattern.",
        )
    walk = Walk(workspace, Filters(git=git, agent=agent, links=True, stats=True), deadline)
    compiled = [compile_glob(pattern, ignore_case=ignore_case, exists=walk.names_below(start)) for start in starts]
    named = frozenset[str]().union(*(each.literals for each in compiled))
    walk.filters = replace(walk.filters, folders=excluded_folders(starts, named))
    roots = [start.path for start in starts]
    recent: list[tuple[float, str]] = []
    others: list[str] = []
    try:
        for start, each in zip(starts, compiled, strict=True):
            position = each.start()
            if position is None:
                continue
            for folder, wanted in walk.through_links(start, position):
                base = os.path.join(folder.name, "")
                for below, is_link, info in walk.files(folder, wanted, roots):
                    if info is None:
                        continue  # the file has been removed since it was found
                    found = base + below.replace("/", os.sep)
                    # A symlink counts only if it leads to a visible regular file.
                    if is_link and (
                        walk.is_out_of_time() or visible_kind(workspace, found, agent=agent) is not PathKind.FILE
                    ):
                        continue
                    if info.st_mtime > recent_since:
                        recent.append((-info.st_mtime, found))
                    else:
                        others.append(found)
    except OSError as error:
        raise explain(error, starts[0].shown, ToolErrorType.GLOB_EXECUTION_ERROR) from None
    # A symlink's target may also have been found directly.
    files = list(dict.fromkeys([found for _, found in sorted(recent)] + sorted(others)))

    total, shown_pattern = len(files), one_line(pattern)
    where = "in the workspace directory" if len(starts) == 1 else f"across {len(starts)} workspace directories"
    where = f"within {shown_whole_path(starts[0].name)}" if path else where
    what = f'{count(total, "file")} matching "{shown_pattern}" {where}'
    head = [f"Found {what}, changed in the last 24 hours first (newest first), then by path:", "---"]
    if not total:
        head = [f'No files found matching pattern "{shown_pattern}" {where}.']
        if any(visible_kind(workspace, pattern, within=root) is PathKind.FOLDER for root in roots):
            glob = f"{shown_pattern.rstrip('/')}/**"
            head.append(f"The pattern is a folder: use '{glob}' for the files in it, or list_directory.")
        elif hint := glob_hint(pattern):
            head.append(hint)
        elif "/" not in pattern and "*" in pattern and pattern != "**" and os.sep not in pattern:
            head.append(
                f"This pattern matches only names directly in {'the' if len(starts) == 1 else 'each'} searched folder; "
                f"'**/{shown_pattern}' searches subfolders too."
            )
        if walk.has_passed_links:
            head.append("Symlinks to folders are followed only if the pattern names them.")
    page = files[offset : offset + limit]
    text, shown, next_offset = list_page(head, [shown_whole_path(found) for found in page], offset, total, "file")
    notes = walk_notes(walk)
    if notes:
        text += ["", " ".join(notes)]
    ignored = walk.hidden.total()
    summary = f"Found {count(total, 'matching file')}" if total else "No files found"
    summary += f" ({ignored} ignored)" if ignored else ""
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary + (" (truncated)" if next_offset is not None else ""),
        structured={
            "files": [sendable_name(found) for found in page[:shown]],
            "total": total,
            "ignored": ignored,
            "partial": walk.timed_out,
            "next_offset": next_offset,
        },
    )
