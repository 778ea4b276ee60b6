"""From a verdict to consent: what a person is asked, what the answer is worth, and what it allows from now on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, Protocol

from tools.call.base_tool import BaseTool
from tools.call.tool_context import ClientState, ToolContext
from tools.contract.confirmation import (
    DENY,
    ONCE,
    Answer,
    ApprovalConfirmation,
    AskUserConfirmation,
    Choice,
    ConfirmationDetails,
    ConsentChannel,
    Decision,
    EditConfirmation,
    ExecConfirmation,
    InfoConfirmation,
    McpConfirmation,
    PlanConfirmation,
    Question,
    Unavailable,
)
from tools.contract.display import can_be_shown, visible_line
from tools.contract.permission_subjects import Access, AgentSubject, HostSubject, PathSubject, Subject, ToolKind
from tools.contract.tool_errors import ExecutionDeniedError, ToolError
from tools.files.workspace import Workspace
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import ANYTHING, SANDBOXED, literal_path
from tools.permissions.tool_names import rule_for
from tools.permissions.verdict import Grant, Permission
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)

MAX_GRANTS = 4  # rules that a title names; where more would be needed, nothing is offered for always

PLAN_CHOICES = (
    Choice(Decision.ONCE, "Carry out the plan, asking before each change"),
    Choice(Decision.ALWAYS, "Carry out the plan, editing files without asking"),
    Choice(Decision.DENY, "Keep planning"),
)
APPROVAL_CHOICES = (Choice(Decision.APPROVE, "Approve the tool as it is now"), DENY)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What would happen to a call."""

    tool: BaseTool[Any]
    params: Any
    permission: Permission  # the verdict, with its reason
    details: ConfirmationDetails | None = None  # what the tool itself would ask, where it was asked
    choices: tuple[Choice, ...] = ()  # where the verdict is to ask: the answers that are offered
    written: tuple[str, ...] = ()  # where the verdict is to ask: real paths of the files that are written
    state: str = ""  # of the details, as the tool itself gave it
    is_granted: bool = False  # whether a rule or the mode allows the call, whatever the tool would ask


class GrantScope(StrEnum):
    """How far an answer counts."""

    CALL = "call"
    SESSION = "session"
    SAVED = "saved"


class RuleKeeper(Protocol):
    """Saves rules that a person has allowed for good."""

    async def save(self, rules: Sequence[str]) -> str:
        """Save rules that allow.

        Returns:
            Where they stand now, for reasons.

        Raises:
            ToolError: They cannot be saved; nothing was. The sentences say why, and what helps.
        """
        ...


class GrantStore(Protocol):
    """Rules that people have allowed for a session which goes on in other processes too."""

    async def take_up(self, client: ClientState) -> bool:
        """Add to a client's grants what was allowed elsewhere; whether there was anything. Never fails."""
        ...

    async def add(self, client: ClientState, rules: Sequence[str]) -> None:
        """Tell the others of rules. Never fails."""
        ...


@dataclass(frozen=True, slots=True)
class LastingAnswer:
    """What became of an answer that allows more than its call."""

    rules: tuple[str, ...]  # the rules that it allows
    scope: GrantScope  # how far they count
    note: str = ""  # told beside the call's result, where they count less far than the person wanted; else empty


