"""What outlives a call and is shared by all clients, as far as tools use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.execution.runner import CommandRunner


@dataclass(frozen=True, slots=True)
class Services:
    """The services that tools are given. Each is made when it is first asked for.

    Args:
        runner: Gives what runs shell commands, or `None` where none can be run.
    """

    runner: Callable[[], CommandRunner] | None = None

    @property
    def commands(self) -> CommandRunner | None:
        """What runs shell commands."""
        return self.runner() if self.runner is not None else None
