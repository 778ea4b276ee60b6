"""What a command in the sandbox sees of this machine, and what of its workspace stays as it is."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tools.contract.permission_subjects import NO_WAIVER, Waiver
from tools.files.workspace import contains, is_inside
from tools.shell.private_folders import remove_tree
from tools.shell.process import NetworkAccess, SandboxChanges
from tools.shell.sandbox.auto_run_guard import AutoRunLookout, AutoRunState, GitBefore, fingerprint
from tools.shell.sandbox.hidden_secrets import HiddenPaths, secret_places
from tools.shell.sandbox.mount_check import ExpectedMount, MountTable

# Folders where programs leave sockets, and files for others. `/tmp` is the client's own, for as long as its session
# lasts; of the others each command has its own, in memory. `/dev/shm` is part of the private `/dev`.
PRIVATE = ("/tmp", "/var/tmp", "/run", "/var/run")  # noqa: S108 - covered, not used
TEMPORARY = PRIVATE[0]
PRIVATE_BYTES = 2 * 1024**3  # of each that is held in memory; the client's `/tmp` is emptied where it holds more
MOST_MEASURED = 50_000  # files and folders of the client's `/tmp` that are counted, to see how much it holds
# Mounts for the paths of all workspaces that stay as they are, of each kind, with the folders on the way to them: those
# nearest to the top. Each takes bubblewrap the longer the more there are.
KEPT = 200
_NOT_WORKSPACES = """
/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /tmp /usr /var /var/tmp /var/run /var/lib
/Users
"""
SYSTEM_ROOTS = frozenset(_NOT_WORKSPACES.split())  # writable, they would leave nothing of the sandbox
RUNNING_SYSTEM = ("/run/current-system", "/run/booted-system", "/run/opengl-driver")  # programs of NixOS
# Caches of those who do not work without a writable one. They are private: what a command leaves in the real ones would
# be run by others. What tools have already fetched is readable where it is.
CACHES = {"XDG_CACHE_HOME": ".cache", "npm_config_cache": ".npm"}
_LEADING_NOWHERE = """
XDG_RUNTIME_DIR DISPLAY WAYLAND_DISPLAY XAUTHORITY DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK SSH_AGENT_PID
"""
UNREACHABLE = _LEADING_NOWHERE.split()  # variables that lead to what is not there


@dataclass(frozen=True, slots=True)
class Site:
    """What about this machine and this server matters to every command."""

    home: str
    hidden: tuple[str, ...] = ()  # also hidden: state and settings of the server; taken out of a root where new
    read_only: tuple[str, ...] = ()  # also inside a root: settings of the server; taken out of it where new
    readable: tuple[str, ...] = ()  # files and folders that are seen whole although they are known places of secrets
    writable: tuple[str, ...] = ()  # of the roots, although programs outside obey these files and folders
    temporary_bytes: int = PRIVATE_BYTES  # how much a client's `/tmp` may hold after a command


@dataclass(frozen=True, slots=True)
class View:
    """What a command sees of the machine. All paths are real and absolute."""

    roots: tuple[str, ...]
    private: tuple[str, ...] = ()  # folders that are empty at first and gone afterwards
    temporary: str | None = None  # the folder of the client that is its `/tmp`; `None` for one that is gone afterwards
    readable: tuple[str, ...] = ()  # what is seen although it lies in a private folder
    hidden_folders: tuple[str, ...] = ()  # folders that are empty, and where nothing can be made
    hidden_files: tuple[str, ...] = ()  # files that cannot be opened
    # Files in whose place something else is read: from a descriptor of bubblewrap, by its number.
    copies: Mapping[str, int] = field(default_factory=dict[str, int])
    shown: tuple[str, ...] = ()  # what is seen although it lies in a hidden folder
    pinned: tuple[str, ...] = ()  # cannot be renamed or removed, but written; none is in a read-only one
    read_only: tuple[str, ...] = ()  # files and folders of the roots that stay as they are
    network: NetworkAccess = NetworkAccess.NONE

    def expected(self) -> tuple[ExpectedMount, ...]:
        """What the mount table has to say: of each root, and of all that is pinned or read-only."""
        table = MountTable()
        return (
            *(table.bound_first(path) for path in self.roots),
            *(table.bound(path) for path in self.pinned),
            *(table.bound(path, is_read_only=True) for path in self.read_only),
        )


@dataclass(frozen=True, slots=True)
class PreparedView:
    """A view, and what is looked at again after the command."""

    view: View
    auto_run: AutoRunState  # the auto-run files as they are before it
    uncovered: int  # how many of their paths, links left aside, the view does not keep as they are
    temporary_bytes: int  # how much the client's `/tmp` may hold

    def settle(self) -> SandboxChanges:
        """Move what is new and obeyed out of the workspace, and tell what has changed. After the command; blocks."""
        changes = self.auto_run.settle()
        folder = self.view.temporary
        held = _empty_temporary(folder, self.temporary_bytes) if folder is not None else 0
        return replace(changes, uncovered=self.uncovered, temporary_bytes=held)


def prepare(
    site: Site,
    network: NetworkAccess,
    lookout: AutoRunLookout,
    roots: Sequence[str],
    readable: Sequence[str] = (),  # what the command has to see wherever it lies
    *,
    secrets: tuple[HiddenPaths, Mapping[str, int]] | None = None,  # with the descriptors that have the copies
    waiver: Waiver = NO_WAIVER,
    private_folder: Callable[[], str] | None = None,
) -> PreparedView:
    """Look at the machine. Without `secrets` they are looked for here, and no copies are shown."""
    present = writable(roots)
    folder = None if private_folder is None else private_folder()
    found = [lookout.look(root) for root in present]
    own = [path for path in map(_real, (*site.read_only, *site.hidden)) if is_inside(path, present)]
    hidden, copies = secrets or (secret_places(site.home, site.hidden, site.readable, present), {})
    named = (
        os.path.normpath(os.path.join(root, os.path.expanduser(path)))
        for path in waiver.auto_run_files
        for root in present
    )
    # What holds a whole root is too much to be meant.
    waived = tuple(path for path in named if not any(contains(path, root) for root in present))
    free = present if waiver.is_git else waived
    # The folder that a file is in is written too, by whatever writes a new file and gives it the name of the old one.
    guarded = (
        path
        for path in _by_depth(path for each in found for path in each.read_only)
        if not any(contains(path, other) or contains(other, path) for other in free)
    )
    repositories = () if waiver.is_git else _by_depth(path for each in found for path in each.pinned)
    covered = (*hidden.folders, *hidden.files, *hidden.copies)
    pinned, read_only, uncovered = _kept_in_place(present, covered, repositories, (*own, *guarded))
    private = tuple(dict.fromkeys(_real(path) for path in PRIVATE if os.path.isdir(path)))
    needed = (*map(_real, (*readable, site.home, "/etc/resolv.conf", "/etc/localtime")), *RUNNING_SYSTEM)
    temporary: str | None = None
    if folder is not None:
        # The client's `/tmp`, ready for the mounts that lie in it: where one goes, no command has left a link.
        temporary = os.path.join(folder, "tmp")
        with suppress(FileExistsError):
            os.mkdir(temporary)
            os.chmod(temporary, 0o1777)  # noqa: S103 - as `/tmp` is, in a folder that nobody else may enter
        for mounted in (*present, *readable, site.home):
            place = temporary
            for name in os.path.relpath(mounted, TEMPORARY).split(os.sep) if contains(TEMPORARY, mounted) else ():
                place = os.path.join(place, name)
                with suppress(OSError):
                    if not stat.S_ISDIR(os.lstat(place).st_mode):
                        os.unlink(place)
    view = View(
        roots=present,
        private=private,
        temporary=temporary,
        # What lies in a private folder and is needed all the same.
        readable=tuple(
            dict.fromkeys(
                path
                for path in needed
                if is_inside(path, private) and path not in private and not is_inside(path, present)
            )
        ),
        hidden_folders=tuple(path for path in hidden.folders if path not in present),
        hidden_files=(*hidden.files, *(path for path in hidden.copies if path not in copies)),
        copies=copies,
        shown=hidden.shown,
        pinned=pinned,
        read_only=read_only,
        network=network,
    )
    before = {path: fingerprint(path) for path in (*own, *(path for each in found for path in each.found))}
    git = GitBefore.of(before, present) if waiver.is_git else None
    auto_run = AutoRunState(present, before, waived, lookout, folder is not None, git)
    return PreparedView(view, auto_run, uncovered, site.temporary_bytes)


def too_broad(roots: Sequence[str]) -> str | None:
    """The first root that no sandbox can have, or `None`."""
    return next((root for root in roots if (root.rstrip("/") or "/") in SYSTEM_ROOTS), None)


def writable(roots: Sequence[str]) -> tuple[str, ...]:
    """Those roots that exist, without those in another one: they are writable as they are, and could be replaced.

    They are real paths, and not followed again: another command may have put a link in the place of one.
    """
    outermost: list[str] = []
    present = (root for root in roots if os.path.isdir(root) and _real(root) == os.path.normpath(root))
    for root in _by_depth(dict.fromkeys(present)):
        if not is_inside(root, outermost):
            outermost.append(root)
    return tuple(outermost)


def depth(path: str) -> int:
    """How many folders deep an absolute path is."""
    return 0 if path == "/" else path.rstrip("/").count("/")


def sandbox_environment(environment: Mapping[str, str], roots: Sequence[str]) -> dict[str, str]:
    """The environment of a command, led to what is there in the sandbox."""
    changed = {name: value for name, value in environment.items() if name not in UNREACHABLE}
    for name in ("TMPDIR", "TMP", "TEMP"):
        if name in changed and not is_inside(changed[name], roots):
            changed[name] = TEMPORARY
    for name, folder in CACHES.items():
        if not is_inside(changed.get(name, ""), roots):
            changed[name] = f"{TEMPORARY}/{folder}"
    return changed


def _by_depth(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths in an order in which a mount covers none that was made before it."""
    return tuple(sorted(paths, key=depth))


