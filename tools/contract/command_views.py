"""What a command can see and change: the view of the machine that was decided for it.

The words of a command decide which rule applies; the view limits what the command does, whatever its words turn out to
mean. The policy makes a view, a question shows it, and an answer is bound to it. The runner starts the command in
exactly this view or refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Engine(StrEnum):
    """The mechanism that keeps a command in its view."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"  # for the reading view only
    NONE = "none"


class ViewKind(StrEnum):
    READING = "reading"  # only `/tmp` can be written; only the workspace and the system can be seen
    WORKING = "working"  # the workspace can be written
    UNCONFINED = "unconfined"  # everything that this server's user may do: the command runs without a sandbox


class Network(StrEnum):
    """What a command can connect to."""

    OWN_LOOPBACK = "own loopback"  # only itself
    SESSION_LOOPBACK = "session loopback"  # servers started by other commands of the session
    HOST = "host"  # everything that this machine can reach


# What every program needs from the machine and every user may read, except for some files in `/etc`.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc")
MAX_PATHS_TOLD = 50  # paths of each kind that the facts of a view list


@dataclass(frozen=True, slots=True)
class FileRestrictions:
    """What file rules deny to a command, given the disk as it is now. All paths are real and absolute."""

    masked: tuple[str, ...] = ()  # files and folders that cannot be opened
    read_only: tuple[str, ...] = ()  # files and folders that cannot be changed
    # Their parent folders: renaming one would take the mount along
    pinned: tuple[str, ...] = ()
    # The rule or agent-ignore file responsible for each masked or read-only path
    why: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


NO_RESTRICTIONS = FileRestrictions()


@dataclass(frozen=True, slots=True)
class CommandSite:
    """The conditions for all commands of one client."""

    engine: Engine
    failure: str = ""  # why bubblewrap is not used, phrased for the middle of a sentence
    is_required: bool = False  # whether commands may run only in a sandbox
    shown: tuple[str, ...] = ()  # real paths that a reading view shows besides the workspace
    has_network: bool = True  # whether the operator gives commands any network
    has_session: bool = True  # whether the client can be told apart from others
    scratch: str | None = None  # the real path of the folder that is the client's `/tmp`


UNHELD = CommandSite(Engine.NONE)


@dataclass(frozen=True, slots=True)
class CommandView:
    """The view of the machine that a command runs in."""

    engine: Engine
    kind: ViewKind
    network: Network
    seen: tuple[str, ...] = ()  # readable: real paths outside the view, and hidden files, named in the question
    writable: tuple[str, ...] = ()  # writable: real paths outside the workspace, and auto-run files, named in it
    spelled: tuple[str, ...] = field(default=(), compare=False)  # paths in the command that lead through symlinks
    is_git: bool = False  # whether only git changes anything; the repository's own files are then writable
    is_asked: bool = False  # whether a person was asked about this very command
    is_plan: bool = False  # whether it runs in plan mode, which has its own `/tmp`
    # Whether its `/tmp` starts empty. This is so if a rule lets it run, or if it reads with the network: files there
    # may hold content that nobody was asked about
    has_new_tmp: bool = False
    # Whether it may use per-user kernel resources that all programs share. A command that only reads can do without
    may_take_shares: bool = True
    restrictions: FileRestrictions = NO_RESTRICTIONS  # what file rules deny to it, at the time of the decision
    # Reads again what file rules deny to it. Blocking. Raises a `ToolError` if that cannot be enforced.
    look: Callable[[], FileRestrictions] = field(default=lambda: NO_RESTRICTIONS, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """Return a digest that binds an answer to this view."""
        restricted = (self.restrictions.masked, self.restrictions.read_only)
        parts = (self.engine, self.kind, self.network, self.seen, self.writable, self.is_git, self.is_plan, restricted)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def facts(self) -> Mapping[str, str | Sequence[str]]:
        """Describe the view for the audit log and `permissions explain`."""
        restricted = self.restrictions
        opened = {"sees": self.seen, "writes": self.writable, "hidden": restricted.masked, "kept": restricted.read_only}
        names = {name: [*paths[:MAX_PATHS_TOLD]] for name, paths in opened.items() if paths}
        return {"engine": self.engine.value, "view": self.kind.value, "network": self.network.value, **names}


UNCONFINED = CommandView(Engine.NONE, ViewKind.UNCONFINED, Network.HOST)
"""The view of a command without a sandbox."""
