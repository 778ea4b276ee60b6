"""Programs by their absolute path, never from the workspace, where anybody may have put one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tools.files.workspace import contains


def find_program(name: str, search_path: str, roots: Sequence[str]) -> str | None:
    """The first program of this name that lies outside the workspace, whose roots are given as real paths.

    The search path lists folders as `PATH` does; relative ones are passed over.
    """
    for folder in search_path.split(os.pathsep):
        program = os.path.join(folder, name)
        if os.path.isabs(folder) and is_program(program) and is_outside(program, roots):
            return program
    return None


def find_configured(name: str, search_path: str, folder: str | None, roots: Sequence[str]) -> str | None:
    """The absolute path of a program as an operator names it in the settings; `None` if it cannot be run.

    A name without a folder is looked for outside the workspace. Whoever gives a path means that one file, wherever
    it lies; `~` is the home folder. A relative path starts from a folder that the operator has chosen; where clients
    choose the folder, it would be another program for each of them, so none is taken (`folder` is `None`).
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
    return os.path.isfile(path) and os.access(path, os.X_OK)