def grants_for(
    tool: BaseTool[Any],
    details: ConfirmationDetails | None,
    permission: Permission,
    subjects: Sequence[Subject],
    workspace: Workspace,
) -> tuple[Grant, ...]:
    """What would allow such a call from now on; empty where no rule could, or more than a person would read."""
    if permission.is_explicit or permission.no_rule_allows or isinstance(details, AskUserConfirmation):
        return ()
    if permission.parts:
        found = permission.grants
    elif tool.kind is ToolKind.EDIT:
        # Edits anywhere in the same workspace folder; of a file outside of it, only of this very file.
        titles: dict[str, str] = {}
        for subject in subjects:
            if isinstance(subject, PathSubject) and subject.access is Access.WRITE:
                is_inside = workspace.holds(subject.path)
                place = workspace.at(subject.path).root if is_inside else subject.path
                titles[place] = f"edits {'in' if is_inside else 'of'} {place}"
        literal = [(literal_path(place), titles[place]) for place in sorted(titles)]
        if any(path is None for path, _ in literal):
            return ()
        found = tuple(Grant(f"Edit({path})", title) for path, title in literal)
    else:
        agents = [subject.name for subject in subjects if isinstance(subject, AgentSubject)]
        if any(ANYTHING in name for name in agents):
            return ()  # the rule would be about other agents too
        hosts = dict.fromkeys(subject.host for subject in subjects if isinstance(subject, HostSubject))
        rules = (
            [f"Task({name})" for name in agents]
            or [f"WebFetch(domain:{host})" for host in hosts]
            or [rule_for(tool.traits.rule_names[0])]
        )
        found = tuple(Grant(rule, rule) for rule in rules)
    return found if len(found) <= MAX_GRANTS else ()


def choices_for(
    details: ConfirmationDetails | None,
    grants: Sequence[Grant],
    client: ClientState,
    *,
    saves: bool,
    offers_sandboxed: bool = False,
) -> tuple[Choice, ...]:
    """The answers that are offered for a call. Nothing is remembered for a client that cannot be told from others.

    Args:
        details: What is asked about.
        grants: What would allow such calls from now on.
        client: Whose call it is.
        saves: Whether there is a place to save rules to.
        offers_sandboxed: Whether any command that stays in the sandbox may be allowed.
    """
    if isinstance(details, PlanConfirmation):
        return PLAN_CHOICES
    if isinstance(details, AskUserConfirmation):
        return ()
    if isinstance(details, ApprovalConfirmation):
        return APPROVAL_CHOICES
    offered = [ONCE]
    rules = tuple(grant.rule for grant in grants)
    covered = ", ".join(grant.title for grant in grants)
    where = f"in all sessions of {visible_line(client.owner)}" if client.owner else "in this session"
    if client.grants is not None and offers_sandboxed:
        title = f"Always, any command that stays in the sandbox, {where}"
        sandboxed = Choice(Decision.ALWAYS_SANDBOXED, title, (SANDBOXED,))
    else:
        sandboxed = None
    if client.grants is not None and grants:
        offered.append(Choice(Decision.ALWAYS, f"Always allow {covered} {where}", rules))
        if isinstance(details, McpConfirmation):
            title = f"Always allow every tool of {details.server_name} {where}"
            offered.append(Choice(Decision.ALWAYS_SERVER, title, (rule_for(f"{details.server_name}__*"),)))
    if sandboxed is not None:
        offered.append(sandboxed)
    if saves and grants:
        offered.append(Choice(Decision.SAVE, f"Always allow {covered}, saved in your settings", rules))
    return (*offered, DENY)


def question_of(judged: Judgement, arguments: Mapping[str, Any], description: str) -> Question:
    """What a person is asked, where the verdict is to ask.

    Raises:
        ExecutionDeniedError: The action cannot be shown to a person as a whole.
    """
    tool, shown = judged.tool, judged.details
    if shown is None:
        # The tool itself would not ask.
        text = json.dumps(dict(arguments), indent=2, ensure_ascii=False, default=str)
        shown = InfoConfirmation(title=f"Confirm: {tool.title or tool.display_name}", prompt=f"{tool.name}\n{text}")
    if isinstance(shown, ExecConfirmation) and not can_be_shown(shown.command):
        raise ExecutionDeniedError(
            "The call needs consent and is too long to be shown to a person as a whole, so nothing was run. "
            "Write what is long to a file with write_file (a command to a script) and name that, or split it."
        )
    if isinstance(shown, ApprovalConfirmation) and not can_be_shown(shown.prompt):
        raise ExecutionDeniedError(
            "This tool is too long to be shown to a person as a whole in a question, so it was not approved. "
            + shown.way_out
        )
    # Binds an answer to one action: the tool as it is, its arguments, and the state of the world the details show.
    action = [tool.name, tool.version, arguments, shown.state]
    canonical = json.dumps(action, sort_keys=True, separators=(",", ":"), default=str)
    fingerprint = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
    # Anyone who is asked for an answer and not for consent needs no reason.
    reason = "" if isinstance(shown, AskUserConfirmation) else judged.permission.reason
    return Question(description, shown, fingerprint, judged.choices, reason)


