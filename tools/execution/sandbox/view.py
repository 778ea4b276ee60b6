"""What a command is to see on this machine now: its view, its environment, and what is held for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tools.execution.sandbox.arguments import View
from tools.execution.sandbox.checked import MountTable
from tools.execution.sandbox.hidden import hidden_paths
from tools.execution.sandbox.paths import depth, is_beneath
from tools.execution.sandbox.placeholders import Placeholders, is_placeholder
from tools.execution.sandbox.steering import Steering, SteeringLookout

PRIVATE = ("/tmp", "/var/tmp", "/run", "/var/run")  # noqa: S108 - covered, not used
"""Folders where programs leave sockets, and files for others. Each command has its own, in memory. `/dev/shm` is part
of the private `/dev`."""

SYSTEM_ROOTS = (
    *(
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
    ),
    *("/sys", "/tmp", "/usr", "/var", "/var/tmp", "/var/run", "/var/lib", "/Users"),  # noqa: S108 - refused, not used
)
"""Folders that are no workspace: writable, they would leave nothing of the sandbox."""

RUNNING_SYSTEM = ("/run/current-system", "/run/booted-system", "/run/opengl-driver")
"""Where the programs of NixOS are found."""

KEPT = 200
"""How many paths of the workspaces are kept as they are, of each kind: those nearest to the top. Each costs a mount."""

CACHES = {"XDG_CACHE_HOME": ".cache", "npm_config_cache": ".npm"}
"""Caches of those who do not work without a writable one. They are private: what a command leaves in the real ones
would be run by others. What tools have already fetched is readable where it is."""

UNREACHABLE = (
    *("XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK"),
    "SSH_AGENT_PID",
)
"""Variables that lead to what is not there."""


@dataclass(frozen=True, slots=True)
class Site:
    """What about this machine and this server matters to every command.

    Args:
        home: The home folder.
        hidden: Further folders and files to hide: state and settings of the server.
        read_only: Files that stay as they are even inside a root, also where absent: settings of the server.
        shares_network: Whether commands reach what this machine reaches.
    """

    home: str
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    shares_network: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A view, with what is held for as long as it is in use."""

    view: View
    placeholders: Placeholders
    found: Mapping[str, frozenset[str]]
    lookout: SteeringLookout

    def finish(self) -> tuple[str, ...]:
        """Give back what is held. Tells the paths of steering files that are there now and were not before."""
        self.placeholders.release()
        new: list[str] = []
        for root, before in self.found.items():
            new += (path for path in self.lookout.look(root).found - before if not is_placeholder(path))
        return tuple(sorted(set(new)))


def too_broad(roots: Sequence[str]) -> str | None:
    """The first root that no sandbox can have, or `None`."""
    return next((root for root in roots if (root.rstrip("/") or "/") in SYSTEM_ROOTS), None)


def prepare(site: Site, lookout: SteeringLookout, roots: Sequence[str], readable: Sequence[str] = ()) -> Prepared:
    """Look at the machine and hold what has to be held.

    Args:
        site: What matters to every command.
        lookout: Looks through the roots.
        roots: Folders that the command may change.
        readable: What it has to see wherever it lies.
    """
    present = _outermost(root for root in map(_real, roots) if os.path.isdir(root))
    steering = {root: lookout.look(root) for root in present}
    settings = [path for path in map(_real, site.read_only) if _is_inside(path, present)]
    hidden = hidden_paths(site.home, site.hidden)
    placeholders = Placeholders(_absent(steering.values(), settings))
    private = _private()
    kept = (*settings, *placeholders.paths, *(path for found in steering.values() for path in found.read_only))
    seen = partial(_is_seen, roots=present, hidden=(*hidden.folders, *hidden.files))
    mounts = MountTable()
    pinned = _sources(mounts, filter(seen, (path for found in steering.values() for path in found.pinned)))
    read_only = _sources(mounts, filter(seen, kept))
    view = View(
        roots=present,
        private=private,
        readable=_readable((*readable, site.home), private, present),
        hidden_folders=tuple(path for path in hidden.folders if path not in present),
        hidden_files=hidden.files,
        pinned=tuple(sorted(pinned, key=depth)),
        read_only=tuple(sorted(read_only, key=depth)),
        sources=pinned | read_only,
        shares_network=site.shares_network,
    )
    before = {root: frozenset(found.found) for root, found in steering.items()}
    return Prepared(view, placeholders, before, lookout)


def sandbox_environment(environment: Mapping[str, str], roots: Sequence[str]) -> dict[str, str]:
    """The environment of a command, led to what is there in the sandbox."""
    changed = {name: value for name, value in environment.items() if name not in UNREACHABLE}
    for name in ("TMPDIR", "TMP", "TEMP"):
        if name in changed and not _is_inside(changed[name], roots):
            changed[name] = PRIVATE[0]
    for name, folder in CACHES.items():
        if not _is_inside(changed.get(name, ""), roots):
            changed[name] = f"{PRIVATE[0]}/{folder}"
    return changed


def _absent(steering: Iterable[Steering], settings: Iterable[str]) -> list[str]:
    """Names to be kept free; a folder that stays as it is keeps what is in it."""
    named = [path for found in steering for path in found.absent]
    return [*named, *(path for path in settings if not os.path.lexists(path))]


def _private() -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in PRIVATE if os.path.isdir(path)))


def _readable(wanted: Sequence[str], private: Sequence[str], roots: Sequence[str]) -> tuple[str, ...]:
    """What lies in a private folder and is needed all the same."""
    real = (*map(_real, (*wanted, "/etc/resolv.conf", "/etc/localtime")), *RUNNING_SYSTEM)
    return tuple(
        dict.fromkeys(
            path for path in real if _is_inside(path, private) and path not in private and not _is_inside(path, roots)
        )
    )


def _real(path: str) -> str:
    """A path without links; as it is where it changes while it is followed."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def _outermost(roots: Iterable[str]) -> tuple[str, ...]:
    """The roots without those in another one: they are writable as they are, and commands could replace them."""
    kept: list[str] = []
    for root in sorted(set(roots), key=depth):
        if not _is_inside(root, kept):
            kept.append(root)
    return tuple(kept)


def _sources(mounts: MountTable, paths: Iterable[str]) -> dict[str, str]:
    """What those paths are that are there and no links."""
    sources: dict[str, str] = {}
    for path in paths:
        if len(sources) == KEPT:
            break
        with suppress(OSError):
            if not stat.S_ISLNK(os.lstat(path).st_mode):
                sources[path] = mounts.source(path)
    return sources


def _is_seen(path: str, roots: Sequence[str], hidden: Sequence[str]) -> bool:
    """Whether a path lies in a root and is not hidden there: what lies nearer to it decides.

    What lies elsewhere is read-only already, or hidden; a mount of it, which a link in a workspace can ask for, would
    show it.
    """
    nearest = max((len(root) for root in roots if is_beneath(path, root) and path != root), default=-1)
    return nearest >= 0 and nearest >= max((len(folder) for folder in hidden if is_beneath(path, folder)), default=-1)


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(is_beneath(path, folder) for folder in folders)
