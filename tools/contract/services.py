"""What outlives a call and is shared by all clients, as far as tools use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.execution.runner import CommandRunner


@dataclass(frozen=True, slots=True)
class Services:
    """The services that tools are given.

    Args:
        commands: Runs shell commands, or `None` where none can be run.
    """

    commands: CommandRunner | None = None
