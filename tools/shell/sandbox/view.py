"""What a command is to see on this machine now: its view, its environment, and what is compared after it.

In the options for bubblewrap later mounts lie over earlier ones: first all of the machine read-only, then what is
private, then what is hidden outside of the workspace and what is writable in the order of depth (a workspace below a
hidden folder is seen), then what stays where it is or as it is in the workspace, last what is hidden in it.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from tools.contract.subjects import NO_WAIVER, Waiver
from tools.files.workspace import contains, is_inside
from tools.permissions.auto_run_files import REPOSITORY, REPOSITORY_FILES, REPOSITORY_FOLDERS
from tools.permissions.folder_contents import TrackedFiles
from tools.shell.confinement import NetworkAccess, SandboxChanges
from tools.shell.private_folders import remove_tree
from tools.shell.sandbox.auto_run_guard import (
    ENTRIES,
    AutoRunLookout,
    Fingerprint,
    fingerprint,
    is_harmless,
    move_away,
    without_entries,
)
from tools.shell.sandbox.hidden_secrets import Hidden, secret_places
from tools.shell.sandbox.mount_check import Expected, MountTable

PRIVATE_BYTES = 2 * 1024**3
"""Size of each private folder that is held in memory; the client's `/tmp` is emptied where it holds more."""

TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
"""Settings of the kernel that bubblewrap leaves writable. Their owner is root, who may write them even without
capabilities, also in a user namespace: `core_pattern` alone would run a program outside."""

_SMALL = ("--size", "4096", "--perms")
"""Of folders in which nobody puts anything."""

_OPEN_TO_ALL = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 - names of mount points, nothing is made there


PRIVATE = ("/tmp", "/var/tmp", "/run", "/var/run")  # noqa: S108 - covered, not used
"""Folders where programs leave sockets, and files for others. `/tmp` is the client's own, for as long as its session
lasts; of the others each command has its own, in memory. `/dev/shm` is part of the private `/dev`."""

