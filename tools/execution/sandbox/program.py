"""The program of the sandbox: where it is, and whether it works."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tools.execution.sandbox.paths import is_beneath

PREFERRED = "/usr/bin/bwrap"
"""AppArmor on Ubuntu lets the program make user namespaces at this path only."""

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
    """The program: at its usual place, else from an absolute entry of the search path outside all workspace roots."""
    folders = (folder for folder in search_path.split(os.pathsep) if os.path.isabs(folder))
    for path in (PREFERRED, *(os.path.join(folder, "bwrap") for folder in folders)):
        real = os.path.realpath(path)
        if not any(is_beneath(real, root) for root in roots) and os.path.isfile(real) and os.access(real, os.X_OK):
            return path
    return None
