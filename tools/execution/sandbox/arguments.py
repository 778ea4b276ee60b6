"""What a command sees, said as arguments for bubblewrap. Nothing here looks at the machine.

Later mounts lie over earlier ones: first all of the machine read-only, then what is private, then what is hidden and
what is writable in the order of depth (a workspace below a hidden folder is seen, a hidden folder in a workspace is
not), last what stays as it is in the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tools.execution.sandbox.checked import checked
from tools.execution.sandbox.paths import depth

PRIVATE_BYTES = 2 * 1024**3
"""Size of each private folder. They are held in memory, so a disk cannot be filled through them."""

TUNING = ("/proc/sys", "/proc/acpi", "/proc/scsi")
"""Settings of the kernel that bubblewrap leaves writable. Their owner is root, who may write them even without
capabilities, also in a user namespace: `core_pattern` alone would run a program outside."""

_OPEN_TO_ALL = frozenset({"/tmp", "/var/tmp"})  # noqa: S108 - names of mount points, nothing is made there


@dataclass(frozen=True, slots=True)
class View:
    """What a command sees of the machine. All paths are real and absolute.

    Args:
        roots: Writable folders.
        private: Folders that are empty at first and gone afterwards.
        readable: What is seen although it lies in a private folder.
        hidden_folders: Folders that are empty and stay so.
        hidden_files: Files that cannot be opened.
        pinned: Writable folders that cannot be renamed or removed.
        read_only: Files and folders of the roots that stay as they are.
        sources: What each that is pinned or read-only is (`MountTable.source`).
        shares_network: Whether it reaches what this machine reaches.
    """

    roots: tuple[str, ...]
    private: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden_folders: tuple[str, ...] = ()
    hidden_files: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    shares_network: bool = False


def bubblewrap_arguments(
    view: View, folder: str, argv: tuple[str, ...], filter_descriptor: int | None
) -> tuple[str, ...]:
    """The arguments of bubblewrap for one command.

    Args:
        view: What the command sees.
        folder: Where it starts.
        argv: The command.
        filter_descriptor: Where the program of the system call filter is read from.
    """
    return (
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(() if view.shares_network else ("--unshare-net",)),
        *("--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *_each("--ro-bind-try", TUNING),
        *_private(view.private),
        *_each("--ro-bind-try", view.readable),
        *_by_depth(view),
        *(argument for path in view.hidden_folders for argument in ("--remount-ro", path)),
        # Nothing may be mounted after these: `checked` counts on it.
        *_each("--bind-try", view.pinned),
        *_each("--ro-bind-try", view.read_only),
        *("--chdir", folder),
        *(() if filter_descriptor is None else ("--seccomp", str(filter_descriptor))),
        "--",
        *checked(argv, (*view.pinned, *view.read_only), view.sources),
    )


def _private(folders: tuple[str, ...]) -> Iterator[str]:
    for folder in folders:
        mode = "1777" if folder in _OPEN_TO_ALL else "0755"
        yield from ("--perms", mode, "--size", str(PRIVATE_BYTES), "--tmpfs", folder)


def _by_depth(view: View) -> Iterator[str]:
    # A root that is itself hidden was named by the operator, so it comes second.
    steps = [
        *((depth(path), 0, ("--perms", "0755", "--size", "4096", "--tmpfs", path)) for path in view.hidden_folders),
        # A device on a mount without devices: opening it is refused, whoever asks.
        *((depth(path), 0, ("--ro-bind-try", "/dev/null", path)) for path in view.hidden_files),
        *((depth(path), 1, ("--bind", path, path)) for path in view.roots),
    ]
    for _, _, step in sorted(steps, key=lambda step: step[:2]):
        yield from step


def _each(option: str, paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        yield from (option, path, path)
