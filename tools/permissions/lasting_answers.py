"""Which rules would allow a call from now on, and which answers a question offers because of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tools.call.base_tool import BaseTool
from tools.call.context import ClientState
from tools.contract.confirmation import (
    DENY,
    ONCE,
    AskUserConfirmation,
    Choice,
    ConfirmationDetails,
    Decision,
    McpConfirmation,
    PlanConfirmation,
)
from tools.contract.errors import ToolError
from tools.contract.names_on_one_line import one_line
from tools.contract.subjects import Access, AgentSubject, HostSubject, Kind, PathSubject, Subject
from tools.files.workspace import Workspace
from tools.permissions.policy import PermissionPolicy
from tools.permissions.rules import ANYTHING, literal_path
from tools.permissions.tool_names import rule_for
from tools.permissions.verdict import Grant, Permission

logger = logging.getLogger(__name__)


class Scope(StrEnum):
    """How far an answer counts."""

    CALL = "call"
    SESSION = "session"
    SAVED = "saved"


class RuleKeeper(Protocol):
    """Saves rules that a person has allowed for good."""

    async def keep(self, rules: Sequence[str]) -> str:
        """Save rules that allow.

        Returns:
            Where they stand now, for reasons.

        Raises:
            ToolError: They cannot be saved; nothing was. The sentences say why, and what helps.
        """
        ...


@dataclass(frozen=True, slots=True)
class Remembered:
    """What became of an answer that allows more than its call.

    Args:
        rules: The rules that it allows.
        scope: How far they count.
        note: Told beside the call's result, where they count less far than the person wanted; else empty.
    """

    rules: tuple[str, ...]
    scope: Scope
    note: str = ""


async def remember(
    choice: Choice, client: ClientState, policy: PermissionPolicy, keeper: RuleKeeper | None
) -> Remembered:
    """Let an answer count from now on. What cannot be saved counts for the session, if the client has one.

    Args:
        choice: What the person chose, with its rules.
        client: Who was asked.
        policy: Goes by saved rules from now on.
        keeper: Saves rules, where there is a place for them.
    """
    note = ""
    scope = Scope.SESSION if client.grants is not None else Scope.CALL
    if choice.decision is Decision.SAVE and keeper is not None:
        try:
            policy.allow(choice.rules, await keeper.keep(choice.rules))
        except ToolError as error:
            logger.warning("%s The answer counts for the %s only.", error.message, scope)
            note = f"Allowed for this {scope} only: {', '.join(map(one_line, choice.rules))}. {error.message}"
        else:
            return Remembered(choice.rules, Scope.SAVED)
    if client.grants is not None:
        client.grants.extend(choice.rules)
    return Remembered(choice.rules, scope, note)


MAX_GRANTS = 4
"""Rules that a title names; where more would be needed, nothing is offered for always."""

PLAN_CHOICES = (
    Choice(Decision.ONCE, "Carry out the plan, asking before each change"),
    Choice(Decision.ALWAYS, "Carry out the plan, editing files without asking"),
    Choice(Decision.DENY, "Keep planning"),
)


def grants_for(
    tool: BaseTool[Any],
    details: ConfirmationDetails | None,
    permission: Permission,
    subjects: Sequence[Subject],
    workspace: Workspace,
) -> tuple[Grant, ...]:
    """What would allow such a call from now on; empty where no rule could, or more than a person would read.

    Args:
        tool: The tool.
        details: What the tool itself would ask, or `None`.
        permission: The verdict, which is to ask.
        subjects: What the call touches.
        workspace: Where it may act.
    """
    if permission.is_explicit or permission.no_rule_allows or isinstance(details, AskUserConfirmation):
        return ()
    if permission.parts:
        found = permission.grants
    elif tool.kind is Kind.EDIT:
        found = _of_edits(subjects, workspace)
    else:
        agents = [subject.name for subject in subjects if isinstance(subject, AgentSubject)]
        if any(ANYTHING in name for name in agents):
            return ()  # the rule would be about other agents too
        hosts = dict.fromkeys(subject.host for subject in subjects if isinstance(subject, HostSubject))
        rules = (
            [f"Task({name})" for name in agents]
            or [f"WebFetch(domain:{host})" for host in hosts]
            or [rule_for(tool.rule_names[0])]
        )
        found = tuple(Grant(rule, rule) for rule in rules)
    return found if len(found) <= MAX_GRANTS else ()


def choices_for(
    details: ConfirmationDetails | None, grants: Sequence[Grant], client: ClientState, *, saves: bool
) -> tuple[Choice, ...]:
    """The answers that are offered for a call.

    Args:
        details: What the tool itself would ask, or `None`.
        grants: What would allow such calls from now on.
        client: Whose call it is. Nothing is remembered for a client that cannot be told from others.
        saves: Whether there is a place to save rules to.
    """
    if isinstance(details, PlanConfirmation):
        return PLAN_CHOICES
    if isinstance(details, AskUserConfirmation):
        return ()
    if not grants:
        return ONCE, DENY
    offered = [ONCE]
    rules = tuple(grant.rule for grant in grants)
    covered = ", ".join(grant.title for grant in grants)
    if client.grants is not None:
        offered.append(Choice(Decision.ALWAYS, f"Always allow {covered} in this session", rules))
        if isinstance(details, McpConfirmation):
            title = f"Always allow every tool of {details.server_name} in this session"
            offered.append(Choice(Decision.ALWAYS_SERVER, title, (rule_for(f"{details.server_name}__*"),)))
    if saves:
        offered.append(Choice(Decision.SAVE, f"Always allow {covered}, saved in your settings", rules))
    return (*offered, DENY)


def _of_edits(subjects: Sequence[Subject], workspace: Workspace) -> tuple[Grant, ...]:
    """Edits anywhere in the same workspace folder; of a file outside of it, only of this very file."""
    written = [s.path for s in subjects if isinstance(s, PathSubject) and s.access is Access.WRITE]
    titles = {_place(path, workspace): f"edits {'in' if workspace.holds(path) else 'of'}" for path in written}
    literal = {place: literal_path(place) for place in sorted(titles)}
    if None in literal.values():
        return ()
    return tuple(Grant(f"Edit({rule})", f"{titles[place]} {place}") for place, rule in literal.items())


def _place(path: str, workspace: Workspace) -> str:
    return workspace.at(path).root if workspace.holds(path) else path
