"""From a verdict to consent: the question that is asked, and what an answer to it is worth."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.call.base_tool import BaseTool
from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    Channel,
    Choice,
    ConfirmationDetails,
    Decision,
    EditConfirmation,
    ExecConfirmation,
    InfoConfirmation,
    McpConfirmation,
    Question,
    Unavailable,
)
from tools.contract.display import can_be_shown
from tools.contract.errors import ExecutionDeniedError
from tools.contract.subjects import Kind
from tools.permissions.verdict import Permission


@dataclass(frozen=True, slots=True)
class Judgement:
    """What would happen to a call.

    Args:
        tool: The tool.
        params: Its parameters.
        permission: The verdict, with its reason.
        details: What the tool itself would ask, where it was asked.
        choices: Where the verdict is to ask: the answers that are offered.
        written: Where the verdict is to ask: real paths of the files that are written.
    """

    tool: BaseTool[Any]
    params: Any
    permission: Permission
    details: ConfirmationDetails | None = None
    choices: tuple[Choice, ...] = ()
    written: tuple[str, ...] = ()


def question_of(judged: Judgement, arguments: Mapping[str, Any], description: str) -> Question:
    """What a person is asked.

    Args:
        judged: The verdict, which is to ask.
        arguments: As they came.
        description: What the call does, in one line.

    Raises:
        ExecutionDeniedError: The action cannot be shown to a person as a whole.
    """
    tool = judged.tool
    shown = judged.details or _plain_details(tool, arguments)
    if isinstance(shown, ExecConfirmation) and not can_be_shown(shown.command):
        raise ExecutionDeniedError(
            "The call needs consent and is too long to be shown to a person as a whole, so nothing was run. "
            "Write what is long to a file with write_file (a command to a script) and name that, or split it."
        )
    fingerprint = _fingerprint(tool, arguments, shown)
    # Who is asked for an answer and not for consent needs no reason.
    reason = "" if isinstance(shown, AskUserConfirmation) else judged.permission.reason
    return Question(description, shown, fingerprint, judged.choices, reason)


def require_consent(judged: Judgement, answer: Answer | Unavailable) -> None:
    """Go on only with consent.

    Raises:
        ExecutionDeniedError: There is none; the sentence says why, and what would help.
    """
    if isinstance(judged.details, AskUserConfirmation):
        return  # whatever came back, or that nobody could be asked, is for the tool to tell
    permission = judged.permission
    if isinstance(answer, Unavailable):
        if answer.client_decides and not judged.tool.behaviour.read_only and not permission.is_explicit:
            # A client may run a tool published as read-only without asking, so its dialog vouches for the others only;
            # and a question that an operator's rule demands has to be seen.
            return
        is_particular = permission.is_explicit or permission.no_rule_allows or bool(permission.parts)
        why = f"It was asked because: {permission.reason}." if is_particular else ""
        who = "Use a client that can show it (form elicitation)." if permission.is_explicit else answer.way_out
        said = ("Nobody could be asked for consent, so nothing was done.", why, who, _way_out(judged))
        raise ExecutionDeniedError(" ".join(filter(None, said)))
    if answer.decision is Decision.DENY:
        raise ExecutionDeniedError(_refusal(judged, answer))


def require_current(tool: BaseTool[Any]) -> None:
    """Go on only if consent is still for what would be called.

    Raises:
        ExecutionDeniedError: The tool has become another one while a person was asked about it.
    """
    if why := tool.why_outdated():
        raise ExecutionDeniedError(
            f"The consent is for the tool as it was when it was asked for, and {why}, so nothing was done. "
            "Look at what the tool is now; if you still want it, call it again: the user is then asked about that."
        )


def refusal_of(permission: Permission) -> str:
    """What a model is told of a verdict to deny: why, that nothing was done, and what helps."""
    way_out = permission.way_out
    if not way_out:
        way_out = "Do not try it in another way: tell the user."
        if permission.setting:
            way_out += f" The operator can change {permission.setting}."
        elif permission.grants:
            way_out += f" The operator can allow it by {_allowing(permission)}."
    return f"The call is refused: {permission.reason}. Nothing was done. {way_out}"


def _way_out(judged: Judgement) -> str:
    """What the operator can do so that such a call runs without the question; empty where it is not known."""
    permission = judged.permission
    if permission.is_explicit:
        demanded = f": {permission.setting} demands it" if permission.setting else ""
        return f"No mode or setting replaces this question{demanded}."
    if permission.no_rule_allows:
        return "It is asked in every mode, and no rule allows it."
    if not permission.grants:
        return ""  # perhaps no mode would do either
    ways = [_allowing(permission)]
    if isinstance(judged.details, McpConfirmation):
        ways.append("trust: true for this upstream server")
    if isinstance(judged.details, EditConfirmation) or judged.tool.kind in (Kind.FETCH, Kind.SEARCH):
        ways.append("approvalMode auto-edit (for files of the workspace and the web)")
    else:
        ways.append("approvalMode yolo (for calls of every kind)")
    return f"The operator can allow such calls by {', or by '.join(ways)}."


def _allowing(permission: Permission) -> str:
    return f"permissions.allow with {', '.join(json.dumps(grant.rule) for grant in permission.grants)}"


def _refusal(judged: Judgement, answer: Answer) -> str:
    match answer.channel:
        case Channel.FORM | Channel.EARLIER:
            said = f" Their reason: {answer.reason}" if answer.reason else ""
            return f"The user refused this action; nothing was done. Do not try it again unchanged.{said}"
        case Channel.DECLINED:
            return (
                "The question was declined, so nothing was done. Some clients decline by themselves: perhaps nobody "
                f"saw it. {_way_out(judged) or 'Ask the user how to go on.'}"
            )
        case Channel.CANCELLED:
            return "The question was dismissed without a decision, so nothing was done. Ask the user how to go on."
        case Channel.TIMED_OUT:
            return (
                "The question was not answered in time, so nothing was done. Tell the user what is waiting for an "
                "answer, and call it again when they are there. The operator can set a longer confirmation.timeout."
            )
        case Channel.MALFORMED:
            return (
                "The answer carried no valid decision, which is no consent, so nothing was done. Call it again to have "
                "it asked once more. If the client cannot show the fields of a form, the operator can set "
                'confirmation.style to "simple".'
            )


def _fingerprint(tool: BaseTool[Any], arguments: Mapping[str, Any], details: ConfirmationDetails) -> str:
    """Binds an answer to one action: the tool as it is, its arguments, and the state of the world the details show."""
    action = [tool.name, tool.version, arguments, details.state]
    canonical = json.dumps(action, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _plain_details(tool: BaseTool[Any], arguments: Mapping[str, Any]) -> ConfirmationDetails:
    """What is asked where the tool itself would not ask: its name and the arguments."""
    shown = json.dumps(dict(arguments), indent=2, ensure_ascii=False, default=str)
    return InfoConfirmation(title=f"Confirm {tool.display_name}", prompt=f"{tool.name}\n{shown}")
