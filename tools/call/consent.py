"""Consent: what a person is asked, whether the answer counts, what the answer allows later, and what is recorded."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, Protocol

from tools.call.base_tool import BaseTool, ClientState, ToolContext
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
from tools.files.workspace import Workspace, is_inside
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import ANYTHING, SANDBOXED, literal_path
from tools.permissions.tool_names import rule_for
from tools.permissions.verdict import Grant, Permission
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)

MAX_GRANTS = 4  # maximum number of rules that one answer may add; if a call needs more, no rules for it are offered

PLAN_CHOICES = (
    Choice(Decision.ONCE, "Carry out the plan, asking as usual"),
    Choice(Decision.ALWAYS, "Carry out the plan, editing files without asking"),
    Choice(Decision.DENY, "Keep planning"),
)
APPROVAL_CHOICES = (Choice(Decision.APPROVE, "Approve the tool as it is now"), DENY)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The decision about a call and the reasons for it."""

    tool: BaseTool[Any]
    params: Any
    permission: Permission  # the decision and its reason
    details: ConfirmationDetails | None = None  # the tool's own question; `None` if the tool was not asked or has none
    choices: tuple[Choice, ...] = ()  # the answers on offer, if a person has to be asked
    written_paths: tuple[str, ...] = ()  # real paths of the files that the call writes, if a person has to be asked
    state: str = ""  # the `state` of the details that the tool returned
    is_granted: bool = False  # whether a rule or the mode allows the call, regardless of the tool's own question

    @property
    def must_be_shown(self) -> bool:
        """True if the client's own dialog cannot answer the question.

        A client need not ask before it runs a tool that is published as read-only. A client's own dialog therefore
        counts as consent only for other tools. Questions that an operator's rule demands, and those about a finished
        plan, a changed tool or a guarded file (this server's own settings, trust record, lock file, audit log or stored
        data), must be shown.
        """
        is_of_operator = self.permission.is_explicit or self.permission.is_guarded
        return self.tool.behaviour.read_only or is_of_operator or isinstance(self.details, ApprovalConfirmation)


class GrantScope(StrEnum):
    """How far an answer applies."""

    CALL = "call"
    SESSION = "session"
    SAVED = "saved"


# Saves rules that allow calls permanently. Returns where they are saved, for use in the reason for a decision. Raises a
# `ToolError`, which says why and what to do, if nothing could be saved
SaveRules = Callable[[Sequence[str]], Awaitable[str]]


class GrantStore(Protocol):
    """Shares a client's grants between the processes that serve the client."""

    async def take_up(self, client: ClientState) -> bool:
        """Add grants from other processes to the client's grants. Return True if any were new. Never fails."""
        ...

    async def add(self, client: ClientState, rules: Sequence[str]) -> None:
        """Share rules with the other processes. Never fails."""
        ...


