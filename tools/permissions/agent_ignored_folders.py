"""What agent-ignore files hide from a command that reads a whole folder, which no tool reads for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tools.contract.errors import ToolError
from tools.files.ignore_files import (
    AGENT_IGNORE_FILES,
    GIT_FOLDER,
    PresentNames,
    rules_for_agents,
    scope_of,
    shown_below,
)
from tools.files.workspace import Location, Workspace, contains

LOOK_SECONDS = 1.0
"""How long agent-ignore files are looked for below one folder; a shell command waits for it."""

_MAX_COMPARED = 10_000
"""So many entries are compared with the rules before a command reads a folder; it takes some 50 ms."""

_ENTRIES_PER_LOOK = 500
"""Entries between two looks at the clock."""

_SOME_FILE = "an agent-ignore file"
"""What one is called where it is not known whether there is any."""


def agent_ignore_file_below(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that may hide something in a folder or beneath it, or where links in it lead. Blocking.

    Returns:
        Its path below the root, as it is shown, or what to call it where it is not known whether there is one; `None`
        if nothing there can be hidden or the workspace does not respect these files.
    """
    if not workspace.respect_agent_ignore:
        return None
    try:
        return _file_in_force(workspace, location) or _file_beneath(workspace, location)
    except (OSError, ToolError):
        return _SOME_FILE


def agent_ignore_file_hiding(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that hides something that is in a folder or beneath it now. Blocking.

    Returns:
        As `agent_ignore_file_below`; also where there are links, or more entries than are looked at.
    """
    if (below := agent_ignore_file_below(workspace, location)) is None:
        return None
    looked = 0
    try:
        waiting = [scope_of(workspace, location, git=False, agent=True)]
        while waiting:
            scope = waiting.pop()
            entries = list(_entries_of(scope.folder))
            looked += len(entries)
            if looked > _MAX_COMPARED or any(entry.is_symlink() for entry in entries):
                return below
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if (hiding := scope.deciding(entry.name, is_folder=is_folder)) is not None:
                    return shown_below(location.root, hiding.path)
                if is_folder and entry.name != GIT_FOLDER:
                    waiting.append(scope.enter(entry.path, PresentNames(entry.path)))
    except (OSError, ToolError):
        return below
    return None


def _file_in_force(workspace: Workspace, location: Location) -> str | None:
    """An agent-ignore file that a folder comes under.

    Raises:
        ToolError: `path_ignored`: it is not known what it hides.
    """
    files = scope_of(workspace, location, git=False, agent=True).agent
    return shown_below(location.root, files[-1].path) if files else None


def _file_beneath(workspace: Workspace, start: Location) -> str | None:
    """An agent-ignore file beneath a folder, or that counts where a link beneath it leads.

    Raises:
        OSError: Not all could be looked at.
        ToolError: `path_ignored`: it is not known what it hides.
    """
    until = time.monotonic() + LOOK_SECONDS
    waiting, led_to = [start.path], {start.path}
    while waiting:
        folder = waiting.pop()
        for number, entry in enumerate(_entries_of(folder)):
            if number % _ENTRIES_PER_LOOK == 0 and time.monotonic() > until:
                return _SOME_FILE
            if entry.name in AGENT_IGNORE_FILES and rules_for_agents(folder, entry.name):
                return shown_below(start.root, entry.path)
            if entry.is_symlink():
                path = os.path.realpath(entry.path)
                if path in led_to or contains(start.path, path) or not workspace.holds(path):
                    continue
                led_to.add(path)
                if (hidden_by := _file_in_force(workspace, workspace.at(path))) is not None:
                    return hidden_by
                waiting.append(path)
            elif entry.name != GIT_FOLDER and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return None


def _entries_of(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where there is none, or where commands cannot look into it either.

    Raises:
        OSError: It cannot be read for another reason.
    """
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
