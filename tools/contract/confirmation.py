"""What a person is asked before something happens, and what they may answer.

`should_confirm_execute` returns details; a `Confirmer` turns them into an answer. The details are plain data:
how a question looks to a person is decided in `tools.contract.display`, how it travels in the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tools.contract.command_views import CommandView


@dataclass(frozen=True, slots=True, kw_only=True)
class EditConfirmation:
    """A file is about to be written."""

    title: str  # one line: what will happen
    state: str  # digest of the content the diff was made against, or "absent"; the answer is bound to it
    file_path: str  # the real path of the file
    file_diff: str  # the change as a unified diff; empty for a creation without content
    added: int  # lines added
    removed: int  # lines removed
    truncated: bool = False  # whether the diff was cut
    # The text that the person may change before it is written, or `None` where it is too long
    editable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """What a person is asked about, where mostly nothing beside the tool and its arguments binds the answer."""

    title: str  # one line: what will happen
    state: str = ""  # a digest of the rest, where there is some


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfirmation(_Details):
    """A shell command is about to run."""

    command: str  # the whole command, as given
    directory: str  # the real path of the folder it runs in
    description: str = ""  # what the model says it is for
    is_background: bool = False  # whether it goes on after the call
    view: CommandView | None = None  # what it will be able to do, where that is held to something; `state` has a digest
    roots: tuple[str, ...] = ()  # real paths of the workspace's folders


@dataclass(frozen=True, slots=True, kw_only=True)
class McpConfirmation(_Details):
    """A tool of an upstream server is about to be called."""

    server_name: str  # the alias in our configuration
    tool_name: str  # the tool's name at the upstream
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoConfirmation(_Details):
    """Something is about to happen that a sentence says completely."""

    prompt: str  # what a person has to know, as text


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalConfirmation(InfoConfirmation):
    """A tool that has changed is about to be approved as it is: for everybody, and by a person who has seen it."""

    way_out: str  # a sentence: how a person approves it where they cannot be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfirmation(_Details):
    """A plan is about to be carried out: plan mode ends."""

    plan: str  # the plan, as Markdown


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that a question of the model proposes."""

    label: str  # the answer, in a few words; unlike those of the other options
    description: str = ""  # what choosing it means


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuestion:
    """One question of the model to the user."""

    header: str  # what it is about, in a word or two; unlike the headers of the other questions
    question: str
    options: tuple[Option, ...] = ()  # the answers proposed; none where a text is asked for
    is_multiple: bool = False  # whether several options may be chosen
    takes_text: bool = True  # whether words of one's own may be given, beside the options or instead
    placeholder: str = ""  # an example of a text


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUserConfirmation(_Details):
    """The model wants to know something. Not consent is asked for but answers, in a form of its own."""

    questions: tuple[UserQuestion, ...]


ConfirmationDetails = (
    EditConfirmation | ExecConfirmation | McpConfirmation | InfoConfirmation | PlanConfirmation | AskUserConfirmation
)


class Decision(StrEnum):
    """The values of the form's `decision` field, in the order in which they are offered."""

    ONCE = "once"
    ALWAYS = "always"
    ALWAYS_SANDBOXED = "always_sandboxed"
    ALWAYS_SERVER = "always_server"
    SAVE = "save"
    APPROVE = "approve"
    DENY = "deny"


ALWAYS_IN_SESSION = (Decision.ALWAYS, Decision.ALWAYS_SANDBOXED)
"""What a client is offered in a session, and may be allowed in another process of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that a question offers."""

    decision: Decision
    title: str  # what a person reads; names what it covers
    rules: tuple[str, ...] = ()  # what it allows beyond this call, as permission rules


ONCE = Choice(Decision.ONCE, "Allow once")
DENY = Choice(Decision.DENY, "Deny")


class ConsentChannel(StrEnum):
    """How an answer came about; it decides what a refusal tells the model."""

    FORM = "form"
    DECLINED = "declined"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    NOBODY_CAME = "nobody_came"  # to the dashboard, where it was asked
    MALFORMED = "malformed"
    FAILED = "failed"  # the client answered with an error, which is the reason
    EARLIER = "earlier"  # given before, for a call that goes on


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a question."""

    decision: Decision  # whether the action may happen. Everything but a valid acceptance is a denial.
    channel: ConsentChannel = ConsentChannel.FORM  # how the answer came about
    reason: str = ""  # what the person wrote beside a denial, or the client's error
    content: str | None = None  # the text the person put in place of the proposed one, or `None`
    # To the questions of an `AskUserConfirmation`, in order: for each what was chosen and written, nothing where it was
    # left out
    answers: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked before a call can go on."""

    description: str  # what this call will do, in one line
    details: ConfirmationDetails  # what the person has to know
    fingerprint: str  # binds the answer to exactly this action and this state of the world
    choices: tuple[Choice, ...] = (ONCE, DENY)  # the answers it offers, in order. No other one is taken.
    reason: str = ""  # why it is asked, as a sentence

    def choice(self, decision: Decision) -> Choice | None:
        """The answer of this kind, if it is offered."""
        return next((choice for choice in self.choices if choice.decision is decision), None)


class Pending:
    """The question has to be returned to the client; the call is run again with the answer."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nobody can be asked."""

    client_decides: bool  # the operator lets the client's own approval dialog decide instead
    way_out: str  # a sentence that names the setting or the mode which would allow the call


class Confirmer(Protocol):
    """Asks a person. The server implements it for each client and protocol era."""

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        """Ask, or look up what was answered to exactly this question."""
        ...
