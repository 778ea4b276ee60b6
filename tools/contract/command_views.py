"""What a command will be able to see and to change: the view of the machine that its verdict decided on.

Words decide which rule a command is under; the view holds whatever the words turn out to mean. The policy makes a view,
a question shows it, an answer is bound to it, and what runs the command makes exactly this view or refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Engine(StrEnum):
    """What holds a command in its view."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"  # for the reading view alone
    NONE = "none"


class ViewKind(StrEnum):
    READING = "reading"  # nothing but `/tmp` can be written, and nothing outside the workspace and the system is seen
    WORKING = "working"  # the workspace can be written
    UNCONFINED = "unconfined"  # everything this server's user may: the command runs without a sandbox


class Network(StrEnum):
    """What a command can connect to."""

    OWN_LOOPBACK = "own loopback"  # itself alone
    SESSION_LOOPBACK = "session loopback"  # what other commands of the session listen on
    HOST = "host"  # all that this machine reaches


# What every program needs of a machine and every user may read, but for some files of `/etc`.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc")
MAX_PATHS_TOLD = 50  # of each kind in the facts of a view


@dataclass(frozen=True, slots=True)
class FileRestrictions:
    """What rules about files keep from a command, as the disk is now. All paths are real and absolute."""

    masked: tuple[str, ...] = ()  # files and folders that cannot be opened
    read_only: tuple[str, ...] = ()  # files and folders that stay as they are
    # Folders on the way to these: one that is renamed takes the mount along
    pinned: tuple[str, ...] = ()
    # Of what is masked or stays, the rule or agent-ignore file that says so
    why: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


NO_RESTRICTIONS = FileRestrictions()


@dataclass(frozen=True, slots=True)
class CommandSite:
    """What commands of one client meet here, whatever they are."""

    engine: Engine
    failure: str = ""  # why the engine is not bubblewrap, as the middle of a sentence
    is_required: bool = False  # whether nothing may run without a sandbox
    shown: tuple[str, ...] = ()  # real paths that a reading view shows beside the workspace
    has_network: bool = True  # whether the operator gives commands the network at all
    has_session: bool = True  # whether the client can be told from others
    scratch: str | None = None  # the real path of the folder that is the client's `/tmp`


UNHELD = CommandSite(Engine.NONE)


@dataclass(frozen=True, slots=True)
class CommandView:
    """The view in which a command may run."""

    engine: Engine
    kind: ViewKind
    network: Network
    seen: tuple[str, ...] = ()  # real paths outside the view, and hidden files, that the question named: can be read
    writable: tuple[
        str, ...
    ] = ()  # real paths outside the workspace, and auto-run files, that it named: can be written
    spelled: tuple[str, ...] = field(default=(), compare=False)  # the paths in its words that lead over links
    is_git: bool = False  # whether nothing but git changes anything: the repository's own files are writable to it
    is_asked: bool = False  # whether somebody was asked about this very command
    is_plan: bool = False  # whether it runs in plan mode, which has a `/tmp` of its own
    # Whether its `/tmp` is empty at first, since a rule lets it run, or it reads with the network: there may be what
    # nobody was asked about
    has_new_tmp: bool = False
    # Whether it may take of what the kernel gives each user for all programs together, and a reader can do without
    may_take_shares: bool = True
    restrictions: FileRestrictions = NO_RESTRICTIONS  # what rules about files keep from it, when it was judged
    # Looks at what rules about files keep from it, now. Blocking. A `ToolError` where that cannot be kept from it.
    look: Callable[[], FileRestrictions] = field(default=lambda: NO_RESTRICTIONS, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """Binds an answer to this view."""
        restricted = (self.restrictions.masked, self.restrictions.read_only)
        parts = (self.engine, self.kind, self.network, self.seen, self.writable, self.is_git, self.is_plan, restricted)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def facts(self) -> Mapping[str, str | Sequence[str]]:
        """What the audit and `permissions explain` tell of it."""
        restricted = self.restrictions
        opened = {"sees": self.seen, "writes": self.writable, "hidden": restricted.masked, "kept": restricted.read_only}
        names = {name: [*paths[:MAX_PATHS_TOLD]] for name, paths in opened.items() if paths}
        return {"engine": self.engine.value, "view": self.kind.value, "network": self.network.value, **names}


UNCONFINED = CommandView(Engine.NONE, ViewKind.UNCONFINED, Network.HOST)
"""Of a command that nothing holds."""
