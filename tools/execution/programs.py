"""Programs by their absolute path, never from a folder where anybody may have put one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tools.filesystem.workspace import contains


def find_program(name: str, search_path: str, roots: Sequence[str]) -> str | None:
    """The first program of this name that lies outside the workspace.

    Args:
        name: Its base name.
        search_path: Folders as `PATH` lists them; relative ones are passed over.
        roots: Real paths of the workspace's folders.
    """
    for folder in search_path.split(os.pathsep):
        program = os.path.join(folder, name)
        if not os.path.isabs(folder) or not is_program(program):
            continue
        real = (os.path.realpath(folder), os.path.realpath(program))
        if not any(contains(root, path) for root in roots for path in real):
            return program
    return None


def is_program(path: str) -> bool:
    """Whether this can be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
