"""What a call touches, as far as rules can be about it: paths, a shell command, hosts, agents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Access(StrEnum):
    """What something is touched for."""

    READ = "read"
    WRITE = "write"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class PathSubject:
    """A file or folder.

    Args:
        access: What it is touched for.
        path: Its real path, every link resolved.
        named: The absolute path as it was named, links not resolved; a rule about either one holds.
    """

    access: Access
    path: str
    named: str


@dataclass(frozen=True, slots=True)
class CommandSubject:
    """A shell command.

    Args:
        command: The whole text.
        directory: The real path of the folder it starts in.
    """

    command: str
    directory: str


@dataclass(frozen=True, slots=True)
class HostSubject:
    """A host that is fetched from."""

    host: str


@dataclass(frozen=True, slots=True)
class AgentSubject:
    """An agent that is given a task."""

    name: str


Subject = PathSubject | CommandSubject | HostSubject | AgentSubject
