"""What clients ask for in the tests of consent, and how often it has happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.all_tools import builtin_tools

Snapshot = Mapping[str, tuple[int, int, bytes | None]]


def snapshot(folder: Path) -> Snapshot:
    """Everything beneath a folder: identity, time of change and bytes of each entry."""
    found: dict[str, tuple[int, int, bytes | None]] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[path.relative_to(folder).as_posix()] = (info.st_ino, info.st_mtime_ns, content)
    return found


@dataclass(frozen=True, slots=True)
class Action:
    """A call with a side effect that needs consent.

    Args:
        tool: The tool.
        arguments: What it is called with, for a folder that the call may use.
        times: How often it has taken effect in the folder.
        file: The file that it writes, where the question shows its state.
    """

    tool: str
    arguments: Callable[[Path], Mapping[str, Any]]
    times: Callable[[Path], int]
    file: str | None = None

    def __str__(self) -> str:
        return self.tool


NOTES = "notes.txt"
"""Stands in every folder that a call may use."""

BEFORE = "first\nlast\n"

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

_OFFERED = {tool.name for tool in builtin_tools()}

ACTIONS = [action for action in (EDIT, WRITE, SHELL) if action.tool in _OFFERED]
"""Each kind of side effect that the built-in tools have."""

CHANGES = [action for action in ACTIONS if action.file is not None]
"""Those whose question shows a file, so that the answer is bound to its state."""


by_action = pytest.mark.parametrize("action", ACTIONS, ids=str)
"""A test for each of these actions."""
