"""What running a command means to those who ask for it: a specification, a process, and how it ended.

Nothing here starts anything. `tools.shell.brokered_starter` does, through the broker, which sees to it that nothing
is left of a command once this server is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of the operating system for a command and all it starts (`setrlimit`); `None` leaves one as it is."""

    file_bytes: int | None = None  # the largest file it may write
    processes: int | None = None  # the most of its user, those that run already included; without effect for root
    core_bytes: int | None = 0
    group: str | None = None  # the file by which it and all it starts join a control group (`cgroup.procs`)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    argv: tuple[str, ...]  # the program, by absolute path, and its arguments; no shell reads them
    folder: str  # the folder it starts in, an absolute path
    environment: Mapping[str, str] = field(repr=False)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    # Content that the program reads from descriptors of these numbers: 0, its standard input, which is empty otherwise,
    # and 3 and above.
    attachments: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    # Open descriptors of ours, by the numbers, 0 and 3 and above, that the program has them under.
    descriptors: Mapping[int, int] = field(default_factory=dict[int, int])
    separates_errors: bool = False  # whether what comes on standard error is told apart from the rest


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a program ended: exactly one of the two is set."""

    code: int | None
    signal: str | None  # the name of the signal that ended it, such as `SIGKILL`


class StartFailedError(Exception):
    """A program could not be started, with the error number of the operating system, 0 where there is none."""

    def __init__(self, number: int) -> None:
        super().__init__("the program could not be started")
        self.number = number


class Process(Protocol):
    """One started program with everything that it starts, whatever session or group that is in.

    It reads nothing but what it was given, has no terminal, and runs in a session of its own.
    """

    pid: int  # the process id of the program itself, also the id of its group
    # A non-blocking descriptor with what it and its children print, both streams in the order of writing. It ends only
    # when every process that holds it has ended.
    output: int
    errors: int  # the same with what comes on standard error, where that is told apart; else -1

    async def wait(self) -> ExitStatus:
        """Wait for the program itself; what it left running may go on. May be called any number of times."""
        ...

    async def left_running(self) -> tuple[int, ...]:
        """The ids of all processes that it started and that still run, itself included."""
        ...

    async def end(self, grace_seconds: float) -> None:
        """End it and all it started, with SIGTERM first and SIGKILL after the grace; returns when nothing is left.

        Bounded, shielded from cancellation, and harmless where everything has ended already.
        """
        ...

    async def wait_gone(self) -> None:
        """Wait until it and all it started have ended."""
        ...

    def close(self) -> None:
        """Close `output` and `errors`. What still runs and prints then gets an error for it."""
        ...


class ProcessStarter(Protocol):
    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. If this is cancelled, nothing of it stays. A `StartFailedError` if it cannot be started."""
        ...
