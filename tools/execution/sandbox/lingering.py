"""Names that stay free for a moment after a command, since the next one mostly comes soon.

To make and remove a folder takes a file system longer than all else that is prepared for a sandbox, and whoever watches
the workspace is told of each. Only names of folders are kept: in an empty folder anybody can put something at once, but
a file cannot be made where one stands.
"""

from __future__ import annotations

import os
from asyncio import get_running_loop

from tools.contract.threads import THREADS
from tools.execution.sandbox.placeholders import Placeholders
from tools.permissions.steering_files import ABSENT_FOLDERS, REPOSITORY_FOLDERS

SECONDS = 1.0
"""How long after a command."""

_FOLDERS = frozenset(map(os.path.basename, (*ABSENT_FOLDERS, *REPOSITORY_FOLDERS)))


class Lingering:
    """The names that are kept.

    Args:
        seconds: How long; 0 keeps none.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._kept: set[Placeholders] = set()

    @property
    def names(self) -> frozenset[str]:
        """Those that are kept."""
        return _FOLDERS if self._seconds else frozenset()

    def keep(self, placeholders: Placeholders) -> None:
        """Take over what a command still holds, and give it back soon. What was kept of the same before is let go."""
        for older in [kept for kept in self._kept if set(kept.paths) <= set(placeholders.paths)]:
            self._let_go(older)
        self._kept.add(placeholders)
        get_running_loop().call_later(self._seconds, self._let_go, placeholders)

    def close(self) -> None:
        """Give back everything. Blocks for milliseconds."""
        while self._kept:
            self._kept.pop().close()

    def _let_go(self, placeholders: Placeholders) -> None:
        if placeholders in self._kept:
            self._kept.remove(placeholders)
            # Nobody waits for that.
            THREADS.begin(placeholders.close)
