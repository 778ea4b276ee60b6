"""A layer of the settings: what one file, or the command line, says. And the order in which layers count."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from server.settings.merge import Tree


class Rank(IntEnum):
    """Where a layer comes from. A later one wins."""

    CLI_DEFAULTS = 0
    """What `--settings` itself stands for, before any file."""

    SYSTEM_DEFAULTS = 1
    """The other CLI's defaults for this machine."""

    USER = 2
    """Our own user's file."""

    CLI_USER = 3
    """The other CLI's file of this user."""

    CLI_PROJECT = 4
    """The other CLI's file in the workspace."""

    WORKSPACE = 5
    """Our own file in the workspace."""

    SYSTEM_OVERRIDES = 6
    """The other CLI's file that overrides its users'."""

    CONFIG = 7
    """A file named on the command line."""

    COMMAND_LINE = 8

    @property
    def joins(self) -> bool:
        """Whether its lists of rules are put to those below, which they never take back."""
        return Rank.CLI_USER <= self <= Rank.SYSTEM_OVERRIDES or self is Rank.COMMAND_LINE


@dataclass(slots=True)
class Layer:
    """What one source says.

    Args:
        rank: Where it comes from.
        source: What it is called in sentences: the path of a file.
        data: Its content.
        folder: What relative paths in it start from; empty is the working folder.
        names: For each alias of its servers, the name that stands there.
    """

    rank: Rank
    source: str
    data: Tree
    folder: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])


class FileState(StrEnum):
    """What became of a place where settings may stand."""

    READ = "read"
    ABSENT = "not there"
    UNTRUSTED = "not trusted"
    CHANGED = "changed since it was trusted"
    UNUSABLE = "not usable"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A place where settings may stand.

    Args:
        path: The file.
        rank: What it would be.
        state: What became of it.
    """

    path: str
    rank: Rank
    state: FileState