def _real(path: str) -> str:
    """A path without links; as it is where it changes while it is followed."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def _kept_in_place(
    roots: Sequence[str], hidden: Sequence[str], repositories: Iterable[str], guarded: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """The mounts that keep what programs obey as it is, or where it is: pinned, read-only, and how many lack one.

    A mount point cannot be renamed, but a folder that holds one can, and the mount moves along: something else could
    then take its place. So every folder on the way from the root to what is kept is mounted onto itself, too. For what
    lies at the top of a root, as it mostly does, there is none. A path where nothing is, or a link, is left out.
    """

    def is_seen(path: str) -> bool:
        # What lies nearer to it decides. What lies in no root is read-only already, or hidden; a mount of it, which a
        # link in a workspace can ask for, would show it.
        nearest = max((len(root) for root in roots if contains(root, path) and path != root), default=-1)
        return nearest >= 0 and nearest >= max((len(each) for each in hidden if contains(each, path)), default=-1)

    def way_to(path: str) -> Iterator[str]:
        folder = os.path.dirname(path)
        while any(contains(root, folder) and root != folder for root in roots):
            if is_seen(folder):
                yield folder
            folder = os.path.dirname(folder)

    pinned: dict[str, None] = {}
    read_only: dict[str, None] = {}
    uncovered = 0
    ways = (folder for path in hidden for folder in way_to(path))
    for paths, kind in ((ways, pinned), (repositories, pinned), (guarded, read_only)):
        used = 0
        for path in filter(is_seen, dict.fromkeys(paths)):
            if path in kind or os.path.islink(path) or not os.path.lexists(path):
                continue
            way = [folder for folder in way_to(path) if folder not in pinned and folder not in read_only]
            if used + len(way) + 1 > KEPT:
                uncovered += 1
                continue
            used += len(way) + 1
            pinned |= dict.fromkeys(way)
            kind[path] = None
    # What is read-only, or in a folder that is, cannot be renamed anyway.
    only_pinned = (path for path in pinned if path not in read_only and read_only.keys().isdisjoint(way_to(path)))
    return _by_depth(only_pinned), _by_depth(read_only), uncovered


def _empty_temporary(folder: str, most_bytes: int) -> int:
    """Empty the client's `/tmp` where it has become too large; how much it held then, else 0."""
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
    if size <= most_bytes:
        return 0
    with os.scandir(folder) as entries:
        present = list(entries)
    for entry in present:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            with suppress(OSError):
                os.unlink(entry.path)
    return size
