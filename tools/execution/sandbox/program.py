"""The program of the sandbox: where it is, and whether it works."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tools.filesystem.programs import find_program

USUAL_FOLDER = "/usr/bin"
"""AppArmor on Ubuntu lets the program make user namespaces in this folder only."""

NOT_LINUX = "there is none for this system, only for Linux"
"""A failure that nobody mends."""


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """Whether there is a sandbox.

    Args:
        program: The absolute path of bubblewrap, `None` where there is none.
        failure: Why it is not used, as the middle of a sentence; `None` where it works.
    """

    program: str | None
    failure: str | None


def find_bubblewrap(search_path: str, roots: Sequence[str]) -> str | None:
    """The program outside all workspace roots: in its usual folder, else from the search path."""
    return find_program("bwrap", f"{USUAL_FOLDER}{os.pathsep}{search_path}", roots)
