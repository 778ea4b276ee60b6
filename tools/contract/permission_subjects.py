"""What permission rules can be about: the kind of a tool, and the paths, commands, hosts and agents a call touches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tools.contract.command_views import UNHELD, CommandSite


class ToolKind(StrEnum):
    """What a tool does to the world, in the words of Qwen Code and Gemini CLI.

    `COMMUNICATE` speaks with the user: no rule and no approval mode answers in a person's place.
    """

    READ = "read"
    EDIT = "edit"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    COMMUNICATE = "communicate"
    OTHER = "other"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ToolTraits:
    """What permissions go by of a tool, whatever a call of it touches."""

    name: str  # the name used in calls
    kind: ToolKind  # what rules and approval modes group tools by
    # The names that permission rules may call it by. The first one is nobody else's, now and later.
    rule_names: tuple[str, ...]
    # Names that may be another tool's tomorrow: only rules that ask or refuse count them
    loose_rule_names: tuple[str, ...] = ()
    read_only: bool = False  # it changes nothing
    is_builtin: bool = False  # it is one of this server's own
    server: str = ""  # the alias of the server behind this one that it is of

    @property
    def only_reads_or_talks(self) -> bool:
        """Whether it changes nothing but plans and what is said."""
        return self.read_only or self.kind in (ToolKind.THINK, ToolKind.COMMUNICATE)


class Access(StrEnum):
    """What something is touched for."""

    READ = "read"
    WRITE = "write"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class PathSubject:
    """A file or folder."""

    access: Access  # what it is touched for
    path: str  # its real path, every link resolved; the one below `/tmp` of what lies in the client's scratch folder
    named: str  # the absolute path as it was named, links not resolved; a rule about either one holds
    in_scratch: bool = False  # whether it lies in the client's scratch folder


class Needs(StrEnum):
    """What a command may ask for beyond the view that its words get."""

    WRITE = "write"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class CommandSubject:
    """A shell command."""

    command: str  # the whole text
    directory: str  # the folder it starts in, by the real path or the name below `/tmp` that a `PathSubject` has
    site: CommandSite = UNHELD
    needs: Needs | None = None  # what the caller says that its usual view is too small for
    is_background: bool = False  # whether it goes on after its call


@dataclass(frozen=True, slots=True)
class HostSubject:
    """A host that is fetched from."""

    host: str


@dataclass(frozen=True, slots=True)
class AgentSubject:
    """An agent that is given a task."""

    name: str


Subject = PathSubject | CommandSubject | HostSubject | AgentSubject
