"""`list_directory`: lists the visible entries of a folder, page by page.

One scan gets the names. Then only the entries on the page are examined, and symlinks, because those to folders are
sorted with the folders.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_walk import MAX_TEXT_BYTES, count, hidden_note, list_page
from tools.files.find.near_names import not_there
from tools.files.ignore_files import HiddenBy, names_of_ignore_files, refuse_hidden, scope_of
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace
from tools.text.file_names import sendable_name, shown_name, shown_whole_path

CHECK_EVERY = 1_000  # entries between checks for cancellation
# Symlinks that are resolved before sorting, so that those to folders are sorted with the folders. If there are more,
# all are sorted with the files. Resolving one takes microseconds, but milliseconds if somebody made it slow.
MAX_SORTED_LINKS = 500


class _ListedLink(NamedTuple):
    type: str  # `directory` or `file`; `link` if it is broken or leads out of the workspace
    target: Location | None = None  # the target, if it is inside the workspace
    note: str = ""  # a remark for the line


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
    """List a folder. Blocking.

    `ignore` has patterns of names to omit, in which only `*` and `?` are special.
    """
    location = workspace.locate(path, by_look=True)
    if agent:
        refuse_hidden(workspace, location, "listed", own_files=False)
    ignored = None
    if ignore:
        ignored = re.compile("|".join(fnmatch.translate(pattern.replace("[", "[[]")) for pattern in ignore)).match
    hidden: Counter[HiddenBy] = Counter()
    lines: list[str] = []
    entries: list[dict[str, Any]] = []
    try:
        with workspace.open_folder(location.path) as folder:
            kinds = dict(folder.entries())
            scope = scope_of(workspace, location, git=git, agent=agent, names=names_of_ignore_files(kinds))
            visible: list[str] = []
            for number, (name, kind) in enumerate(kinds.items()):
                if number % CHECK_EVERY == 0:
                    signal.raise_if_aborted()
                hidden_by = scope.hides(name, is_folder=kind is PathKind.FOLDER)
                if hidden_by is not None:
                    hidden[hidden_by] += 1
                elif ignored is None or not ignored(name):
                    visible.append(name)

            links: dict[str, _ListedLink] = {}
            names = [name for name in visible if kinds[name] is PathKind.LINK]
            for name in names if len(names) <= MAX_SORTED_LINKS else ():
                signal.raise_if_aborted()
                links[name] = _follow(workspace, location, name)
            # Sort folders first, then by name without regard to case.
            folders = {name for name in visible if kinds[name] is PathKind.FOLDER}
            folders.update(name for name, link in links.items() if link.type == "directory")
            visible.sort()
            visible.sort(key=str.casefold)
            order = [name for name in visible if name in folders] + [name for name in visible if name not in folders]

            left = MAX_TEXT_BYTES
            for name in order[offset : offset + limit]:
                if left < 0:
                    break
                kind, line = kinds[name], shown_name(name)
                sent = name if line is name else sendable_name(name)
                size = target = None
                if kind is PathKind.FOLDER:
                    type_, line = "directory", f"[DIR] {line}"
                elif kind is PathKind.FILE:
                    type_, info = "file", folder.stat(name)
                    size = info.st_size if info is not None else None
                    line += f" ({size} bytes)" if size is not None else " (size unknown)"
                elif kind is PathKind.LINK:
                    signal.raise_if_aborted()
                    link, leads_to = links.get(name) or _follow(workspace, location, name), folder.link_target(name)
                    type_, target = link.type, sendable_name(leads_to)
                    line += f" -> {shown_whole_path(leads_to)}{link.note}"
                    if type_ == "directory":
                        line = f"[DIR] {line}"
                    elif link.target is not None:
                        size = workspace.size_of(link.target)
                        line += f" ({size} bytes)" if size is not None else " (size unknown)"
                else:
                    type_, line = "other", f"{line} (not a regular file)"
                left -= len(line)
                lines.append(line)
                entries.append({"name": sent, "type": type_, "size": size, "target": target})
    except NotADirectoryError:
        kind = workspace.kind_of(location)
        if kind is None:
            raise not_there(workspace, location, signal, folders=True) from None
        what = "a file, not a directory. Use read_file to see what is in it."
        if kind is PathKind.OTHER:
            what = "not a folder but a device, pipe or socket, which is never opened."
        raise ToolError(ToolErrorType.PATH_IS_NOT_A_DIRECTORY, f"'{location.shown}' is {what}") from None
    except FileNotFoundError:
        raise not_there(workspace, location, signal, folders=True) from None
    except OSError as error:
        raise workspace.explain(error, location, ToolErrorType.LS_EXECUTION_ERROR) from None

    total, where, note = len(order), shown_whole_path(location.name), hidden_note(hidden)
    head = [f"Listed {count(total, 'item')} in {where}:", "---"]
    if not total:
        head = [f"Directory {where} is empty." if not note else f"Nothing to list in {where}."]
    text, shown_entries, next_offset = list_page(head, lines, offset, total, "item")
    if note:
        text += ["", f"({note}; file_filtering_options can show them)"]
    summary = f"Listed {count(total, 'item')}" + (f" ({note})" if note else "")
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary + (" (truncated)" if next_offset is not None else ""),
        structured={
            "path": sendable_name(location.name),
            "entries": entries[:shown_entries],
            "total": total,
            "hidden": {by.value: hidden[by] for by in HiddenBy},
            "next_offset": next_offset,
        },
    )


def _follow(workspace: Workspace, folder: Location, name: str) -> _ListedLink:
    try:
        target = workspace.locate(os.path.join(folder.name, name))
    except PathNotInWorkspaceError:
        return _ListedLink("link", note=" (leads outside the workspace)")
    except ToolError:
        return _ListedLink("link", note=" (broken link)")
    kind = workspace.kind_of(target)
    if kind is PathKind.FOLDER:
        return _ListedLink("directory", target)
    if kind is PathKind.FILE:
        return _ListedLink("file", target)
    return _ListedLink("link", note=" (not a regular file)" if kind is PathKind.OTHER else " (broken link)")
