"""What a command sees, said as options for bubblewrap.

Later mounts lie over earlier ones: first all of the machine read-only, then what is private, then what is hidden
outside of the workspace and what is writable in the order of depth (a workspace below a hidden folder is seen), then
what stays where it is or as it is in the workspace, last what is hidden in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tools.execution.confinement import NetworkAccess
from tools.execution.sandbox.mount_table import Expected, MountTable
from tools.filesystem.workspace import contains

PRIVATE_BYTES = 2 * 1024**3
"""Size of each private folder that is held in memory; the client's `/tmp` is emptied where it holds more."""

TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
"""Settings of the kernel that bubblewrap leaves writable. Their owner is root, who may write them even without
capabilities, also in a user namespace: `core_pattern` alone would run a program outside."""

_SMALL = ("--size", "4096", "--perms")
"""Of folders in which nobody puts anything."""

_OPEN_TO_ALL = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 - names of mount points, nothing is made there


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
        *_private(view),
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


def _private(view: View) -> Iterator[str]:
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
