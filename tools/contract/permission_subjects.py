"""The subjects of permission rules: the kind of a tool, and the paths, commands, hosts and agents of a call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tools.contract.command_views import UNSANDBOXED_SITE, CommandSite


class ToolKind(StrEnum):
    """What a tool does, in the words of Qwen Code and Gemini CLI.

    A `COMMUNICATE` tool talks with the user, so rules and approval modes cannot answer for the user.
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
    """The facts about a tool on which permission decisions depend, regardless of what a particular call touches."""

    name: str  # the tool's name in calls
    kind: ToolKind  # the tool's group in rules and approval modes
    # Names for the tool in permission rules. No other tool ever uses the first of them.
    rule_names: tuple[str, ...]
    # Names that may later belong to another tool. Only rules that ask or deny may use them
    loose_rule_names: tuple[str, ...] = ()
    read_only: bool = False  # whether the tool changes nothing
    is_builtin: bool = False  # whether the tool is built into this server
    server: str = ""  # the alias of the upstream server that offers the tool

    @property
    def only_reads_or_talks(self) -> bool:
        """True if the tool changes nothing except plans and the conversation."""
        return self.read_only or self.kind in (ToolKind.THINK, ToolKind.COMMUNICATE)


class Access(StrEnum):
    READ = "read"
    WRITE = "write"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class PathSubject:
    access: Access  # what the path is used for
    path: str  # the real path, without symlinks; for a file in the client's scratch folder, its path under `/tmp`
    unresolved_path: str  # the absolute path as written, without resolving symlinks; a rule may match either path
    in_scratch: bool = False  # whether the file is in the client's scratch folder


class Needs(StrEnum):
    """Rights that a command may request beyond its usual view."""

    WRITE = "write"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class CommandSubject:
    command: str  # the whole text
    directory: str  # the working directory: its real path, or a path under `/tmp` as in a `PathSubject`
    site: CommandSite = UNSANDBOXED_SITE
    needs: Needs | None = None  # the caller's request for more than the usual view
    is_background: bool = False  # whether the command continues after its call


@dataclass(frozen=True, slots=True)
class HostSubject:
    host: str


@dataclass(frozen=True, slots=True)
class AgentSubject:
    name: str


Subject = PathSubject | CommandSubject | HostSubject | AgentSubject
