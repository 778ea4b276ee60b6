"""Finds workspace files that changed during a command, by comparing their state before and after.

Undo does not cover changes by commands, so the result of a command names the changed files. Files are compared only if
they are in a git work tree and not ignored. Only folders and ignore files are opened, and symlinks are not followed. If
a workspace is too large, it is skipped, and one result mentions that to each client.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

from tools.contract.call_options import AbortSignal, Deadline
from tools.contract.tool_errors import ToolError
from tools.files.find.folder_walk import Filters, scope_below
from tools.files.ignore_files import IgnoreScope, names_of_ignore_files, scope_of
from tools.files.workspace import Workspace
from tools.text.file_names import shown_path

MAX_ENTRIES = 5_000  # files and folders to compare; each of the two scans takes about 50 ms
MAX_SECONDS = 1.0  # time limit for a slow disk or a busy machine
SKIP_SECONDS = 60.0  # how long a workspace is skipped after it was found to be too large
MAX_SKIPPED = 100  # maximum remembered workspaces that are too large
MAX_TOLD = 1_000  # maximum remembered clients that know about such a workspace
MAX_NAMED = 20
# Inode, size, modification time and change time (nanoseconds). Any change to a file changes one of these
State = tuple[int, int, int, int]
_is_ambiguous = re.compile(r'(?!").*[,;.] ').match  # an unquoted name with punctuation before a space
_told: set[tuple[str, ...]] = set()  # keys of clients, each with workspace roots that the client knows to be too large
_too_large: dict[tuple[str, ...], float] = {}  # keyed by workspace roots: monotonic time until which they are skipped


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """The files of a workspace at one point in time."""

    # Keyed by folder path: the folder's ignore rules, and the state of each file in it, including ignored files
    folders: dict[str, tuple[IgnoreScope, Mapping[str, State]]] = field(
        default_factory=dict[str, tuple[IgnoreScope, Mapping[str, State]]]
    )
    skipped: set[str] = field(default_factory=set[str])  # hidden or unreadable folders, which were not scanned

    def files_of(self, folder: str) -> Mapping[str, State]:
        return self.folders[folder][1] if folder in self.folders else {}


def state_of(workspace: Workspace, signal: AbortSignal) -> WorkspaceState | None:
    """Return the current files of a workspace. Blocking.

    Returns `None` if no folder is in a git work tree, or if the workspace is too large or takes too long to scan.
    Raises a `ToolError` only if the call is cancelled.
    """
    roots = tuple(workspace.roots)
    if _too_large.get(roots, 0.0) > time.monotonic():
        return None
    deadline, state, remaining = Deadline(signal, MAX_SECONDS), WorkspaceState(), MAX_ENTRIES
    filters = Filters(agent=workspace.respect_agent_ignore)
    pending: list[tuple[str, IgnoreScope | None]] = [(root, None) for root in roots]
    while pending or remaining < 0:
        if deadline.check() or remaining < 0:
            if len(_too_large) >= MAX_SKIPPED:
                _too_large.clear()
            _too_large[roots] = time.monotonic() + SKIP_SECONDS
            return None
        path, parent_scope = pending.pop()
        if path in state.folders:
            continue  # this workspace folder is inside another one, so it has already been scanned
        try:
            with workspace.open_folder(path) as folder:
                entries = folder.entries()
                remaining -= entries.total
                if remaining < 0:
                    continue
                stats = [(name, folder.stat(name)) for name in (*entries.files, *entries.links, *entries.others)]
            if parent_scope is not None:
                scope = scope_below(workspace, filters, parent_scope, path, names_of_ignore_files(entries.dot_names))
            else:
                scope = scope_of(workspace, workspace.at(path), git=True, agent=filters.agent)
                if not scope.git:
                    continue  # git's ignore rules apply only in a work tree
        except FileNotFoundError:
            continue  # the folder has been removed
        except (OSError, ToolError):
            state.skipped.add(path)  # the folder, or an agent-ignore file in it, cannot be read or parsed
            continue
        state.folders[path] = (
            scope,
            {
                name: (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
                for name, info in stats
                if info is not None
            },
        )
        hidden_names = scope.hidden_among(entries.folders, is_folder=True)
        state.skipped.update(os.path.join(path, name) for name in hidden_names)
        pending += [(os.path.join(path, name), scope) for name in entries.folders if name not in hidden_names]
    return state if state.folders else None


def changes_since(before: WorkspaceState, workspace: Workspace, signal: AbortSignal) -> str:
    """Return a line that names the changed files; empty if there are none or they are unknown. Blocking."""
    after = state_of(workspace, signal)
    if after is None:
        return ""  # see `why_unknown`
    skipped_folders = before.skipped | after.skipped
    changes: list[tuple[str, str]] = []
    for folder in before.folders.keys() | after.folders.keys():
        old, new = before.files_of(folder), after.files_of(folder)
        # A file that is missing from one of the two states was not necessarily created or removed, because a changed
        # ignore file may hide its folder.
        if old == new or not skipped_folders.isdisjoint(map(str, (Path(folder), *Path(folder).parents))):
            continue
        scopes = [state.folders[folder][0] for state in (before, after) if folder in state.folders]
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name) and not any(scope.hides(name, is_folder=False) for scope in scopes):
                action = "created" if name not in old else "deleted" if name not in new else "changed"
                changes.append((action, os.path.join(folder, name)))
    return _sentence(changes, before, after, workspace) if changes else ""


def why_unknown(workspace: Workspace, client_key: str) -> str:
    """Return why no changed files were named, if a workspace is too large and the client has not been told; or ""."""
    roots = tuple(workspace.roots)
    if _too_large.get(roots, 0.0) <= time.monotonic() or (client_key, *roots) in _told:
        return ""
    if len(_told) >= MAX_TOLD:
        _told.clear()
    _told.add((client_key, *roots))
    return (
        "Files that commands change are not listed here, because the workspace has more than "
        f"{MAX_ENTRIES:,} files and folders, or is slow to read. Use git status."
    )


def _sentence(
    changes: Sequence[tuple[str, str]], before: WorkspaceState, after: WorkspaceState, workspace: Workspace
) -> str:
    """Return the line about changes, each an action and a path. Of many, new and removed folders are named as one."""

    def place_of(action: str, path: str) -> str:
        known_folders = after.folders if action == "deleted" else before.folders
        while (parent := os.path.dirname(path)) not in known_folders and parent not in workspace.roots:
            path = parent
        return path

    def display_path(path: str) -> str:
        text = shown_path(workspace.at(path).relative if len(workspace.roots) == 1 else path)
        # Punctuation could make a name look like several names, or like the end of the sentence.
        names = text.split(os.sep)
        return os.sep.join(json.dumps(name, ensure_ascii=False) if _is_ambiguous(name) else name for name in names)

    paths_by_place: dict[tuple[str, str], list[str]] = {}
    for action, path in sorted(changes):
        place = place_of(action, path) if len(changes) > MAX_NAMED else path
        paths_by_place.setdefault((action, place), []).append(path)
    named = [*islice(paths_by_place.items(), MAX_NAMED)]
    listing = "; ".join(
        f"{action} "
        + ", ".join(
            display_path(paths[0]) if len(paths) == 1 else f"{display_path(place)}{os.sep} ({len(paths):,} files)"
            for (_, place), paths in group
        )
        for action, group in groupby(named, key=lambda item: item[0][0])
    )
    unnamed_count = len(changes) - sum(len(paths) for _, paths in named)
    remainder = f" and {unnamed_count:,} more" if unnamed_count else ""
    return (
        f"Files that changed during this call, because of the command or another program: {listing}{remainder}. "
        "undo_change cannot undo changes by commands."
    )
