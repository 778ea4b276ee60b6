"""From a verdict to consent: the question that is asked, and what an answer to it is worth."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.contract.base import BaseTool
from tools.contract.confirmation import (
    Answer,
    Channel,
    ConfirmationDetails,
    Decision,
    ExecConfirmation,
    InfoConfirmation,
    McpConfirmation,
    PlanConfirmation,
    Question,
    Unavailable,
)
from tools.contract.context import ToolContext
from tools.contract.errors import ExecutionDeniedError
from tools.contract.subject import Subject
from tools.display import can_be_shown
from tools.permissions.choices import PLAN_CHOICES, choices, rules_for
from tools.permissions.permission import Permission


@dataclass(frozen=True, slots=True)
class Judgement:
    """What would happen to a call.

    Args:
        tool: The tool.
        params: Its parameters.
        permission: The verdict, with its reason.
        subjects: What it touches, as far as that was looked at.
        details: What the tool itself would ask, where it was asked.
    """

    tool: BaseTool[Any]
    params: Any
    permission: Permission
    subjects: Sequence[Subject]
    details: ConfirmationDetails | None


def question_of(
    judged: Judgement, arguments: Mapping[str, Any], description: str, context: ToolContext, *, saves: bool
) -> Question:
    """What a person is asked.

    Args:
        judged: The verdict, which is to ask.
        arguments: As they came.
        description: What the call does, in one line.
        context: Whose call it is.
        saves: Whether there is a place to save rules to.

    Raises:
        ExecutionDeniedError: The action cannot be shown to a person as a whole.
    """
    tool, permission = judged.tool, judged.permission
    shown = judged.details or _plain_details(tool, arguments)
    if isinstance(shown, ExecConfirmation) and not can_be_shown(shown.command):
        raise ExecutionDeniedError(
            "The command needs consent and is too long to be shown to a person as a whole, so nothing was run. "
            "Write it to a script with write_file and run that, or split it."
        )
    if isinstance(shown, PlanConfirmation):
        offered = PLAN_CHOICES
    else:
        rules = rules_for(tool, judged.details, permission, judged.subjects, context.workspace)
        server = shown.server_name if isinstance(shown, McpConfirmation) else None
        offered = choices(rules, remembers=context.client.grants is not None, saves=saves, server=server)
    return Question(description, shown, _fingerprint(tool.name, arguments, shown), offered, permission.reason)


def require_consent(judged: Judgement, answer: Answer | Unavailable) -> None:
    """Go on only with consent.

    Raises:
        ExecutionDeniedError: There is none; the sentence says why, and what would help.
    """
    permission = judged.permission
    if isinstance(answer, Unavailable):
        if answer.client_decides and not judged.tool.behaviour.read_only and not permission.is_explicit:
            # A client may run a tool published as read-only without asking, so its dialog vouches for the others only;
            # and a question that an operator's rule demands has to be seen.
            return
        rules = ", ".join(f'"{rule}"' for rule in permission.grants)
        rule = f" So would permissions.allow with {rules}." if rules else ""
        is_demanded = permission.is_explicit or permission.is_final
        why = f" It was asked because: {permission.reason}." if is_demanded or permission.parts else ""
        way_out = answer.way_out
        if is_demanded:
            way_out = "No mode or setting replaces this question: use a client that can show it (form elicitation)."
        said = f"Nobody could be asked for consent, so nothing was done.{why} {way_out}{rule}"
        raise ExecutionDeniedError(said)
    if answer.decision is Decision.DENY:
        raise ExecutionDeniedError(_refusal(answer))


def _refusal(answer: Answer) -> str:
    match answer.channel:
        case Channel.FORM:
            said = f" Their reason: {answer.reason}" if answer.reason else ""
            return f"The user refused this action; nothing was done. Do not try it again unchanged.{said}"
        case Channel.DECLINED:
            return (
                "The question was declined, so nothing was done. Some clients decline by themselves: perhaps nobody "
                "saw it. The operator can allow such calls with the approvalMode setting or, for an upstream "
                "server, with trust: true."
            )
        case Channel.CANCELLED:
            return "The question was dismissed without a decision, so nothing was done. Ask the user how to go on."
        case Channel.TIMED_OUT:
            return "The question was not answered in time (confirmation.timeout), so nothing was done."
        case Channel.MALFORMED:
            return "The answer carried no valid decision, which is no consent, so nothing was done."


def _fingerprint(tool: str, arguments: Mapping[str, Any], details: ConfirmationDetails) -> str:
    """Binds an answer to one action: the tool, its arguments, and the state of the world the details show."""
    canonical = json.dumps([tool, arguments, details.state], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _plain_details(tool: BaseTool[Any], arguments: Mapping[str, Any]) -> ConfirmationDetails:
    """What is asked where the tool itself would not ask: its name and the arguments."""
    shown = json.dumps(dict(arguments), indent=2, ensure_ascii=False, default=str)
    return InfoConfirmation(title=f"Confirm {tool.display_name}", prompt=f"{tool.name}\n{shown}")
