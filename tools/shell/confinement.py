"""Where a command runs: as it is, or in a sandbox that shows it no more than it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tools.contract.permission_subjects import NO_WAIVER, Waiver
from tools.shell.process import ProcessSpec


class NetworkAccess(StrEnum):
    """What a command reaches: nothing, or all that this machine reaches (`shell.network`)."""

    NONE = "none"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class SandboxChanges:
    """What a command did to files that programs outside its sandbox obey, and to its `/tmp`."""

    moved: tuple[tuple[str, str], ...] = ()  # those that were not there when it began, and where they are
    unmovable: tuple[str, ...] = ()  # paths of those that could not be moved
    changed: tuple[str, ...] = ()  # paths of those that are gone now, or are not what they were, whoever did that
    uncovered: int = 0  # how many files and folders could not be kept from it, since there are too many
    temporary_bytes: int = 0  # how much its `/tmp` held that was emptied, since that was too much; else 0
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class WithheldSecret:
    """A known place of secrets that a command does not see as it is."""

    path: str
    programs: frozenset[str]  # what may fail for want of it, by what commands call them
    is_copy: bool  # whether a copy without secret values is seen in its place, else nothing is


@dataclass(slots=True)
class ConfinedCommand:
    spec: ProcessSpec  # what is to be started, the sandbox's own program in front where there is one
    sandbox: str = "none"  # what confines it: `bwrap`, or `none`
    network: NetworkAccess = NetworkAccess.HOST
    withheld: tuple[WithheldSecret, ...] = field(default=(), kw_only=True)  # what it does not see as it is

    async def begin(self) -> None:
        """Let the command begin, which was started; until then nothing of it runs.

        A `ToolError` if it must not, and has to be ended: it is not confined as it was meant to be.
        """

    async def release(self) -> SandboxChanges:
        """Give back what is held for the command, once everything of it has ended, or if it was not started."""
        return SandboxChanges()


class Confinement(Protocol):
    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        waiver: Waiver = NO_WAIVER,
        private_folder: Callable[[], str] | None = None,
        /,
    ) -> ConfinedCommand:
        """Put a command into a sandbox, or leave it as it is; a `ToolError` if one is required and none works here.

        The roots are real paths of the folders it may change. The private folder is made where the client has one, for
        its `/tmp` and for what is taken out of the workspace; that blocks.
        """
        ...
