"""Which rules would allow a call from now on, and which answers a question offers because of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.contract.base import BaseTool, Kind
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
from tools.contract.context import ClientState
from tools.contract.subject import Access, AgentSubject, HostSubject, PathSubject, Subject
from tools.filesystem.workspace import Workspace
from tools.permissions.permission import Grant, Permission
from tools.permissions.specifiers import ANYTHING, literal_path
from tools.permissions.tool_names import rule_for

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
