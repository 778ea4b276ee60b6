"""Where a command runs: as it is, or in a sandbox that shows it no more than it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tools.execution.process import ProcessSpec


class NetworkAccess(StrEnum):
    """What a command reaches: nothing, or all that this machine reaches (`shell.network`)."""

    NONE = "none"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class SteeringChanges:
    """What is known, after a command, of the files that steer programs outside its sandbox.

    Args:
        new: Paths of those that were not there when it began, whoever made them.
        set_aside: Where those are now that were renamed, so that no program obeys them.
        changed: Paths of those that are gone now, or are not what they were, whoever did that.
        uncovered: How many files and folders could not be kept from it, since there are too many.
    """

    new: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    uncovered: int = 0


@dataclass(frozen=True, slots=True)
class Withheld:
    """A known place of secrets that a command does not see as it is.

    Args:
        path: Where it is.
        programs: What may fail for want of it, by what commands call them.
        is_copy: Whether a copy without secret values is seen in its place, else nothing is.
    """

    path: str
    programs: frozenset[str]
    is_copy: bool


@dataclass(frozen=True, slots=True)
class Confined:
    """A command ready to be started.

    Args:
        spec: What is to be started, the sandbox's own program in front where there is one.
        sandbox: What confines it: `bwrap`, or `none`.
        network: What it reaches.
        withheld: Which known places of secrets it does not see as they are.
    """

    spec: ProcessSpec
    sandbox: str = "none"
    network: NetworkAccess = NetworkAccess.HOST
    withheld: tuple[Withheld, ...] = field(default=(), kw_only=True)

    async def begin(self) -> None:
        """Let the command begin, which was started; until then nothing of it runs.

        Raises:
            ToolError: It must not begin, and has to be ended: it is not confined as it was meant to be.
        """

    async def release(self) -> SteeringChanges:
        """Give back what is held for the command, once everything of it has ended, or if it was not started."""
        return SteeringChanges()


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