@dataclass(frozen=True, slots=True)
class LastingAnswer:
    """The rules of an answer, and how far they apply."""

    rules: tuple[str, ...]  # the permission rules of the answer
    scope: GrantScope  # the scope of the rules
    note: str = ""  # a note for the call's result if the scope is narrower than the user wanted, else empty


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One decision about a call, or the answer to its question."""

    tool: str
    arguments: Mapping[str, Any]  # as the client sent them
    description: str  # one line that says what the call does
    client: str  # the client that made the call
    permission: Permission  # the decision and its reason
    time: float  # seconds since the epoch
    # The answer to the question; `None` before the question and for calls without a question
    answer: Answer | Unavailable | None = None
    # The rules of the chosen answer and how far they apply; `None` if it has no rules
    lasting: LastingAnswer | None = None


def grants_for(
    tool: BaseTool[Any],
    details: ConfirmationDetails | None,
    permission: Permission,
    subjects: Sequence[Subject],
    workspace: Workspace,
) -> tuple[Grant, ...]:
    """Return grants for calls like this one. Empty if no rule can allow such calls, or if too many rules are needed."""
    if permission.is_explicit or permission.no_rule_allows or isinstance(details, AskUserConfirmation):
        return ()
    if permission.parts:
        grants = permission.grants
    elif tool.kind is ToolKind.EDIT:
        # The grant covers all edits in the same workspace folder or, outside the workspace, only edits of this file.
        titles: dict[str, str] = {}
        for subject in subjects:
            if isinstance(subject, PathSubject) and subject.access is Access.WRITE:
                is_inside = workspace.holds(subject.path)
                place = workspace.at(subject.path).root if is_inside else subject.path
                titles[place] = f"edits {'in' if is_inside else 'of'} {place}"
        grants = ()
        for place in sorted(titles):
            if (path := literal_path(place)) is None:
                return ()
            grants = (*grants, Grant(f"Edit({path})", titles[place]))
    else:
        agents = [subject.name for subject in subjects if isinstance(subject, AgentSubject)]
        if any(ANYTHING in name for name in agents):
            return ()  # in a rule, the star would also cover other agents
        hosts = dict.fromkeys(subject.host for subject in subjects if isinstance(subject, HostSubject))
        rule = rule_for(tool.traits.rule_names[0])
        grants = (
            *(Grant(f"Task({name})", f"the agent {name}") for name in agents),
            *(Grant(f"WebFetch(domain:{host})", f"pages of {host} and its subdomains") for host in hosts),
        ) or (Grant(rule, rule),)
    return grants if len(grants) <= MAX_GRANTS else ()


def choices_for(
    details: ConfirmationDetails | None, permission: Permission, client: ClientState, *, saves: bool
) -> tuple[Choice, ...]:
    """Return the answers to offer for a call. An anonymous client is offered no answers that last for a session.

    `permission` has the grants for calls like this one, and `saves` says whether rules can be saved.
    """
    if isinstance(details, PlanConfirmation):
        return PLAN_CHOICES
    if isinstance(details, AskUserConfirmation):
        return ()
    if isinstance(details, ApprovalConfirmation):
        return APPROVAL_CHOICES
    choices, grants = [ONCE], permission.grants
    rules = tuple(grant.rule for grant in grants)
    titles = ", ".join(grant.title for grant in grants)
    scope = f"in all sessions of {visible_line(client.owner_name)}" if client.owner_name else "in this session"
    if client.grants is not None and grants:
        choices.append(Choice(Decision.ALWAYS, f"Always allow {titles} {scope}", rules))
        if isinstance(details, McpConfirmation):
            title = f"Always allow every tool of {details.server_name} {scope}"
            choices.append(Choice(Decision.ALWAYS_SERVER, title, (rule_for(f"{details.server_name}__*"),)))
    if client.grants is not None and permission.offers_sandboxed:
        title = f"Always allow any command that stays in the sandbox and has no network access, {scope}"
        choices.append(Choice(Decision.ALWAYS_SANDBOXED, title, (SANDBOXED,)))
    if saves and grants:
        choices.append(Choice(Decision.SAVE, f"Always allow {titles} (saved in your settings)", rules))
    return (*choices, DENY)


def question_of(judgement: Judgement, arguments: Mapping[str, Any], description: str) -> Question:
    """Build the question for a call.

    Raises an `ExecutionDeniedError` if a command, a task or the description of a changed tool is too long to show in
    full.
    """
    tool, details = judgement.tool, judgement.details
    if details is None:
        # The tool has no question of its own.
        text = json.dumps(dict(arguments), indent=2, ensure_ascii=False, default=str)
        details = InfoConfirmation(title=f"Confirm: {tool.title or tool.display_name}", prompt=f"{tool.name}\n{text}")
    if isinstance(details, ExecConfirmation) and not can_be_shown(details.command):
        raise ExecutionDeniedError(
            "The call needs consent and is too long to show to a person in full, so nothing was run. Write the long "
            "part to a file with write_file (for a command, to a script) and use that file, or split the call."
        )
    if isinstance(details, ApprovalConfirmation) and not can_be_shown(details.prompt):
        raise ExecutionDeniedError(
            "The description of this tool is too long to show in full in a question, so it was not approved. "
            + details.way_out
        )
    # The fingerprint binds an answer to one action: the tool in its current version, its arguments, and the state that
    # the details show.
    action = [tool.name, tool.version, arguments, details.state]
    canonical = json.dumps(action, sort_keys=True, separators=(",", ":"), default=str)
    fingerprint = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
    # A question from the model needs no reason, because it does not ask for consent.
    reason = "" if isinstance(details, AskUserConfirmation) else judgement.permission.reason
    return Question(description, details, fingerprint, judgement.choices, reason, judgement.must_be_shown)


async def require_consent(
    answer: Answer | Unavailable, judgement: Judgement, context: ToolContext, policy: PermissionPolicy
) -> None:
    """Raise an `ExecutionDeniedError`, which says why and what to do, unless there is consent that is still valid."""
    tool, permission = judgement.tool, judgement.permission
    # If the question is from the model, the tool itself reports the answer or its absence.
    if not isinstance(judgement.details, AskUserConfirmation):
        if isinstance(answer, Unavailable):
            if not answer.client_decides or judgement.must_be_shown:
                is_particular = permission.is_explicit or permission.no_rule_allows or bool(permission.parts)
                problem = (
                    "The user could not be asked for consent, so nothing was done. Go on without this call, and tell "
                    "the user what is needed."
                )
                cause = f"The question was needed because {permission.reason}." if is_particular else ""
                advice = "Use a client that supports form elicitation." if permission.is_explicit else answer.way_out
                raise ExecutionDeniedError(
                    " ".join(filter(None, (problem, cause, advice, _way_out(judgement, context))))
                )
        elif answer.decision is Decision.DENY:
            raise ExecutionDeniedError(_refusal(judgement, answer, context))
    if not isinstance(answer, Answer) or answer.channel is not ConsentChannel.EARLIER:
        tool.record_consent(context.client.key)  # only tools of upstreams record it
    if (denial := policy.why_not_offered(tool.traits, context.rights)) is not None:  # rights may have changed
        refuse(denial)
    if not context.keeps_folders():
        raise ExecutionDeniedError(
            "The client changed its workspace folders while the user was being asked, so nothing was done. If the call "
            "is still needed, repeat it, and it will be checked against the current folders."
        )
    if reason := tool.why_outdated():  # only tools of upstreams can be outdated
        raise ExecutionDeniedError(
            f"The user agreed to an earlier version of the tool, and {reason}, so nothing was done. Read the tool's "
            "current description. If you still need it, repeat the call: the user will be asked about this version."
        )
    # Tools that edit files make this check themselves, while other writers are locked out.
    if judgement.state and not isinstance(judgement.details, EditConfirmation):
        current_details = await tool.should_confirm_execute(judgement.params, context)
        if current_details is not None and current_details.state != judgement.state:
            raise ExecutionDeniedError(
                "The state that the user agreed to has changed in the meantime, so nothing was done. If the call is "
                "still needed, repeat it: the user will be asked about the current state."
            )


async def keep_rules(
    choice: Choice | None,
    client: ClientState,
    policy: PermissionPolicy,
    save_rules: SaveRules | None,
    shared_grants: GrantStore | None,
) -> LastingAnswer | None:
    """Apply the rules that an answer adds, if any.

    Saved rules take effect at once. Rules that cannot be saved apply to the session, if the client has one.
    """
    if choice is None or not choice.rules:
        return None
    note = ""
    scope = GrantScope.SESSION if client.grants is not None else GrantScope.CALL
    if choice.decision is Decision.SAVE and save_rules is not None:
        try:
            policy.allow(choice.rules, await save_rules(choice.rules))
        except ToolError as error:
            logger.warning("%s The answer applies to the %s only.", error.message, scope)
            note = f"Allowed for this {scope} only: {', '.join(map(one_line, choice.rules))}. {error.message}"
        else:
            return LastingAnswer(choice.rules, GrantScope.SAVED)
    if client.grants is not None:
        client.grants.extend(choice.rules)
        if shared_grants is not None:
            await shared_grants.add(client, choice.rules)
    return LastingAnswer(choice.rules, scope, note)


def refuse(permission: Permission) -> NoReturn:
    """Raise the error for a call that is denied. It gives the reason, and says that nothing was done and what to do."""
    way_out = permission.way_out
    if not way_out:
        way_out = "Do not try another way; tell the user."
        if permission.setting:
            way_out += f" The operator can change {permission.setting}."
        elif permission.grants:
            way_out += f" The operator can allow it by {_allow_setting(permission)}."
    raise ExecutionDeniedError(f"The call is refused: {permission.reason}. Nothing was done. {way_out}")


_STAY_IN_PLAN_MODE = "Plan mode stays on. Show the user the plan in your reply, and ask what to change."


def _refusal(judgement: Judgement, answer: Answer, context: ToolContext) -> str:
    """Return the message for the model about an answer that is not consent."""
    match answer.channel:
        case ConsentChannel.FORM | ConsentChannel.EARLIER:
            comment = f" Their reason: {answer.reason}" if answer.reason else ""
            if isinstance(judgement.details, PlanConfirmation):
                return f"The user did not approve the plan.{comment} {_STAY_IN_PLAN_MODE}"
            return f"The user refused this action; nothing was done. Do not repeat the same call.{comment}"
        case ConsentChannel.DECLINED:
            return (
                "The question was declined, so nothing was done. Some clients decline on their own, so perhaps nobody "
                f"saw it. {_way_out(judgement, context) or 'Ask the user how to continue.'}"
            )
        case ConsentChannel.FAILED:
            return (
                f"The client answered the question with an error ({answer.reason}), so nothing was done. Perhaps "
                f"nobody saw the question. Tell the user. {_way_out(judgement, context)}".rstrip()
            )
        case ConsentChannel.CANCELLED:
            return "The question was dismissed without a decision, so nothing was done. Ask the user how to continue."
        case ConsentChannel.TIMED_OUT:
            return (
                "The question was not answered in time, so nothing was done. Tell the user that the question "
                "expired, and repeat the call when they are available. The operator can raise confirmation.timeout."
            )
        case ConsentChannel.NOBODY_CAME:
            return (
                "Nobody answered the question on the dashboard in time, so nothing was done. Ask the user to run "
                "`coretools-mcp dashboard` in a terminal, where they can answer such questions, and repeat the call "
                "once the dashboard is open."
            )
        case ConsentChannel.MALFORMED:
            return (
                "The answer contained no valid decision, so nothing was done. Repeat the call to have the question "
                "asked again. If the client cannot show form fields, the operator can set confirmation.style to "
                '"simple".'
            )


def _way_out(judgement: Judgement, context: ToolContext) -> str:
    """Return how the operator can allow such calls without a question. Empty if unknown."""
    permission = judgement.permission
    if isinstance(judgement.details, ApprovalConfirmation):
        return judgement.details.way_out
    if isinstance(judgement.details, PlanConfirmation):
        return _STAY_IN_PLAN_MODE
    if permission.is_explicit:
        demand = f": {permission.setting} demands it" if permission.setting else ""
        return f"No mode and no allow rule can turn this question off{demand}."
    if permission.no_rule_allows:
        return "This question is asked in every mode, and no rule can allow the call."
    if not permission.grants:
        return ""  # even another approval mode might not allow the call
    ways = [_allow_setting(permission, context.rights.source)]
    if isinstance(judgement.details, McpConfirmation):
        ways.append("setting trust: true for this upstream server")
    is_edit = isinstance(judgement.details, EditConfirmation)
    is_edit_inside = is_edit and all(is_inside(path, context.workspace.roots) for path in judgement.written_paths)
    if is_edit_inside or judgement.tool.kind in (ToolKind.FETCH, ToolKind.SEARCH):
        ways.append("starting the server with --approval-mode auto-edit (for files in the workspace and for the web)")
    elif permission.offers_sandboxed:
        ways.append('setting permissions.sandboxedCommands to "allow" (for any command that stays in the sandbox)')
    else:
        ways.append("starting the server with --approval-mode yolo (for all calls)")
    return f"The operator can allow such calls by {', or by '.join(ways)}."


def _allow_setting(permission: Permission, source: str = "") -> str:
    place = "permissions.allow"
    if source.startswith(("http.tokens.", "http.oauth.principals.")):
        place = f"{source}.rules.allow (for this client only) or {place}"
    return f"adding {', '.join(json.dumps(grant.rule) for grant in permission.grants)} to {place}"