TEMPORARY = PRIVATE[0]
MOST_MEASURED = 50_000
"""Files and folders of the client's `/tmp` that are counted, to see how much it holds."""

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
class View:
    """What a command sees of the machine. All paths are real and absolute.

    Args:
        roots: Writable folders.
        private: Folders that are empty at first and gone afterwards.
        temporary: The folder of the client that is its `/tmp`; `None` for one that is gone afterwards.
        readable: What is seen although it lies in a private folder.
        hidden_folders: Folders that are empty, and where nothing can be made.
        hidden_files: Files that cannot be opened.
        copies: Files in whose place something else is read: from a descriptor of bubblewrap, by its number.
        shown: What is seen although it lies in a hidden folder.
        pinned: Writable folders that cannot be renamed or removed, none of them in one that is read-only.
        read_only: Files and folders of the roots that stay as they are.
        network: What it reaches.
    """

    roots: tuple[str, ...]
    private: tuple[str, ...] = ()
    temporary: str | None = None
    readable: tuple[str, ...] = ()
    hidden_folders: tuple[str, ...] = ()
    hidden_files: tuple[str, ...] = ()
    copies: Mapping[str, int] = field(default_factory=dict[str, int])
    shown: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    network: NetworkAccess = NetworkAccess.NONE

    def expected(self) -> tuple[Expected, ...]:
        """What the mount table has to say: of each root, and of all that is pinned or read-only."""
        table = MountTable()
        return (
            *(table.bound_first(path) for path in self.roots),
            *(table.bound(path) for path in self.pinned),
            *(table.bound(path, is_read_only=True) for path in self.read_only),
        )


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The numbers of descriptors that bubblewrap has.

    Args:
        info: It writes there what its process is.
        held: Before it begins the command, it reads this to its end.
        options: It reads its options from there.
        calls: From it comes the program of the system call filter; `None` for none.
    """

    info: int
    held: int
    options: int
    calls: int | None


@dataclass(frozen=True, slots=True)
class Site:
    """What about this machine and this server matters to every command.

    Args:
        home: The home folder.
        hidden: Further folders and files to hide: state and settings of the server. Taken out of a root where new.
        read_only: Files that stay as they are even inside a root: settings of the server. Taken out of it where new.
        readable: Files and folders that are seen whole although they are known places of secrets.
        writable: Files and folders of the roots that commands may change although programs outside obey them.
        temporary_bytes: How much a client's `/tmp` may hold after a command.
    """

    home: str
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    temporary_bytes: int = PRIVATE_BYTES


KEPT = 200
"""Mounts for the paths of all workspaces that are kept, of each kind, with the folders on the way to them: those
nearest to the top. Each takes bubblewrap the longer the more there are."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A view, and what is compared with it after the command.

    Args:
        view: What the command sees.
        before: For each root, every path in it that programs obey, and what was there.
        waived: Files and folders that the command may change although programs obey them.
        uncovered: How many of the paths, links left aside, the view does not keep as they are.
        lookout: Looks through the roots again.
        folder: The client's private folder, if it has one.
        temporary_bytes: How much its `/tmp` may hold.
        is_git: Whether it is a command in which nothing but git changes anything.
        last_begun: The lookout's, from before the command.
        made_at: Monotonic seconds.
    """

    view: View
    before: Mapping[str, Mapping[str, Fingerprint | None]]
    waived: tuple[str, ...]
    uncovered: int
    lookout: AutoRunLookout
    folder: str | None
    temporary_bytes: int
    is_git: bool
    last_begun: object
    made_at: float = field(default_factory=time.monotonic)

    def settle(self) -> SandboxChanges:
        """Move what is new and obeyed out of the workspace, and tell what has changed. After the command; blocks."""
        git_work = _GitWork(self.view.roots, is_alone=self.lookout.is_quiet_since(self.last_begun))
        moved: list[tuple[str, str]] = []
        left: list[str] = []
        changed: list[str] = []
        for path, before in self._differing():
            if self._is_waived(path, before) or (self.is_git and git_work.made(path)):
                self.lookout.accept(path)
            elif self.lookout.is_accepted(path):
                continue
            elif before is not None or self.is_git:
                # Of git alone, what is new came by its hooks, or by what else was at work.
                changed.append(path)
            elif not is_harmless(path, self.view.roots):
                place = move_away(path, self.folder)
                if place is None:
                    left.append(path)
                else:
                    moved.append((path, place))
        return SandboxChanges(tuple(moved), tuple(left), tuple(changed), self.uncovered, self._empty_temporary())

    def _is_waived(self, path: str, before: Fingerprint | None) -> bool:
        """Whether nothing at a path differs but what the command may change, or another tool has with consent."""
        consented = (each for each, at in list(self.lookout.consented.items()) if at >= self.made_at)
        waived = (*self.waived, *consented)
        if is_inside(path, waived):
            return True
        free = {each[len(path) + 1 :].partition(os.sep)[0] for each in waived if contains(path, each)}
        if not free:
            return False
        now = without_entries(fingerprint(path), free)
        return now == without_entries(before, free) if before is not None else now is not None and len(now) == 2

    def _differing(self) -> list[tuple[str, Fingerprint | None]]:
        """Each path where something else is than before, with what that was."""
        known = {path: state for before in self.before.values() for path, state in before.items()}
        now = {path for root in self.before for path in self.lookout.look(root).found}
        states = {path: known.get(path) for path in sorted(now | known.keys())}
        return [(path, before) for path, before in states.items() if path not in known or fingerprint(path) != before]

    def _empty_temporary(self) -> int:
        """Empty the client's `/tmp` where it has become too large; how much it held then, else 0."""
        if self.view.temporary is None:
            return 0
        size = _size_of(self.view.temporary)
        if size <= self.temporary_bytes:
            return 0
        with os.scandir(self.view.temporary) as entries:
            present = list(entries)
        for entry in present:
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)
        return size


