"""The context in which a tool runs: the workspace, the limits and the client's state, but never the application."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tools.contract.command_views import CommandView
from tools.contract.limits import AbortSignal, ApprovalMode, Limits, MediaHandling, Progress, no_progress
from tools.files.workspace import ReadLedger
from tools.permissions.permission_policy import ALL_RIGHTS, Rights

if TYPE_CHECKING:
    from tools.contract.confirmation import Answer, ConfirmationDetails
    from tools.files.change.journal import Journal
    from tools.files.workspace import Workspace
    from tools.lsp.code_intelligence import CodeIntelligence
    from tools.shell.command_runner import CommandRunner
    from tools.shell.job_table import JobTable
    from tools.skills.skill_folders import RelayedSkill


async def _no_skills(_is_fresh: bool) -> Sequence[RelayedSkill]:
    return ()


@dataclass(frozen=True, slots=True)
class Services:
    """The services that tools may use. Each is created on first use and then shared."""

    commands: Callable[[], CommandRunner] | None = None  # runs shell commands; `None` if commands cannot run
    # Real paths of files that tools have written with consent, mapped to the SHA-256 of the content last written
    consented: dict[str, str] = field(default_factory=dict[str, str])
    journal: Callable[[], Journal] | None = None  # records file changes for `undo`; `None` if they are not recorded
    forget_plan: Callable[[str], None] | None = None  # called with a client's key when its plan mode ends
    # Returns the language servers, or `None` if none has been used
    code: Callable[[], CodeIntelligence | None] = lambda: None


@dataclass(slots=True)
class ClientState:
    """The state of one client between its calls."""

    # Identifies the client: the process over stdio, a token's name, or a session's ID. Empty for an anonymous client,
    # which has no stored state: `reads`, `jobs` and `grants` are `None`.
    key: str
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT  # which calls may run without a question
    reads: ReadLedger | None = field(default_factory=ReadLedger)  # what a client without sessions has read
    jobs: JobTable | None = None  # the client's background jobs; `None` if the client cannot have any
    # Permission rules that a person has granted to this client
    grants: list[str] | None = field(default_factory=list[str])
    skill_folders: tuple[str, ...] = ()  # folders, in the home folder, of loaded skills; the client may read them
    owner: str = ""  # display name of the client's token; grants apply to all sessions of this owner

    def __post_init__(self) -> None:
        if self.is_anonymous:
            self.reads = self.jobs = self.grants = None

    @property
    def is_anonymous(self) -> bool:
        """True if this client cannot be told apart from other clients."""
        return not self.key


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The environment of one call, for `should_confirm_execute` and `execute`."""

    workspace: Workspace  # the folders that tools may touch, and the only way to open files in them
    limits: Limits  # how much one call may return
    client: ClientState  # the state of the calling client
    services: Services = field(default_factory=Services)  # services that all clients share; they outlive the call
    answer: Answer | None = None  # the answer to this call's question, or `None`
    # The details that the user agreed to. The tool acts only if their `state` is still current
    confirmed: ConfirmationDetails | None = None
    is_granted: bool = False  # whether a rule or the mode allows the call, regardless of the tool's own question
    media: MediaHandling = MediaHandling.INLINE  # how images, sounds and other media are returned
    # Results of earlier steps that `execute` needs, so that work is not repeated; each with the parameters of its call
    memo: dict[str, tuple[object, Any]] = field(default_factory=dict[str, tuple[object, Any]])
    progress: Progress = no_progress  # reports progress to the client (done, total or `None`, message)
    signal: AbortSignal = field(default_factory=AbortSignal)  # set when the client cancels the call
    view: CommandView | None = None  # for a command: the chosen view of the machine
    # Returns whether the client still uses these workspace folders; made in `Contexts.for_request` of the server
    keeps_folders: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.time  # seconds since the epoch
    rights: Rights = ALL_RIGHTS  # the rights of this request's token; a client may have several tokens
    # Returns the skills of upstream servers: those already known or, if called with `True`, those in fresh lists, which
    # can take a long time
    relayed_skills: Callable[[bool], Awaitable[Sequence[RelayedSkill]]] = _no_skills
    reads_of_session: ReadLedger | None = None  # what this call's session has read; `None` without a session

    def kept(self, name: str, params: object) -> Any:
        """Return what the memo has under this name for exactly these parameters, or `None`."""
        kept_for, value = self.memo.get(name, (None, None))
        return value if kept_for is params else None

    @property
    def reads(self) -> ReadLedger | None:
        """The record of what the caller has read. Agents that share a token have separate ledgers, one per session."""
        return self.reads_of_session or self.client.reads
