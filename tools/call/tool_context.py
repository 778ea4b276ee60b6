"""What a tool is given when it runs: the workspace, the limits and the client's state, but never the application."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.contract.command_views import CommandView
from tools.contract.limits import AbortSignal, ApprovalMode, Limits, MediaHandling, Progress, no_progress
from tools.files.read_ledger import ReadLedger
from tools.permissions.client_rights import ALL_RIGHTS, Rights

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
    """The services that tools may use. Each is created by its first call and then shared."""

    commands: Callable[[], CommandRunner] | None = None  # runs shell commands; `None` if there is no way to run them
    # Real paths of files that tools have written with consent, each with the SHA-256 of the last content
    consented: dict[str, str] = field(default_factory=dict[str, str])
    journal: Callable[[], Journal] | None = None  # records file changes for `undo`; `None` if they are not recorded
    forget_plan: Callable[[str], None] | None = None  # called with a client's key when its plan mode ends
    code: Callable[[], CodeIntelligence | None] = lambda: None  # the language servers, once one has been used


@dataclass(slots=True)
class ClientState:
    """The state of one client between its calls."""

    # Whom the state belongs to: the process over stdio, a token's name, or a session's id. Empty for an
    # anonymous client. Nothing is kept for such a client: `reads`, `jobs` and `grants` are `None`.
    key: str
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT  # how much may happen without a question
    reads: ReadLedger | None = field(default_factory=ReadLedger)  # what a client without sessions has read
    jobs: JobTable | None = None  # its background jobs; `None` if it cannot have any
    # What a person has allowed this client from now on, as permission rules
    grants: list[str] | None = field(default_factory=list[str])
    skill_folders: tuple[str, ...] = ()  # folders of loaded skills below the home folder, which it may read
    owner: str = ""  # display name of its token; what is allowed to the owner applies to all their sessions

    def __post_init__(self) -> None:
        if self.is_anonymous:
            self.reads = self.jobs = self.grants = None

    @property
    def is_anonymous(self) -> bool:
        """Whether this client cannot be told apart from others."""
        return not self.key


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The environment of one call, for `should_confirm_execute` and `execute`."""

    workspace: Workspace  # the folders that tools may touch, and the only way to open files in them
    limits: Limits  # how much one call may return
    client: ClientState  # the state of the calling client
    services: Services = field(default_factory=Services)  # what outlives the call and is shared by all clients
    answer: Answer | None = None  # the answer to this call's question, or `None`
    # The details that were answered. The tool acts only while their `state` is still true
    confirmed: ConfirmationDetails | None = None
    is_granted: bool = False  # whether a rule or mode allows the call, regardless of what the tool would ask
    media: MediaHandling = MediaHandling.INLINE  # how images, sounds and other media are returned
    # Results that `should_confirm_execute` keeps for `execute`, so that work is not repeated
    memo: dict[str, object] = field(default_factory=dict[str, object])
    progress: Progress = no_progress  # tells the client how far the work is (done, total or `None`, message)
    signal: AbortSignal = field(default_factory=AbortSignal)  # set when the client cancels
    view: CommandView | None = None  # for a command: its view of the machine, as decided
    keeps_folders: Callable[[], bool] = lambda: True  # whether the client still uses these workspace folders
    clock: Callable[[], float] = time.time  # seconds since the epoch
    rights: Rights = ALL_RIGHTS  # the rights of the token that came with this request; a client may have several tokens
    # The skills of upstream servers: those already known, or a fresh list with `True` (which can take long)
    relayed_skills: Callable[[bool], Awaitable[Sequence[RelayedSkill]]] = _no_skills
    reads_of_session: ReadLedger | None = None  # what the session of this call has read, if there is a session

    @property
    def reads(self) -> ReadLedger | None:
        """What the caller has read. Several agents may share a token, and each knows only what it has read itself."""
        return self.reads_of_session or self.client.reads