class _GitWork:
    """Tells what a command of git alone has done itself.

    Args:
        roots: Real paths of the workspace's folders.
        is_alone: Whether no other command was at work meanwhile.
    """

    def __init__(self, roots: Sequence[str], *, is_alone: bool) -> None:
        self._roots = roots
        self._is_alone = is_alone
        self._tracked = TrackedFiles()

    def made(self, path: str) -> bool:
        """Whether what differs at a path is git's own doing, as far as can be told."""
        return self._is_undisturbed or is_harmless(path, self._roots) or self._is_tracked(path)

    @cached_property
    def _is_undisturbed(self) -> bool:
        """Whether git was alone, and no repository at the top of a root has hooks, or settings that run others."""
        names = (*REPOSITORY_FILES, *REPOSITORY_FOLDERS)
        own = (os.path.join(root, REPOSITORY, name) for root in self._roots for name in names)
        return self._is_alone and all(is_harmless(path, self._roots) for path in own if os.path.lexists(path))

    def _is_tracked(self, path: str) -> bool:
        """Whether git tracks a file, or all of the first files in a folder."""
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return self._tracked.has(path)
            names = os.listdir(path)[:ENTRIES]
        except OSError:
            return False
        return all(self._is_tracked(os.path.join(path, name)) for name in names)


def _size_of(folder: str) -> int:
    """How many bytes the files in a folder take on the disk, as far as they are looked at."""
    if sys.platform == "win32":
        raise NotImplementedError
    size = count = 0
    waiting = [folder]
    while waiting and count < MOST_MEASURED:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return size


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
    lookout: AutoRunLookout,
    roots: Sequence[str],
    readable: Sequence[str] = (),
    *,
    secrets: tuple[Hidden, Mapping[str, int]] | None = None,
    waiver: Waiver = NO_WAIVER,
    private_folder: Callable[[], str] | None = None,
) -> Prepared:
    """Look at the machine.

    Args:
        site: What matters to every command.
        network: What the command reaches.
        lookout: Looks through the roots.
        roots: Folders that the command may change.
        readable: What it has to see wherever it lies.
        secrets: What is hidden, and the descriptors of bubblewrap that have the copies; `None` to look for it here, and
            to show no copies.
        waiver: What of the protection it is let off.
        private_folder: Makes the client's folder, if it has one.

    Raises:
        OSError: The client's folder cannot be made.
    """
    present = writable(roots)
    folder = None if private_folder is None else private_folder()
    auto_run = {root: lookout.look(root) for root in present}
    own = [path for path in map(_real, (*site.read_only, *site.hidden)) if is_inside(path, present)]
    hidden, copies = secrets or (secret_places(site.home, site.hidden, site.readable, present), {})
    named = _named_in(present, waiver.auto_run_files)
    # What holds a whole root is too much to be meant.
    waived = tuple(path for path in named if not any(contains(path, root) for root in present))
    free = present if waiver.is_git else waived
    private = _private()
    kept = _Kept(present, partial(_is_seen, roots=present, hidden=hidden.paths))
    kept.pin_ways(hidden.paths)
    if not waiver.is_git:
        kept.pin(by_depth(path for found in auto_run.values() for path in found.pinned))
    auto_run_paths = by_depth(path for found in auto_run.values() for path in found.read_only)
    # The folder that a file is in is written too, by whatever writes a new file and gives it the name of the old one.
    kept.protect((*own, *(path for path in auto_run_paths if not any(_overlap(path, each) for each in free))))
    view = View(
        roots=present,
        private=private,
        temporary=None if folder is None else _temporary(folder, (*present, *readable, site.home)),
        readable=_readable((*readable, site.home), private, present),
        hidden_folders=tuple(path for path in hidden.folders if path not in present),
        hidden_files=(*hidden.files, *(path for path in hidden.copies if path not in copies)),
        copies=copies,
        shown=hidden.shown,
        pinned=by_depth(kept.pinned_only()),
        read_only=by_depth(kept.read_only),
        network=network,
    )
    before = {
        root: {path: fingerprint(path) for path in (*found.found, *(path for path in own if contains(root, path)))}
        for root, found in auto_run.items()
    }
    rest = (kept.uncovered, lookout, folder, site.temporary_bytes, waiver.is_git, lookout.last_begun())
    return Prepared(view, before, waived, *rest)


