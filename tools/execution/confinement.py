"""Where a command runs: as it is, or in a sandbox that shows it no more than it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tools.execution.process import ProcessSpec


@dataclass(frozen=True, slots=True)
class Confined:
    """A command ready to be started.

    Args:
        spec: What is to be started, the sandbox's own program in front where there is one.
        sandbox: What confines it: `bwrap`, or `none`.
        network: What it reaches: `host` for all that this machine reaches, `none` for nothing.
    """

    spec: ProcessSpec
    sandbox: str = "none"
    network: str = "host"

    async def release(self) -> tuple[str, ...]:
        """Give back what is held for the command, once everything of it has ended, or if it was not started.

        Returns:
            Paths of files that steer programs outside the sandbox, new since the command began.
        """
        return ()


class Confinement(Protocol):
    """Decides where a command runs."""

    async def confine(self, spec: ProcessSpec, workspace_roots: Sequence[str]) -> Confined:
        """Put a command into a sandbox, or leave it as it is.

        Args:
            spec: The command as it would be started without a sandbox.
            workspace_roots: Real paths of the folders it may change.

        Raises:
            ToolError: A sandbox is required, and none works here.
        """
        ...


class Plain:
    """No sandbox: every command runs as it is."""

    async def confine(self, spec: ProcessSpec, workspace_roots: Sequence[str]) -> Confined:
        """Leave the command as it is."""
        del workspace_roots
        return Confined(spec)