async def require_consent(
    answer: Answer | Unavailable, judged: Judgement, context: ToolContext, policy: PermissionPolicy
) -> None:
    """Go on only with consent, and to what is there now.

    Raises:
        ExecutionDeniedError: There is no consent, or none to what the tool is now; the sentence says why, and what
            would help.
    """
    tool, permission = judged.tool, judged.permission
    # Whatever came back for a question of the model, or that nobody could be asked, is for the tool to tell.
    if not isinstance(judged.details, AskUserConfirmation):
        if isinstance(answer, Unavailable):
            # A client may run a tool published as read-only without asking, so its dialog vouches for the others only;
            # and a question that an operator's rule demands, or about what a tool has become, has to be seen. So
            # has one about a file that says which programs are started, and which tools are approved.
            is_of_operator = permission.is_explicit or permission.is_guarded
            has_to_be_seen = is_of_operator or isinstance(judged.details, ApprovalConfirmation)
            if not answer.client_decides or tool.behaviour.read_only or has_to_be_seen:
                is_particular = permission.is_explicit or permission.no_rule_allows or bool(permission.parts)
                why = f"It was asked because: {permission.reason}." if is_particular else ""
                who = "Use a client that can show it (form elicitation)." if permission.is_explicit else answer.way_out
                sentences = ("Nobody could be asked for consent, so nothing was done.", why, who, _way_out(judged))
                raise ExecutionDeniedError(" ".join(filter(None, sentences)))
        elif answer.decision is Decision.DENY:
            raise ExecutionDeniedError(_refusal(judged, answer))
    if not isinstance(answer, Answer) or answer.channel is not ConsentChannel.EARLIER:
        tool.consented(context.client.key)
    if (gone := policy.why_not_offered(tool.traits, context.rights)) is not None:  # meanwhile
        refuse(gone)
    if not context.keeps_folders():
        raise ExecutionDeniedError(
            "The client has changed the folders that it works in while the user was asked, so nothing was done. "
            "If it is still wanted, call it again: it is then judged by the folders that are there now."
        )
    if outdated := tool.why_outdated():
        raise ExecutionDeniedError(
            f"The consent is for the tool as it was when it was asked for, and {outdated}, so nothing was done. "
            "Look at what the tool is now; if you still want it, call it again: the user is then asked about that."
        )
    # An edit compares it itself, while it keeps other writers away.
    if judged.state and not isinstance(judged.details, EditConfirmation):
        now = await tool.should_confirm_execute(judged.params, context)
        if now is not None and now.state != judged.state:
            raise ExecutionDeniedError(
                "What the user agreed to has changed while they were asked, so nothing was done. If it is still "
                "wanted, call it again: the user is then asked about what is there now."
            )