def by_depth(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths in an order in which a mount covers none that was made before it."""
    return tuple(sorted(paths, key=depth))


def _named_in(roots: Sequence[str], paths: Sequence[str]) -> Iterator[str]:
    """Paths, those that are relative in every root."""
    for path in paths:
        yield from (os.path.normpath(os.path.join(root, os.path.expanduser(path))) for root in roots)


def _overlap(path: str, other: str) -> bool:
    return contains(path, other) or contains(other, path)


def _temporary(folder: str, needed: Iterable[str]) -> str:
    """The client's `/tmp`, ready for the mounts that lie in it: where one goes, no command has left a link."""
    path = os.path.join(folder, "tmp")
    with suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, 0o1777)  # noqa: S103 - as `/tmp` is, in a folder that nobody else may enter
    for mounted in needed:
        place = path
        for name in os.path.relpath(mounted, TEMPORARY).split(os.sep) if contains(TEMPORARY, mounted) else ():
            place = os.path.join(place, name)
            with suppress(OSError):
                if not stat.S_ISDIR(os.lstat(place).st_mode):
                    os.unlink(place)
    return path


def sandbox_environment(environment: Mapping[str, str], roots: Sequence[str]) -> dict[str, str]:
    """The environment of a command, led to what is there in the sandbox."""
    changed = {name: value for name, value in environment.items() if name not in UNREACHABLE}
    for name in ("TMPDIR", "TMP", "TEMP"):
        if name in changed and not is_inside(changed[name], roots):
            changed[name] = PRIVATE[0]
    for name, folder in CACHES.items():
        if not is_inside(changed.get(name, ""), roots):
            changed[name] = f"{PRIVATE[0]}/{folder}"
    return changed


@dataclass(slots=True)
class _Kept:
    """The mounts that keep what programs obey as it is, or at least where it is.

    A mount point cannot be renamed, but a folder that holds one can, and the mount moves along: something else could
    then take its place. So every folder on the way from the root to what is kept is mounted onto itself, too. For what
    lies at the top of a root, as it mostly does, there is none.

    Args:
        roots: Writable folders, none in another one.
        seen: Whether a path lies in a root and is not hidden there.
        pinned: Writable folders that cannot be renamed or removed, in the order in which they were asked for.
        read_only: The same of what stays as it is.
        uncovered: How many paths there were no mounts left for.
    """

    roots: Sequence[str]
    seen: Callable[[str], bool]
    pinned: dict[str, None] = field(default_factory=dict[str, None])
    read_only: dict[str, None] = field(default_factory=dict[str, None])
    uncovered: int = 0

    def pin(self, paths: Iterable[str]) -> None:
        """Keep folders where they are. A path that is none, or a link, is left out."""
        self._take(paths, self.pinned)

    def protect(self, paths: Iterable[str]) -> None:
        """Keep files and folders as they are. A path where nothing is, or a link, is left out."""
        self._take(paths, self.read_only)

    def pin_ways(self, paths: Iterable[str]) -> None:
        """Keep the folders where they are that lead to paths with mounts of their own."""
        self._take((folder for path in paths for folder in self._way(path)), self.pinned)

    def pinned_only(self) -> Iterator[str]:
        """The pinned folders without those that are read-only, or in one that is: they cannot be renamed anyway."""
        for path in self.pinned:
            if path not in self.read_only and self.read_only.keys().isdisjoint(self._way(path)):
                yield path

    def _take(self, paths: Iterable[str], kind: dict[str, None]) -> None:
        used = 0
        for path in filter(self.seen, dict.fromkeys(paths)):
            if path in kind or not _is_there(path):
                continue
            way = [folder for folder in self._way(path) if folder not in self.pinned and folder not in self.read_only]
            if used + len(way) + 1 > KEPT:
                self.uncovered += 1
                continue
            used += len(way) + 1
            self.pinned |= dict.fromkeys(way)
            kind[path] = None

    def _way(self, path: str) -> Iterator[str]:
        """The folders between the root and a path in it."""
        folder = os.path.dirname(path)
        while any(contains(root, folder) and root != folder for root in self.roots):
            if self.seen(folder):
                yield folder
            folder = os.path.dirname(folder)


def _is_there(path: str) -> bool:
    with suppress(OSError):
        return not stat.S_ISLNK(os.lstat(path).st_mode)
    return False


