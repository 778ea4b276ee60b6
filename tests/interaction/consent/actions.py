"""The calls with side effects that the tests of consent make, and how often each has taken effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.all_tools import builtin_tools

Snapshot = Mapping[str, tuple[int, int, bytes | None]]


def snapshot(folder: Path) -> Snapshot:
    """Return the inode, the modification time and the content of every entry below a folder."""
    entries: dict[str, tuple[int, int, bytes | None]] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        entries[path.relative_to(folder).as_posix()] = (info.st_ino, info.st_mtime_ns, content)
    return entries


@dataclass(frozen=True, slots=True)
class Action:
    """A call with a side effect that needs consent.

    Args:
        tool: The tool's name.
        arguments: Returns the arguments of the call for a folder that it may use.
        times: Counts how often the action has taken effect in the folder.
        file: The file that it writes, relative to the folder, if the question shows the file's state.
    """

    tool: str
    arguments: Callable[[Path], Mapping[str, Any]]
    times: Callable[[Path], int]
    file: str | None = None

    def __str__(self) -> str:
        return self.tool


NOTES = "notes.txt"
"""A file in every folder that a call may use."""

NOTES_TEXT = "first\nlast\n"

EDIT = Action(
    "edit",
    lambda folder: {"file_path": str(folder / NOTES), "old_string": "last", "new_string": "more last"},
    lambda folder: (folder / NOTES).read_text().count("more "),
    NOTES,
)

WRITE = Action(
    "write_file",
    lambda folder: {"file_path": str(folder / "new" / "made.txt"), "content": "text\n"},
    lambda folder: int((folder / "new" / "made.txt").exists()),
    "new/made.txt",
)

SHELL = Action(
    "run_shell_command",
    lambda folder: {"command": "mktemp made.XXXXXX", "directory": str(folder)},
    lambda folder: len(list(folder.glob("made.*"))),
)

_TOOL_NAMES = {tool.name for tool in builtin_tools()}

ACTIONS = [action for action in (EDIT, WRITE, SHELL) if action.tool in _TOOL_NAMES]
"""One action for each kind of side effect that the built-in tools have."""

CHANGES = [action for action in ACTIONS if action.file is not None]
"""The actions whose question shows a file, so that the answer is bound to the file's state."""


by_action = pytest.mark.parametrize("action", ACTIONS, ids=str)
"""Repeats a test for each action."""