async def keep_rules(
    choice: Choice | None,
    client: ClientState,
    policy: PermissionPolicy,
    keeper: RuleKeeper | None,
    shared_grants: GrantStore | None,
) -> LastingAnswer | None:
    """Let what an answer allows beyond its call, if it does, count from now on.

    The policy goes by saved rules from now on. What cannot be saved counts for the session, if the client has one.
    """
    if choice is None or not choice.rules:
        return None
    note = ""
    scope = GrantScope.SESSION if client.grants is not None else GrantScope.CALL
    if choice.decision is Decision.SAVE and keeper is not None:
        try:
            policy.allow(choice.rules, await keeper.save(choice.rules))
        except ToolError as error:
            logger.warning("%s The answer counts for the %s only.", error.message, scope)
            note = f"Allowed for this {scope} only: {', '.join(map(one_line, choice.rules))}. {error.message}"
        else:
            return LastingAnswer(choice.rules, GrantScope.SAVED)
    if client.grants is not None:
        client.grants.extend(choice.rules)
        if shared_grants is not None:
            await shared_grants.add(client, choice.rules)
    return LastingAnswer(choice.rules, scope, note)


def refuse(permission: Permission) -> NoReturn:
    """Refuse a call whose verdict is to deny.

    Raises:
        ExecutionDeniedError: Always; it tells why, that nothing was done, and what helps.
    """
    way_out = permission.way_out
    if not way_out:
        way_out = "Do not try it in another way: tell the user."
        if permission.setting:
            way_out += f" The operator can change {permission.setting}."
        elif permission.grants:
            way_out += f" The operator can allow it by {_allowing(permission)}."
    raise ExecutionDeniedError(f"The call is refused: {permission.reason}. Nothing was done. {way_out}")


def _refusal(judged: Judgement, answer: Answer) -> str:
    """What a model is told about an answer that is not consent."""
    match answer.channel:
        case ConsentChannel.FORM | ConsentChannel.EARLIER:
            said = f" Their reason: {answer.reason}" if answer.reason else ""
            return f"The user refused this action; nothing was done. Do not try it again unchanged.{said}"
        case ConsentChannel.DECLINED:
            return (
                "The question was declined, so nothing was done. Some clients decline by themselves: perhaps nobody "
                f"saw it. {_way_out(judged) or 'Ask the user how to go on.'}"
            )
        case ConsentChannel.FAILED:
            return (
                f"The client answered the question with an error ({answer.reason}), so nothing was done, and perhaps "
                f"nobody saw it. Tell the user. {_way_out(judged)}".rstrip()
            )
        case ConsentChannel.CANCELLED:
            return "The question was dismissed without a decision, so nothing was done. Ask the user how to go on."
        case ConsentChannel.TIMED_OUT:
            return (
                "The question was not answered in time, so nothing was done. Tell the user what is waiting for an "
                "answer, and call it again when they are there. The operator can set a longer confirmation.timeout."
            )
        case ConsentChannel.NOBODY_CAME:
            return (
                "Nobody answered the question at the dashboard in time, so nothing was done. Ask the user to run "
                "`coretools-mcp dashboard` in a terminal, where such questions are shown and answered, and call it "
                "again when they have it open."
            )
        case ConsentChannel.MALFORMED:
            return (
                "The answer carried no valid decision, which is no consent, so nothing was done. Call it again to have "
                "it asked once more. If the client cannot show the fields of a form, the operator can set "
                'confirmation.style to "simple".'
            )


def _way_out(judged: Judgement) -> str:
    """What the operator can do so that such a call runs without the question; empty where it is not known."""
    permission = judged.permission
    if isinstance(judged.details, ApprovalConfirmation):
        return judged.details.way_out
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
    if isinstance(judged.details, EditConfirmation) or judged.tool.kind in (ToolKind.FETCH, ToolKind.SEARCH):
        ways.append("--approval-mode auto-edit (for files of the workspace and the web)")
    elif permission.offers_sandboxed:
        ways.append('permissions.sandboxedCommands "allow" (for any command that stays in the sandbox)')
    else:
        ways.append("--approval-mode yolo (for calls of every kind)")
    return f"The operator can allow such calls by {', or by '.join(ways)}."


def _allowing(permission: Permission) -> str:
    return f"permissions.allow with {', '.join(json.dumps(grant.rule) for grant in permission.grants)}"