@cache
def _private() -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in PRIVATE if os.path.isdir(path)))


def _readable(wanted: Sequence[str], private: Sequence[str], roots: Sequence[str]) -> tuple[str, ...]:
    """What lies in a private folder and is needed all the same."""
    real = (*map(_real, (*wanted, "/etc/resolv.conf", "/etc/localtime")), *RUNNING_SYSTEM)
    return tuple(
        dict.fromkeys(
            path for path in real if is_inside(path, private) and path not in private and not is_inside(path, roots)
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
        if not is_inside(root, kept):
            kept.append(root)
    return tuple(kept)


def _is_seen(path: str, roots: Sequence[str], hidden: Sequence[str]) -> bool:
    """Whether a path lies in a root and is not hidden there: what lies nearer to it decides.

    What lies elsewhere is read-only already, or hidden; a mount of it, which a link in a workspace can ask for, would
    show it.
    """
    nearest = max((len(root) for root in roots if contains(root, path) and path != root), default=-1)
    return nearest >= 0 and nearest >= max((len(folder) for folder in hidden if contains(folder, path)), default=-1)


def bubblewrap_options(view: View, folder: str, descriptors: Descriptors) -> tuple[str, ...]:
    """The options of bubblewrap for one command.

    Args:
        view: What the command sees.
        folder: Where it starts.
        descriptors: What bubblewrap reads and writes.
    """
    return (
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(("--unshare-net",) if view.network is NetworkAccess.NONE else ()),
        *("--new-session", "--cap-drop", "ALL", "--info-fd", str(descriptors.info)),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *_each("--ro-bind-try", TUNING),
        *_private_mounts(view),
        *_each("--ro-bind-try", view.readable),
        *_by_depth(view),
        *_each("--bind-try", view.pinned),
        *_each("--ro-bind-try", view.read_only),
        # After these, which show what is really in the folders that they mount.
        *_steps(step for step in _hidden(view) if _is_in_root(view, step.path)),
        # Here it waits at the gate. Nothing is left of what it reads.
        *("--file", str(descriptors.held), "/dev/null"),
        *("--chdir", folder),
        *(() if descriptors.calls is None else ("--seccomp", str(descriptors.calls))),
    )


def depth(path: str) -> int:
    """How many folders deep an absolute path is."""
    return 0 if path == "/" else path.rstrip("/").count("/")


def _private_mounts(view: View) -> Iterator[str]:
    for folder in view.private:
        if view.temporary is not None and folder == "/tmp":  # noqa: S108 - the name of a mount point
            yield from ("--bind", view.temporary, folder)
            continue
        mode = "1777" if folder in _OPEN_TO_ALL else "0755"
        yield from ("--perms", mode, "--size", str(PRIVATE_BYTES), "--tmpfs", folder)


@dataclass(frozen=True, slots=True)
class _Step:
    path: str
    arguments: tuple[str, ...]


def _hidden(view: View) -> Iterator[_Step]:
    for path in view.hidden_folders:
        yield _Step(path, (*_SMALL, "0555", "--tmpfs", path))
    for path in view.hidden_files:
        # A device on a mount without devices: opening it is refused, whoever asks.
        yield _Step(path, ("--ro-bind-try", "/dev/null", path))
    for path, descriptor in view.copies.items():
        yield _Step(path, ("--ro-bind-data", str(descriptor), path))
    for path in view.shown:
        yield _Step(path, ("--ro-bind-try", path, path))


def _is_in_root(view: View, path: str) -> bool:
    return any(contains(root, path) and path != root for root in view.roots)


def _by_depth(view: View) -> Iterator[str]:
    outside = (step for step in _hidden(view) if not _is_in_root(view, step.path))
    # A root that is itself hidden was named by the operator, so it comes second.
    return _steps((*outside, *(_Step(path, ("--bind", path, path)) for path in view.roots)))


def _steps(steps: Iterable[_Step]) -> Iterator[str]:
    for step in sorted(steps, key=lambda step: depth(step.path)):
        yield from step.arguments


def _each(option: str, paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        yield from (option, path, path)
