"""Questions that a person is asked before something happens, and the possible answers.

`should_confirm_execute` returns details, and a `Confirmer` turns them into an answer. The details are plain data:
`tools.contract.display` decides how a question looks, and the server decides how it is delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tools.contract.command_views import CommandView


@dataclass(frozen=True, slots=True, kw_only=True)
class EditConfirmation:
    """Consent to write a file."""

    title: str  # one line that says what will happen
    state: str  # the file's path, usually with the digest of its content or "absent"; the answer applies only to this
    file_path: str  # the real path of the file; for a file in the client's scratch folder, its path under `/tmp`
    file_diff: str  # the change as a unified diff; empty for a new file without content
    added: int  # lines added
    removed: int | None  # lines removed; `None` if the old content is hidden
    truncated: bool = False  # whether the diff was truncated
    notes: tuple[str, ...] = ()  # facts that the diff does not show, one line each
    # The text to write, which the user may edit first; `None` if it is too long or must not be edited
    editable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """The details of a question. If `state` is empty, the answer is bound only to the tool and its arguments."""

    title: str  # one line that says what will happen
    state: str = ""  # what the user saw, or a digest of it; if it changes, the answer no longer applies


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfirmation(_Details):
    """Consent to run a shell command or an agent."""

    command: str  # the whole command, as received; for an agent, its command line and the task
    directory: str  # the working directory: its real path, or a path under `/tmp` as in a `PathSubject`
    description: str = ""  # the model's explanation of the command
    is_background: bool = False  # whether the command continues after the call
    view: CommandView | None = None  # what the command can do, if it is restricted; `state` includes the view's digest
    roots: tuple[str, ...] = ()  # real paths of the workspace folders


@dataclass(frozen=True, slots=True, kw_only=True)
class McpConfirmation(_Details):
    """Consent to call a tool of an upstream server."""

    server_name: str  # the upstream's alias in this server's configuration
    tool_name: str  # the tool's name on the upstream server
    arguments: Mapping[str, Any]
    changes: str = ""  # what the server has changed about the tool, if that is why the question is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoConfirmation(_Details):
    """Consent to an action that plain text describes completely."""

    prompt: str  # what the user has to know, as text


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalConfirmation(InfoConfirmation):
    """Approval of a changed tool, for all clients, by a person who has seen the new version."""

    way_out: str  # a sentence that says how a person can approve the tool if nobody can be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfirmation(_Details):
    """Consent to carry out a plan, which ends plan mode."""

    plan: str  # the plan, as Markdown


@dataclass(frozen=True, slots=True)
class Option:
    """An answer that the model proposes."""

    label: str  # the answer in a few words; unique among the options
    description: str = ""  # what choosing this option means


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuestion:
    """A question from the model to the user."""

    header: str  # the topic in a word or two; unique among the questions
    question: str
    options: tuple[Option, ...] = ()  # the proposed answers; empty if the answer is free text
    is_multiple: bool = False  # whether several options may be chosen
    takes_text: bool = True  # whether the user may write an answer instead of, or in addition to, the options
    placeholder: str = ""  # an example of a written answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUserConfirmation(_Details):
    """Questions from the model to the user. They need answers, not consent, so they are asked in a different form."""

    questions: tuple[UserQuestion, ...]


ConfirmationDetails = (
    EditConfirmation | ExecConfirmation | McpConfirmation | InfoConfirmation | PlanConfirmation | AskUserConfirmation
)


class Decision(StrEnum):
    """The values of the form's `decision` field, in display order."""

    ONCE = "once"
    ALWAYS = "always"
    ALWAYS_SANDBOXED = "always_sandboxed"
    ALWAYS_SERVER = "always_server"
    SAVE = "save"
    APPROVE = "approve"
    DENY = "deny"


ALWAYS_IN_SESSION = (Decision.ALWAYS, Decision.ALWAYS_SANDBOXED)
"""Answers that last for the session. `ALWAYS_SERVER` is omitted, because it is offered only together with `ALWAYS`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that a question offers."""

    decision: Decision
    title: str  # the text that a person reads, with everything that the choice covers
    rules: tuple[str, ...] = ()  # the permission rules that this choice adds


ONCE = Choice(Decision.ONCE, "Allow once")
DENY = Choice(Decision.DENY, "Deny")


class ConsentChannel(StrEnum):
    """How an answer was obtained. This determines what the model is told about a refusal."""

    FORM = "form"
    DECLINED = "declined"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    NOBODY_CAME = "nobody_came"  # nobody opened the dashboard, where the question was waiting
    MALFORMED = "malformed"
    FAILED = "failed"  # the client answered with an error; `reason` has its text
    EARLIER = "earlier"  # consent was given in an earlier round of the same call


@dataclass(frozen=True, slots=True)
class Answer:
    decision: Decision  # whether the action may happen; anything but a valid acceptance is a denial
    channel: ConsentChannel = ConsentChannel.FORM  # how the answer was obtained
    reason: str = ""  # the user's comment on a denial, or the client's error
    content: str | None = None  # text with which the user replaced the proposed text, or `None`
    # The answers to an `AskUserConfirmation`, in order: for each question the chosen options and any written text.
    # Empty for a skipped question
    answers: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person, which must be answered before a call may continue."""

    description: str  # what this call will do, in one line
    details: ConfirmationDetails  # what the user has to know
    fingerprint: str  # a digest that binds the answer to exactly this action and this state
    choices: tuple[Choice, ...] = (ONCE, DENY)  # the answers on offer, in order; no other answer is accepted
    reason: str = ""  # why the question is asked, as a clause
    must_be_shown: bool = False  # whether the client's own dialog cannot answer it

    def choice(self, decision: Decision) -> Choice | None:
        """Return the choice with this decision, if it is offered."""
        return next((choice for choice in self.choices if choice.decision is decision), None)


class Pending:
    """The question must be sent to the client. The call is then run again with the answer."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nobody can be asked."""

    client_decides: bool  # whether the operator lets the client's own approval dialog decide
    way_out: str  # why nobody can be asked and what would help, as sentences; may be empty


class Confirmer(Protocol):
    """Asks a person. The server implements it for each client and protocol revision."""

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        """Ask the person, or look up an earlier answer to exactly this question."""
        ...
