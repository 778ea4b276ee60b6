"""What a tool is given when it runs: the workspace, the limits, the client's state. Never the application."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.ledger import ReadLedger
from tools.contract.services import Services
from tools.contract.subject import NO_WAIVER, Waiver

if TYPE_CHECKING:
    from tools.contract.confirmation import Answer, ConfirmationDetails
    from tools.execution.jobs import JobTable
    from tools.filesystem.workspace import Workspace


class ApprovalMode(StrEnum):
    """How much may happen without a question, from least to most."""

    PLAN = "plan"
    DEFAULT = "default"
    AUTO_EDIT = "auto-edit"
    YOLO = "yolo"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one call may return. Every cut is announced in the result.

    Args:
        read_lines: Lines of one read without an explicit limit (Gemini CLI's 2,000).
        read_chars: Characters of one read (Qwen Code's 25,000).
        line_chars: Characters of one line before it is cut (Gemini CLI's 2,000).
        list_entries: Entries of one listing, and files of one glob (Qwen Code's 100).
        grep_matches: Matching lines of one search (Gemini CLI's 100).
        read_many_files: Files of one `read_many_files`.
        read_many_chars: Characters of one `read_many_files`.
    """

    read_lines: int = 2_000
    read_chars: int = 25_000
    line_chars: int = 2_000
    list_entries: int = 100
    grep_matches: int = 100
    read_many_files: int = 100
    read_many_chars: int = 100_000


class MediaHandling(StrEnum):
    """What becomes of images, sounds and other media in results."""

    INLINE = "inline"
    RESOURCE_LINK = "resource_link"
    NOTICE = "notice"


class AbortSignal:
    """A flag that worker threads look at between steps; set once, never cleared (Qwen Code's AbortSignal)."""

    __slots__ = ("_is_aborted",)

    def __init__(self) -> None:
        self._is_aborted = False

    def abort(self) -> None:
        """Ask the work to stop."""
        self._is_aborted = True

    @property
    def aborted(self) -> bool:
        """Whether somebody asked the work to stop."""
        return self._is_aborted

    def raise_if_aborted(self) -> None:
        """Stop here if asked to.

        Raises:
            ToolError: With the code `cancelled`.
        """
        if self._is_aborted:
            raise ToolError(ToolErrorType.CANCELLED, "The call was cancelled before it was finished.")


@dataclass(slots=True)
class ClientState:
    """What belongs to one client between its calls.

    Args:
        key: Whose state this is: the process over stdio, a token's name, a session's id. Empty for a client that cannot
            be told from others, so that nothing is kept for it: `reads`, `jobs` and `grants` are `None` then.
        approval_mode: How much may happen without a question.
        reads: What this client has read.
        jobs: What this client runs in the background, `None` where there is no background.
        grants: What a person has allowed it from now on, as permission rules.
    """

    key: str
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT
    reads: ReadLedger | None = field(default_factory=ReadLedger)
    jobs: JobTable | None = None
    grants: list[str] | None = field(default_factory=list[str])

    def __post_init__(self) -> None:
        if self.is_anonymous:
            self.reads = self.jobs = self.grants = None

    @property
    def is_anonymous(self) -> bool:
        """Whether this client cannot be told from others."""
        return not self.key


Progress = Callable[[float, float | None, str], Awaitable[None]]
"""Tells how far something is: done, total or `None`, message."""


async def _no_progress(done: float, total: float | None, message: str) -> None:
    """Nobody asked for progress."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What `should_confirm_execute` and `execute` are given.

    Args:
        workspace: The folders that tools may touch, and the one way to open anything in them.
        limits: How much one call may return.
        client: What belongs to the calling client.
        services: What outlives a call and is shared by all clients.
        answer: What a person answered to this call's question, or `None`.
        confirmed: The details that were answered; the tool acts only while their `state` still holds.
        media: What becomes of images, sounds and other media.
        memo: What one call's `should_confirm_execute` leaves for its `execute`, so that work is not done twice.
        progress: Tells the client how far the work is (done, total or `None`, message).
        signal: Set when the client has cancelled.
        waiver: What of the sandbox's protection a command is let off.
        clock: Seconds since the epoch.
    """

    workspace: Workspace
    limits: Limits
    client: ClientState
    services: Services = field(default_factory=Services)
    answer: Answer | None = None
    confirmed: ConfirmationDetails | None = None
    media: MediaHandling = MediaHandling.INLINE
    memo: dict[str, object] = field(default_factory=dict[str, object])
    progress: Progress = _no_progress
    signal: AbortSignal = field(default_factory=AbortSignal)
    waiver: Waiver = NO_WAIVER
    clock: Callable[[], float] = time.time
