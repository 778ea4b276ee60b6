"""What a shell command is to those who ask for one: what is run, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tools.contract.subjects import NO_WAIVER, Waiver

if TYPE_CHECKING:
    from tools.shell.confinement import Confined, SandboxChanges
    from tools.shell.jobs import Job
    from tools.shell.process import ExitStatus


OUTPUT_CHARS = 40_000
"""Characters of an output that are shown (Gemini CLI's number)."""

POSIX_SHELL = "/bin/sh"
"""What runs commands where there is no bash."""


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """What is to be run, and for whom.

    Args:
        command: As the shell reads it.
        folder: The real path of the folder it starts in.
        roots: Real paths of the workspace's folders.
        client_key: Whose output it is; empty for a client that cannot be told from others.
        timeout_seconds: How long it may take, waiting for its turn included; in the background its start
            alone.
        description: What it is for, in the model's words.
        waiver: What of the sandbox's protection it is let off.
    """

    command: str
    folder: str
    roots: Sequence[str]
    client_key: str
    timeout_seconds: float
    description: str = ""
    waiver: Waiver = NO_WAIVER


@dataclass(frozen=True, slots=True)
class Shown:
    """An output as a result tells it.

    Args:
        text: What is shown of it, without blank lines around it.
        total: Bytes of the whole output.
        is_cut: Whether something between its beginning and its end is left out.
        is_binary: Whether it is no text, and nothing of it is shown.
        file: Where the output is kept, or `None`.
        missing: Bytes at the end of the output that the file does not hold.
    """

    text: str
    total: int
    is_cut: bool = False
    is_binary: bool = False
    file: str | None = None
    missing: int = 0


class Ending(StrEnum):
    """Why a command is over."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    SILENT = "silent"
    OVERFLOWED = "overflowed"


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that is over, as far as its call is concerned.

    Args:
        ending: Why.
        exit: How the shell ended; `None` where it was ended.
        shown: What it printed.
        seconds: How long it ran, without waiting for its turn.
        pid: The process id it had.
        shell: The absolute path of the shell that ran it.
        confined: Where it ran.
        changes: What is known of auto-run files.
        left_running: Processes that it started and that ran on.
        job: The background job that these are now, or `None` where they were ended because there can be none.
    """

    ending: Ending
    exit: ExitStatus | None
    shown: Shown
    seconds: float
    pid: int
    shell: str
    confined: Confined
    changes: SandboxChanges
    left_running: tuple[int, ...] = ()
    job: Job | None = None
