"""The types for running a program: what to run, its process, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tools.contract.command_views import CommandSite, CommandView, Engine, Network, ViewKind


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of the operating system for a command and everything it starts (`setrlimit`). `None` means unchanged."""

    file_bytes: int | None = None  # maximum size of a file
    processes: int | None = None  # maximum number of processes of the user, including running ones; no effect for root
    core_bytes: int | None = 0
    group: str | None = None  # the file through which to join a control group (`cgroup.procs`)


@dataclass(frozen=True, slots=True)
class LandlockRules:
    """Landlock rules for the files of a program and everything it starts.

    All sockets except netlink sockets and unnamed pairs are refused. Paths are absolute and without symlinks. A missing
    path grants nothing, and a path that has become a symlink is an error.
    """

    readable: tuple[str, ...]  # files and folders, with their contents, that may be read, listed and executed
    # Files and folders, with their contents, that may be changed. In the folders, files may be created and removed
    writable: tuple[str, ...]
    calls: bytes = field(repr=False)  # a BPF program that filters system calls


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    argv: tuple[str, ...]  # the program's absolute path, and its arguments; no shell parses them
    folder: str  # absolute path of the working directory
    environment: Mapping[str, str] = field(repr=False)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    # Content for descriptors that the program reads: 0 (standard input, empty by default), and 3 and above.
    attachments: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    # Open descriptors of this server, keyed by their numbers in the program (0, and 3 and above).
    descriptors: Mapping[int, int] = field(default_factory=dict[int, int])
    separates_errors: bool = False  # whether standard error is separate from the other output
    # Open descriptors of namespaces to join, in this order
    namespaces: tuple[int, ...] = ()
    landlock: LandlockRules | None = None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a program exited. Either the code or the signal is set."""

    code: int | None
    signal: str | None  # the name of the signal that killed it, such as `SIGKILL`
    is_lost: bool = False  # whether it was killed because the broker was lost


class StartFailedError(Exception):
    """A program could not be started. `number` is the operating system's error number, or 0."""

    def __init__(self, number: int) -> None:
        super().__init__("the program could not be started")
        self.number = number


class EndedEarlyError(Exception):
    """The sandbox process exited before the command started. Its output says why."""


class MountStep(NamedTuple):
    """A mount in the namespaces of another process. Its paths are absolute, free of symlinks, and resolved there."""

    source: str  # path to mount; if empty, `place` is mounted onto itself
    place: str
    is_read_only: bool
    # Whether `source` is moved to `place`; otherwise, it and all mounts under it are copied there
    is_moved: bool = False


class Process(Protocol):
    """A started program and everything that it starts, in any session or group.

    It has no terminal, runs in its own session, and gets no input other than what its spec contains.
    """

    pid: int  # process id of the program and of its group
    # A non-blocking descriptor with the output of the program and its children. Unless standard error is separate, it
    # carries both streams, in the order in which they were written. It reaches end of file once every process that
    # holds it open has exited or closed it.
    output: int
    errors: int  # the descriptor of standard error, if separate; else -1

    async def wait(self) -> ExitStatus:
        """Wait for the program itself. Processes that it started may continue. Can be called repeatedly."""
        ...

    async def left_running(self) -> tuple[int, ...]:
        """Return the ids of all its running processes, including the program."""
        ...

    async def mount(self, pid_descriptor: int, steps: Iterable[MountStep]) -> None:
        """Perform mounts in the namespaces of a process that the program started.

        Waits until that process's id can be read from the descriptor `pid_descriptor`, and raises an `OSError` on
        failure. Until `pid_descriptor` yields the id or end of file, other requests about the program wait.
        """
        ...

    async def end(self, grace_seconds: float) -> None:
        """Stop all its processes: SIGTERM, then SIGKILL after the grace period. Returns when nothing is left.

        Bounded, shielded from cancellation, and harmless if everything has already exited.
        """
        ...

    async def wait_gone(self) -> None: ...

    def close(self) -> None:
        """Close `output` and `errors`. Processes that still write to them get an error."""
        ...


def unread_output(process: Process) -> str:
    """Return the beginning of the unread output."""
    with suppress(BlockingIOError):
        return os.read(process.output, 4096).decode("utf-8", "replace")
    return ""


Mount = Callable[[int, Iterable[MountStep]], Coroutine[Any, Any, None]]  # the type of `Process.mount`


class ProcessStarter(Protocol):
    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. Cancellation leaves no process behind. Raises a `StartFailedError` on failure."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxChanges:
    """The effects of a command on auto-run files and on its `/tmp`."""

    # New auto-run files, and where they were moved: out of the workspace, or to another name
    moved: tuple[tuple[str, str], ...] = ()
    unmovable: tuple[str, ...] = ()  # new auto-run files that could not be moved
    changed: tuple[str, ...] = ()  # auto-run files that the command or another program changed or removed
    uncovered: int = 0  # how many auto-run files and folders were not protected, because there were too many
    # Size of the command's temporary files in bytes, if they exceeded a limit and were therefore removed; else 0
    temporary_bytes: int = 0
    temporary_files: int = 0  # how many temporary files and folders were counted, if they were removed; else 0
    has_overfilled: bool = False  # whether the command was stopped because its temporary files exceeded a limit
    not_lasting: tuple[str, ...] = ()  # files that the command left in a `/tmp` that did not outlive the command
    is_unknown: bool = False  # whether it is unknown what happened to auto-run files


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """A known location of secrets, which commands do not see."""

    programs: frozenset[str]  # command names of the programs that may fail without this file or folder
    is_settings: bool  # whether programs also read settings from the file; if so, a file without secrets is shown


@dataclass(slots=True)
class ConfinedCommand:
    spec: ProcessSpec  # what to start, including the sandbox's own program if there is one
    engine: Engine = Engine.NONE  # the mechanism that keeps the command in its view
    view: ViewKind = ViewKind.UNCONFINED
    # The network that the command uses; `OWN_LOOPBACK` instead of `SESSION_LOOPBACK` if the session has no loopback
    network: Network = Network.HOST
    # Secrets that the command does not see, keyed by path
    withheld: Mapping[str, SecretPlace] = field(default_factory=dict[str, SecretPlace], kw_only=True)
    foreign_owner: int | None = field(default=None, kw_only=True)  # as in `visible_file_system.foreign_owner`

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """Return the folders whose total size is limited while the command runs, and the limit in bytes."""
        return (), 0

    async def begin(self, mount: Mount) -> None:
        """Let the command begin. Until then, its process only waits for mounts.

        Raises a `ToolError` if the command is not confined as intended and must be stopped. Raises an `EndedEarlyError`
        if the sandbox exited before the command started.
        """

    async def release(self) -> SandboxChanges:
        """Release the command's resources, once it has exited completely, or if it was never started."""
        return SandboxChanges()


class Confinement(Protocol):
    async def make_ready(self, workspace_roots: Sequence[str]) -> None: ...

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        """Return the facts about confinement that apply to all clients, and the paths in the reading view. Blocking."""
        ...

    async def confine(
        self,
        spec: ProcessSpec,
        workspace_roots: Sequence[str],
        view: CommandView,
        private_folder: Callable[[], str] | None = None,
        client_key: str = "",
        /,
    ) -> ConfinedCommand:
        """Put a command into its view.

        Raises a `ToolError` if that is impossible; the command never runs in a wider view instead. The roots are real
        paths of the workspace folders. `private_folder`, if given, is a blocking function that creates the folder for
        the client's `/tmp`.
        """
        ...
