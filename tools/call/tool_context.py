"""What a tool is given when it runs: the workspace, the limits, the client's state. Never the application."""

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
    """The services that tools are given: each is made when it is first called, and then the same one is given."""

    commands: Callable[[], CommandRunner] | None = None  # runs shell commands; `None` where none can be run
    # Real paths of files that tools have written with a person's consent, each with the SHA-256 of the last content
    consented: dict[str, str] = field(default_factory=dict[str, str])
    journal: Callable[[], Journal] | None = None  # what changes of files are written down in; `None` where none are
    forget_plan: Callable[[str], None] | None = None  # called with the key of a client whose plan mode has ended
    code: Callable[[], CodeIntelligence | None] = lambda: None  # the language servers, once one was asked


@dataclass(slots=True)
class ClientState:
    """What belongs to one client between its calls."""

    # Whose state this is: the process over stdio, a token's name, a session's id. Empty for a client that cannot be
    # told from others, so that nothing is kept for it: `reads`, `jobs` and `grants` are `None` then.
    key: str
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT  # how much may happen without a question
    reads: ReadLedger | None = field(default_factory=ReadLedger)  # what it has read, where it has no sessions
    jobs: JobTable | None = None  # what this client runs in the background, `None` where there is no background
    # What a person has allowed it from now on, as permission rules
    grants: list[str] | None = field(default_factory=list[str])
    skill_folders: tuple[str, ...] = ()  # of the home, in which skills lie that it has loaded: it may read them
    owner: str = ""  # whose token it shows, as people call them: what is allowed to it counts in all their sessions

    def __post_init__(self) -> None:
        if self.is_anonymous:
            self.reads = self.jobs = self.grants = None

    @property
    def is_anonymous(self) -> bool:
        """Whether this client cannot be told from others."""
        return not self.key


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What `should_confirm_execute` and `execute` are given."""

    workspace: Workspace  # the folders that tools may touch, and the one way to open anything in them
    limits: Limits  # how much one call may return
    client: ClientState  # what belongs to the calling client
    services: Services = field(default_factory=Services)  # what outlives a call and is shared by all clients
    answer: Answer | None = None  # what a person answered to this call's question, or `None`
    # The details that were answered; the tool acts only while their `state` still holds
    confirmed: ConfirmationDetails | None = None
    is_granted: bool = False  # whether a rule or the approval mode allows the call, whatever the tool would ask
    media: MediaHandling = MediaHandling.INLINE  # what becomes of images, sounds and other media
    # What one call's `should_confirm_execute` leaves for its `execute`, so that work is not done twice
    memo: dict[str, object] = field(default_factory=dict[str, object])
    progress: Progress = no_progress  # tells the client how far the work is (done, total or `None`, message)
    signal: AbortSignal = field(default_factory=AbortSignal)  # set when the client has cancelled
    view: CommandView | None = None  # of a command: the view of the machine that its verdict gave it
    keeps_folders: Callable[[], bool] = lambda: True  # whether the client still works in the folders of the workspace
    clock: Callable[[], float] = time.time  # seconds since the epoch
    rights: Rights = ALL_RIGHTS  # what the token gives that came with this request; the client may have several
    # The skills of the servers behind this one: those that are known, or with `True` as they are now (may take long)
    relayed_skills: Callable[[bool], Awaitable[Sequence[RelayedSkill]]] = _no_skills
    reads_of_session: ReadLedger | None = None  # what the session of this call has read, if it is of one

    @property
    def reads(self) -> ReadLedger | None:
        """What was read by who calls: several agents may have one token, and each knows only what it has read."""
        return self.reads_of_session or self.client.reads
