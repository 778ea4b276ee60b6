"""`list_directory`: lists the visible entries of a folder, page by page.

One scan reads the names. If there are at most `MAX_SORTED_LINKS` visible symlinks, they are resolved next, so that
symlinks to folders are sorted with folders. After that, only the entries on the page are examined.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_walk import MAX_TEXT_BYTES, count, hidden_note, list_page
from tools.files.find.path_suggestions import missing_path_error
from tools.files.ignore_files import HiddenBy, names_of_ignore_files, refuse_hidden, scope_of
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace
from tools.text.file_names import sendable_name, shown_name, shown_whole_path

CHECK_EVERY = 1_000  # how many entries are processed between checks for cancellation
# Maximum number of symlinks to resolve before sorting. If a folder has more, all of them are sorted with the files.
# Resolving a symlink takes microseconds, but milliseconds if somebody has made it slow on purpose.
MAX_SORTED_LINKS = 500


def list_folder(
    workspace: Workspace,
    path: str,
    *,
    git: bool,
    agent: bool,
    ignore: Sequence[str],
    offset: int,
    limit: int,
    signal: AbortSignal,
) -> ToolResult:
    """List a folder. Blocking. In the `ignore` patterns for names to omit, only `*` and `?` are special."""
    location = workspace.locate(path, by_look=True)
    if agent:
        refuse_hidden(workspace, location, "listed", own_files=False)
    ignore_match = None
    if ignore:
        ignore_match = re.compile("|".join(fnmatch.translate(pattern.replace("[", "[[]")) for pattern in ignore)).match
    hidden_counts: Counter[HiddenBy] = Counter()
    lines: list[str] = []
    entries: list[dict[str, Any]] = []
    try:
        with workspace.open_folder(location.path) as folder:
            present = folder.entries()
            scope = scope_of(workspace, location, git=git, agent=agent, names=names_of_ignore_files(present.dot_names))

            def visible(names: list[str], *, is_folder: bool = False) -> list[str]:
                visible_names: list[str] = []
                for start in range(0, len(names), CHECK_EVERY):
                    signal.raise_if_aborted()
                    batch = names[start : start + CHECK_EVERY]
                    hidden_by = scope.hidden_among(batch, is_folder=is_folder)
                    hidden_counts.update(hidden_by.values())
                    visible_names += [name for name in batch if name not in hidden_by] if hidden_by else batch
                if ignore_match is not None:
                    visible_names = [name for name in visible_names if not ignore_match(name)]
                return visible_names

            folders, special_files = visible(present.folders, is_folder=True), frozenset(visible(present.others))
            links = dict.fromkeys(visible(present.links))
            for name in links if len(links) <= MAX_SORTED_LINKS else ():
                signal.raise_if_aborted()
                links[name] = _follow(workspace, location, name)
            # Sort folders first, then by name without regard to case.
            folder_links = {name for name, link in links.items() if link is not None and link[0] == "directory"}
            folders += folder_links
            non_folders = [*visible(present.files), *(links.keys() - folder_links), *special_files]
            total, end = len(folders) + len(non_folders), offset + limit
            order = [*_first(folders, end), *_first(non_folders, max(0, end - len(folders)))]

            room = MAX_TEXT_BYTES
            for number, name in enumerate(order[offset:end], offset):
                if room < 0:
                    break
                line = shown_name(name)
                json_name = name if line is name else sendable_name(name)
                size = target = None
                if name in links:
                    signal.raise_if_aborted()
                    type_, file, remark = links[name] or _follow(workspace, location, name)
                    leads_to = folder.link_target(name)
                    target = sendable_name(leads_to)
                    line += f" -> {shown_whole_path(leads_to)}{remark}"
                    size = workspace.size_of(file) if file is not None else None
                elif number < len(folders):
                    type_ = "directory"
                elif name in special_files:
                    type_, line = "other", f"{line} (not a regular file)"
                else:
                    type_, info = "file", folder.stat(name)
                    size = info.st_size if info is not None else None
                if type_ == "directory":
                    line = f"[DIR] {line}"
                elif type_ == "file":
                    line += f" ({size} byte{'s' * (size != 1)})" if size is not None else " (size unknown)"
                room -= len(line)
                lines.append(line)
                entries.append({"name": json_name, "type": type_, "size": size, "target": target})
    except (FileNotFoundError, NotADirectoryError) as error:
        kind = workspace.kind_of(location) if isinstance(error, NotADirectoryError) else None
        if kind is None:
            raise missing_path_error(workspace, location, signal, folders=True) from None
        problem = "a file, not a directory. Use read_file to see what is in it."
        if kind is PathKind.OTHER:
            problem = "not a folder but a device, pipe or socket; these are never opened."
        raise ToolError(ToolErrorType.PATH_IS_NOT_A_DIRECTORY, f"'{location.shown}' is {problem}") from None
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.LS_EXECUTION_ERROR) from None

    display_path, note = shown_whole_path(location.name), hidden_note(hidden_counts)
    head = [f"Listed {count(total, 'item')} in {display_path}:", "---"]
    if not total:
        head = [f"Nothing to list in {display_path}." if present.total else f"Directory {display_path} is empty."]
    text, shown_entries, next_offset = list_page(head, lines, offset, total, "item")
    if note:
        text += ["", f"({note}; file_filtering_options can show ignored entries)"]
    summary = f"Listed {count(total, 'item')}" + (f" ({note})" if note else "")
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary + (" (truncated)" if next_offset is not None else ""),
        structured={
            "path": sendable_name(location.name),
            "entries": entries[:shown_entries],
            "total": total,
            "hidden": {by.value: hidden_counts[by] for by in HiddenBy},
            "next_offset": next_offset,
        },
    )


def _first(names: list[str], count: int) -> list[str]:
    """Return at least the first `count` names in order, ignoring case. A heap is faster for a few of many names."""
    sort_count = count if count < len(names) // 8 else len(names)
    return heapq.nsmallest(sort_count, names, key=lambda name: (name.casefold(), name))


def _follow(workspace: Workspace, folder: Location, name: str) -> tuple[str, Location | None, str]:
    """Return the type of a symlink (its target's, if it can be used), its target if that is a file, and a remark."""
    try:
        target = workspace.locate(os.path.join(folder.name, name))
    except PathNotInWorkspaceError:
        return "link", None, " (leads outside the workspace)"
    except ToolError:
        return "link", None, " (broken link)"
    kind = workspace.kind_of(target)
    if kind is PathKind.FOLDER:
        return "directory", None, ""
    if kind is PathKind.FILE:
        return "file", target, ""
    return "link", None, " (not a regular file)" if kind is PathKind.OTHER else " (broken link)"
