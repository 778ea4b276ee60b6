"""Which answers a question offers: those that can take effect, each with what it covers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tools.contract.base import BaseTool, Kind
from tools.contract.confirmation import DENY, ONCE, Choice, ConfirmationDetails, Decision, McpConfirmation
from tools.contract.subject import Access, HostSubject, PathSubject, Subject
from tools.filesystem.workspace import Workspace
from tools.permissions.permission import Permission
from tools.permissions.specifiers import literal_path

MAX_TITLE_RULES = 4
"""Rules that a title names; where more would be needed, nothing is offered for always."""

PLAN_CHOICES = (
    Choice(Decision.ONCE, "Carry out the plan, asking before each change"),
    Choice(Decision.ALWAYS, "Carry out the plan, editing files without asking"),
    Choice(Decision.DENY, "Keep planning"),
)

_COMMAND_RULE = re.compile(r"Bash\((.+) \*\)")


def choices(rules: Sequence[str], *, remembers: bool, saves: bool, server: str | None = None) -> tuple[Choice, ...]:
    """The answers to a question.

    Args:
        rules: What would allow such calls from now on; empty where nothing could.
        remembers: Whether this client can be told from others, so that something can be remembered for it.
        saves: Whether there is a settings file of the user to save to.
        server: The alias of the upstream server whose tool is called.
    """
    if not rules or len(rules) > MAX_TITLE_RULES:
        return ONCE, DENY
    offered = [ONCE]
    covered = ", ".join(map(_shown, rules))
    if remembers:
        offered.append(Choice(Decision.ALWAYS, f"Always allow {covered} in this session", tuple(rules)))
        if server is not None:
            title = f"Always allow every tool of {server} in this session"
            offered.append(Choice(Decision.ALWAYS_SERVER, title, (f"{server}__*",)))
    if saves:
        offered.append(Choice(Decision.SAVE, f"Always allow {covered}, saved in your settings", tuple(rules)))
    return (*offered, DENY)


def rules_for(
    tool: BaseTool[Any],
    details: ConfirmationDetails | None,
    permission: Permission,
    subjects: Sequence[Subject],
    workspace: Workspace,
) -> tuple[str, ...]:
    """The rules that would allow such a call from now on; empty where none could take effect."""
    if permission.is_explicit or permission.is_final:
        return ()
    if permission.parts:
        return permission.grants
    if isinstance(details, McpConfirmation):
        return (tool.name,)
    if tool.kind is Kind.EDIT:
        return _of_edits(subjects, workspace)
    hosts = [subject.host for subject in subjects if isinstance(subject, HostSubject)]
    return tuple(f"WebFetch(domain:{host})" for host in hosts) if hosts else (tool.name,)


def _of_edits(subjects: Sequence[Subject], workspace: Workspace) -> tuple[str, ...]:
    """Edits anywhere in the same workspace folder."""
    written = [s.path for s in subjects if isinstance(s, PathSubject) and s.access is Access.WRITE]
    roots = {workspace.at(path).root for path in written}
    literal = [literal_path(root) for root in sorted(roots)]
    return tuple(f"Edit({path})" for path in literal if path is not None) if None not in literal else ()


def _shown(rule: str) -> str:
    """A rule in a title: a command as it is typed, edits by their folder."""
    command = _COMMAND_RULE.fullmatch(rule)
    if command is not None:
        return f"'{command[1]} ...'"
    if rule.startswith("Edit(/"):
        return f"edits in {rule[6:-1]}"
    return rule
