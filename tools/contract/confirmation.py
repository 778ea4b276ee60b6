"""What a person is asked before something happens, and what they may answer.

`should_confirm_execute` returns details; a `Confirmer` turns them into an answer. The details are plain data:
how a question looks to a person is decided in `tools.contract.display`, how it travels in the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class EditConfirmation:
    """A file is about to be written.

    Args:
        title: One line: what will happen.
        state: Digest of the content the diff was made against, or "absent"; the answer is bound to it.
        file_path: The real path of the file.
        file_diff: The change as a unified diff; empty for a creation without content.
        added: Lines added.
        removed: Lines removed.
        truncated: Whether the diff was cut.
        editable: The text that the person may change before it is written, or `None` where it is too long.
    """

    title: str
    state: str
    file_path: str
    file_diff: str
    added: int
    removed: int
    truncated: bool = False
    editable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """What a person is asked about, where nothing beside the tool and its arguments binds the answer.

    Args:
        title: One line: what will happen.
        state: Always empty.
    """

    title: str
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfirmation(_Details):
    """A shell command is about to run.

    Args:
        command: The whole command, as given.
        directory: The real path of the folder it runs in.
        description: What the model says it is for.
        is_background: Whether it goes on after the call.
    """

    command: str
    directory: str
    description: str = ""
    is_background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpConfirmation(_Details):
    """A tool of an upstream server is about to be called.

    Args:
        server_name: The alias in our configuration.
        tool_name: The tool's name at the upstream.
        arguments: What it will be called with.
    """

    server_name: str
    tool_name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoConfirmation(_Details):
    """Something is about to happen that a sentence says completely.

    Args:
        prompt: What a person has to know, as text.
    """

    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfirmation(_Details):
    """A plan is about to be carried out: plan mode ends.

    Args:
        plan: The plan, as Markdown.
    """

    plan: str


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that a question of the model proposes.

    Args:
        label: The answer, in a few words; unlike those of the other options.
        description: What choosing it means.
    """

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuestion:
    """One question of the model to the user.

    Args:
        header: What it is about, in a word or two; unlike the headers of the other questions.
        question: The whole question.
        options: The answers proposed; none where a text is asked for.
        is_multiple: Whether several options may be chosen.
        takes_text: Whether words of one's own may be given, beside the options or instead.
        placeholder: An example of a text.
    """

    header: str
    question: str
    options: tuple[Option, ...] = ()
    is_multiple: bool = False
    takes_text: bool = True
    placeholder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUserConfirmation(_Details):
    """The model wants to know something. Not consent is asked for but answers, in a form of its own.

    Args:
        questions: In order.
    """

    questions: tuple[UserQuestion, ...]


ConfirmationDetails = (
    EditConfirmation | ExecConfirmation | McpConfirmation | InfoConfirmation | PlanConfirmation | AskUserConfirmation
)


class Decision(StrEnum):
    """The values of the form's `decision` field, in the order in which they are offered."""

    ONCE = "once"
    ALWAYS = "always"
    ALWAYS_SERVER = "always_server"
    SAVE = "save"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that a question offers.

    Args:
        decision: Its value.
        title: What a person reads; names what it covers.
        rules: What it allows beyond this call, as permission rules.
    """

    decision: Decision
    title: str
    rules: tuple[str, ...] = ()


ONCE = Choice(Decision.ONCE, "Allow once")
DENY = Choice(Decision.DENY, "Deny")


class Channel(StrEnum):
    """How an answer came about; it decides what a refusal tells the model."""

    FORM = "form"
    DECLINED = "declined"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    MALFORMED = "malformed"
    EARLIER = "earlier"
    """Given before, for a call that goes on."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a question.

    Args:
        decision: Whether the action may happen. Everything but a valid acceptance is a denial.
        channel: How the answer came about.
        reason: What the person wrote beside a denial.
        content: The text the person put in place of the proposed one, or `None`.
        answers: To the questions of an `AskUserConfirmation`, in order: for each what was chosen and written, nothing
            where it was left out.
    """

    decision: Decision
    channel: Channel = Channel.FORM
    reason: str = ""
    content: str | None = None
    answers: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked before a call can go on.

    Args:
        description: What this call will do, in one line.
        details: What the person has to know.
        fingerprint: Binds the answer to exactly this action and this state of the world.
        choices: The answers it offers, in order. No other one is taken.
        reason: Why it is asked, as a sentence.
    """

    description: str
    details: ConfirmationDetails
    fingerprint: str
    choices: tuple[Choice, ...] = (ONCE, DENY)
    reason: str = ""

    def choice(self, decision: Decision) -> Choice | None:
        """The answer of this kind, if it is offered."""
        return next((choice for choice in self.choices if choice.decision is decision), None)


class Pending:
    """The question has to be returned to the client; the call is run again with the answer."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nobody can be asked.

    Args:
        client_decides: The operator lets the client's own approval dialog decide instead.
        way_out: A sentence that names the setting or the mode which would allow the call.
    """

    client_decides: bool
    way_out: str


class Confirmer(Protocol):
    """Asks a person. The server implements it for each client and protocol era."""

    async def ask(self, question: Question) -> Answer | Pending | Unavailable:
        """Ask, or look up what was answered to exactly this question."""
        ...
