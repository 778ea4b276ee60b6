"""Views of the machine: what a command can see and change.

A command's words decide which rule applies. The view limits what the command does, even if the words were
misunderstood. The policy chooses the view, a question shows it, and an answer applies only to that view. The runner
starts the command in exactly this view, or refuses to start it.
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
    UNCONFINED = "unconfined"  # the command runs without a sandbox, with all rights of this server's user


class Network(StrEnum):
    """The hosts that a command can connect to."""

    OWN_LOOPBACK = "own loopback"  # only servers started by the command's own processes
    SESSION_LOOPBACK = "session loopback"  # also servers started by other commands of the session
    HOST = "host"  # everything that this machine can reach


# Folders that programs may need and every user may read, except for some files in `/etc`.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc")
MAX_LISTED_PATHS = 50  # maximum number of paths of each kind listed in the facts of a view


@dataclass(frozen=True, slots=True)
class FileRestrictions:
    """What file rules deny to a command, given the current state of the disk. All paths are real and absolute."""

    masked: tuple[str, ...] = ()  # files and folders that cannot be opened
    read_only: tuple[str, ...] = ()  # files and folders that cannot be changed
    # Parent folders of the masked and read-only paths. They cannot be renamed, because the mounts would move with them
    pinned: tuple[str, ...] = ()
    # Why paths are masked or read-only, keyed by path: a rule, an agent-ignore file or the mode of a folder
    why: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


NO_RESTRICTIONS = FileRestrictions()


@dataclass(frozen=True, slots=True)
class CommandSite:
    """The conditions that apply to all commands of one client."""

    engine: Engine
    failure: str = ""  # why bubblewrap is not used, phrased for the middle of a sentence
    is_required: bool = False  # whether commands may run only in a sandbox
    shown: tuple[str, ...] = ()  # real paths that a reading view shows in addition to the workspace
    has_network: bool = True  # whether the operator gives commands any network access
    has_session: bool = True  # whether the client is not anonymous
    scratch: str | None = None  # the real path of the folder that is the client's `/tmp`
    # The real path of the folder with the client's long outputs and large results, which it may read
    outputs: tuple[str, ...] = ()


UNSANDBOXED_SITE = CommandSite(Engine.NONE)


@dataclass(frozen=True, slots=True)
class CommandView:
    """A command's view of the machine: what the command can see and change."""

    engine: Engine
    kind: ViewKind
    network: Network
    # Also readable: real paths outside the usual view, and hidden files. The question names them, or a rule allows them
    seen: tuple[str, ...] = ()
    # Also writable: other paths and auto-run files. The question names them, or a rule or the approval mode allows them
    writable: tuple[str, ...] = ()
    spelled: tuple[str, ...] = field(default=(), compare=False)  # paths in the command that lead through symlinks
    outputs: tuple[str, ...] = ()  # the folder with the client's long outputs, if the command names it: also readable
    # In a reading view, whether git's own files (`.git`) are shown. In other views, whether they are writable, because
    # only git changes files
    is_git: bool = False
    is_asked: bool = False  # whether a person was asked about exactly this command
    is_plan: bool = False  # whether the command runs in plan mode, which has its own `/tmp`
    # Whether the command's `/tmp` starts empty, because older files there may have content that nobody was asked about.
    # This is the case if only a rule allows the command, or if the command only reads but may use the network
    has_new_tmp: bool = False
    # Whether the command may use kernel resources that the user's programs share. Commands that only read do not need
    # them
    may_take_shares: bool = True
    restrictions: FileRestrictions = NO_RESTRICTIONS  # what file rules deny to the command, at the time of the decision
    # Looks up again what file rules deny to the command. Blocking. Raises a `ToolError` if this cannot be enforced.
    current_restrictions: Callable[[], FileRestrictions] = field(
        default=lambda: NO_RESTRICTIONS, compare=False, repr=False
    )

    @property
    def digest(self) -> str:
        """Return a digest that binds an answer to this view."""
        paths = (self.seen, self.writable, self.outputs)
        denied_paths = (self.restrictions.masked, self.restrictions.read_only)
        parts = (self.engine, self.kind, self.network, *paths, self.is_git, self.is_plan, denied_paths)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def facts(self) -> Mapping[str, str | Sequence[str]]:
        """Describe the view for the audit log and `permissions explain`."""
        masked, read_only = self.restrictions.masked, self.restrictions.read_only
        paths_by_effect = {"sees": self.seen, "writes": self.writable, "hidden": masked, "kept": read_only}
        names = {name: [*paths[:MAX_LISTED_PATHS]] for name, paths in paths_by_effect.items() if paths}
        return {"engine": self.engine.value, "view": self.kind.value, "network": self.network.value, **names}


UNCONFINED = CommandView(Engine.NONE, ViewKind.UNCONFINED, Network.HOST)
"""The view of a command without a sandbox."""
