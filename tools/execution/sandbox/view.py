"""What a command is to see on this machine now: its view, its environment, and what is held for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from tools.execution.confinement import NetworkAccess
from tools.execution.sandbox.arguments import View, depth
from tools.execution.sandbox.fingerprint import Fingerprint, fingerprint
from tools.execution.sandbox.hidden import Hidden, secret_places
from tools.execution.sandbox.kept import Kept, by_depth
from tools.execution.sandbox.placeholders import Placeholders, is_placeholder
from tools.execution.sandbox.steering import Steering, SteeringLookout
from tools.filesystem.workspace import contains

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
        hidden: Further folders and files to hide: state and settings of the server. Not made either where absent.
        read_only: Files that stay as they are even inside a root, also where absent: settings of the server.
        readable: Files and folders that are seen whole although they are known places of secrets.
    """

    home: str
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A view, with what is held for as long as it is in use.

    Args:
        view: What the command sees.
        placeholders: Names that are kept free.
        found: For each root, every path in it that steered programs before, and what was there.
        uncovered: How many of these, links left aside, the view does not keep as they are.
        lookout: Looks through the roots again.
    """

    view: View
    placeholders: Placeholders
    found: Mapping[str, Mapping[str, Fingerprint | None]]
    uncovered: int
    lookout: SteeringLookout

    def new(self) -> tuple[str, ...]:
        """Paths of steering files that are there now and were not before."""
        new: list[str] = []
        for root, before in self.found.items():
            new += (path for path in self.lookout.look(root).found - before.keys() if not is_placeholder(path))
        return tuple(sorted(set(new)))

    def changed(self) -> tuple[str, ...]:
        """Paths of steering files that were there before and are gone now, or something else."""
        found = (state for before in self.found.values() for state in before.items())
        return tuple(sorted({path for path, before in found if fingerprint(path) != before}))


def too_broad(roots: Sequence[str]) -> str | None:
    """The first root that no sandbox can have, or `None`."""
    return next((root for root in roots if (root.rstrip("/") or "/") in SYSTEM_ROOTS), None)


def writable(roots: Sequence[str]) -> tuple[str, ...]:
    """Those roots that are there, without those in another one.

    Args:
        roots: Real paths. They are not followed again: another command may have put a link in the place of one.
    """
    return _outermost(root for root in roots if os.path.isdir(root) and _real(root) == os.path.normpath(root))


def prepare(
    site: Site,
    network: NetworkAccess,
    lookout: SteeringLookout,
    roots: Sequence[str],
    readable: Sequence[str] = (),
    *,
    secrets: tuple[Hidden, Mapping[str, int]] | None = None,
) -> Prepared:
    """Look at the machine and hold what has to be held.

    Args:
        site: What matters to every command.
        network: What the command reaches.
        lookout: Looks through the roots.
        roots: Folders that the command may change.
        readable: What it has to see wherever it lies.
        secrets: What is hidden, and the descriptors of bubblewrap that have the copies; `None` to look for it here, and
            to show no copies.
    """
    present = writable(roots)
    steering = {root: lookout.look(root) for root in present}
    settings = [path for path in map(_real, site.read_only) if _is_inside(path, present)]
    own = [path for path in map(_real, site.hidden) if _is_inside(path, present)]
    hidden, copies = secrets or (secret_places(site.home, site.hidden, site.readable, present), {})
    placeholders = Placeholders(_absent(steering.values(), (*settings, *own), present))
    private = _private()
    seen = partial(_is_seen, roots=present, hidden=hidden.paths)
    kept = Kept(present, seen)
    kept.pin_ways(hidden.paths)
    kept.pin(by_depth(path for found in steering.values() for path in found.pinned))
    steers = by_depth(path for found in steering.values() for path in found.read_only)
    kept.protect((*settings, *placeholders.paths, *steers))
    view = View(
        roots=present,
        private=private,
        readable=_readable((*readable, site.home), private, present),
        hidden_folders=tuple(path for path in hidden.folders if path not in present),
        hidden_files=(*hidden.files, *(path for path in hidden.copies if path not in copies)),
        copies=copies,
        shown=hidden.shown,
        pinned=by_depth(kept.pinned_only()),
        read_only=by_depth(kept.read_only),
        absent=frozenset(placeholders.paths),
        network=network,
    )
    before = {
        root: {path: fingerprint(path) for path in (*found.found, *(path for path in settings if contains(root, path)))}
        for root, found in steering.items()
    }
    return Prepared(view, placeholders, before, kept.uncovered, lookout)


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


def _absent(steering: Iterable[Steering], own: Iterable[str], roots: Sequence[str]) -> list[str]:
    """Names to be kept free; a folder that stays as it is keeps what is in it."""
    named = [path for found in steering for path in found.absent]
    return [*named, *(_first_absent(path, roots) for path in own if _is_free(path))]


def _first_absent(path: str, roots: Sequence[str]) -> str:
    """The first of the folders that would have to be made for what belongs in a root, or that itself."""
    folder = os.path.dirname(path)
    while _is_inside(folder, roots) and _is_free(folder):
        path, folder = folder, os.path.dirname(folder)
    return path


def _is_free(path: str) -> bool:
    """Whether nothing is there but what keeps the name free, for another command too."""
    return not os.path.lexists(path) or is_placeholder(path)


@cache
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


def _is_seen(path: str, roots: Sequence[str], hidden: Sequence[str]) -> bool:
    """Whether a path lies in a root and is not hidden there: what lies nearer to it decides.

    What lies elsewhere is read-only already, or hidden; a mount of it, which a link in a workspace can ask for, would
    show it.
    """
    nearest = max((len(root) for root in roots if contains(root, path) and path != root), default=-1)
    return nearest >= 0 and nearest >= max((len(folder) for folder in hidden if contains(folder, path)), default=-1)


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(contains(folder, path) for folder in folders)
