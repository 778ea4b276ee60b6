"""Programs by their absolute path, never from the workspace, where anybody may have put one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tools.files.workspace import contains


def find_program(name: str, search_path: str, roots: Sequence[str]) -> str | None:
    """The first program of this name that lies outside the workspace.

    Args:
        name: Its base name.
        search_path: Folders as `PATH` lists them; relative ones are passed over.
        roots: Real paths of the workspace's folders.
    """
    for folder in search_path.split(os.pathsep):
        program = os.path.join(folder, name)
        if os.path.isabs(folder) and is_program(program) and is_outside(program, roots):
            return program
    return None


def find_configured(name: str, search_path: str, folder: str | None, roots: Sequence[str]) -> str | None:
    """The absolute path of a program as an operator names it in the settings.

    A name without a folder is looked for outside the workspace. Whoever gives a path means that one file, wherever it
    lies; `~` is the home folder.

    Args:
        name: The program's name, or a path.
        search_path: Folders as `PATH` lists them, from the environment in which the program will run.
        folder: Where relative paths start: a folder that the operator has chosen. `None` where clients choose the
            folder, so that a relative path would be another program for each of them: none is taken.
        roots: Real paths of the workspace's folders.

    Returns:
        The program, or `None` if it is not there or cannot be run.
    """
    if os.path.basename(name) == name:
        return find_program(name, search_path, roots)
    path = os.path.expanduser(name)
    if folder is None and not os.path.isabs(path):
        return None
    program = os.path.abspath(os.path.join(folder or "", path))
    return program if is_program(program) else None


def is_outside(program: str, roots: Sequence[str]) -> bool:
    """Whether a program lies outside the workspace, and a link to it does, too."""
    real = (os.path.realpath(os.path.dirname(program)), os.path.realpath(program))
    return not any(contains(root, path) for root in roots for path in real)


def is_program(path: str) -> bool:
    """Whether this can be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
