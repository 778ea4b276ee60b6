"""May this call run? The one place that decides, each time with the reason.

Deny stands over ask, ask over allow, allow over what the tool itself would do in the client's approval mode:

    not offered > deny rule > plan mode > ask rule > protected file > allow rule > approval mode > the tool itself
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.contract.base import BaseTool, Kind
from tools.contract.builtin_tool import BuiltinTool
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.context import ApprovalMode, ClientState
from tools.contract.subject import Access, CommandSubject, HostSubject, PathSubject, Subject
from tools.filesystem.workspace import Workspace
from tools.permissions.command_policy import CommandPolicy
from tools.permissions.permission import Permission, Verdict
from tools.permissions.protected import is_protected
from tools.permissions.rule import SESSION, Rule, parse_rule
from tools.permissions.rules import CORE, Rules
from tools.permissions.shell.analysis import analyse

PLAN_MODE = (
    "Plan mode is on: only reading and searching are possible, so nothing was done. Present your plan with "
    "exit_plan_mode; where that is not offered, the operator starts the server with another approval mode."
)


@dataclass(slots=True)
class PermissionPolicy:
    """Decides by rules and by the client's approval mode.

    A call is judged in up to three steps, so that a refusal reveals nothing and what is allowed anyway costs nothing:
    `settle` looks at nothing, `judge` at what the call touches, `decide` at what the tool itself would ask.

    Args:
        rules: What the operator has said.
        canonical: The wire name for another name of a built-in tool.
        home: The user's home folder.
    """

    rules: Rules = field(default_factory=Rules)
    canonical: Callable[[str], str] = str
    home: str = field(default_factory=lambda: os.path.expanduser("~"))

    def allow(self, texts: Iterable[str], source: str) -> None:
        """Add rules that a person has saved, for every client."""
        self.rules = self.rules.with_allowed(self._granted(texts, source))

    def grant(self, client: ClientState, texts: Iterable[str]) -> None:
        """Remember what a person has allowed one client from now on."""
        if client.grants is not None:
            client.grants.extend(self._granted(texts, SESSION))

    def _granted(self, texts: Iterable[str], source: str) -> list[Rule]:
        return [parse_rule(text, Verdict.ALLOW, source, self.canonical, self.home) for text in texts]

    def why_not_offered(self, tool: BaseTool[Any]) -> str | None:
        """Why a tool is not there at all, or `None` if it is."""
        core = self.rules.core
        if core and isinstance(tool, BuiltinTool) and not any(rule.names(tool.rule_names) for rule in core):
            return f"{tool.name} is switched off: {CORE} does not name it."
        rule = next((rule for rule in self.rules.deny if rule.is_of_every_call and rule.names(tool.rule_names)), None)
        return f"{tool.name} is switched off by the {rule}." if rule is not None else None

    def settle(self, tool: BaseTool[Any], mode: ApprovalMode) -> Permission | None:
        """A verdict for which nothing has to be looked at, or `None`."""
        why_not = self.why_not_offered(tool)
        if why_not is not None:
            return Permission(Verdict.DENY, f"{why_not} Nothing was done; do not try it again.")
        if mode is ApprovalMode.PLAN and not _runs_in_plan_mode(tool) and tool.kind is not Kind.EXECUTE:
            return Permission(Verdict.DENY, PLAN_MODE)
        return None

    def looks_closer(self, tool: BaseTool[Any], client: ClientState) -> bool:
        """Whether `judge` needs to know what a call touches."""
        if tool.kind in (Kind.EDIT, Kind.EXECUTE):
            return True
        return any(rule.names(tool.rule_names) for rule in self._rules_for(client).of_calls)

    def judge(
        self, tool: BaseTool[Any], subjects: Sequence[Subject], client: ClientState, workspace: Workspace
    ) -> Permission | None:
        """A verdict for which the tool need not be asked, or `None`. Blocking, where there are subjects.

        Args:
            tool: The tool.
            subjects: What the call touches; not needed where `looks_closer` says so.
            client: Whose call it is.
            workspace: Where it may act.
        """
        rules, mode = self._rules_for(client), client.approval_mode
        command = next((subject for subject in subjects if isinstance(subject, CommandSubject)), None)
        if command is not None:
            return self._judge_command(command, rules, mode, workspace)
        return next(self._opinions(tool, subjects, rules, mode, workspace), None)

    def _opinions(
        self,
        tool: BaseTool[Any],
        subjects: Sequence[Subject],
        rules: Rules,
        mode: ApprovalMode,
        workspace: Workspace,
    ) -> Iterator[Permission]:
        """What there is to say of a call, that which counts most first."""
        named = [rule for rule in (*rules.deny, *rules.ask) if rule.names(tool.rule_names)]
        about = [rule for rule in named if _is_about_any(rule, subjects, workspace)]
        yield from (_by_rule(rule) for rule in about if rule.verdict is Verdict.DENY)
        if mode is ApprovalMode.PLAN and not _runs_in_plan_mode(tool):
            yield Permission(Verdict.DENY, PLAN_MODE)
        yield from (_by_rule(rule) for rule in about)
        protected = _protected(subjects, workspace)
        if protected is not None:
            yield Permission(Verdict.ASK, protected, is_final=True)
        for rule in rules.allow:
            if rule.names(tool.rule_names) and _is_about_all(rule, subjects, workspace):
                yield Permission(Verdict.ALLOW, str(rule))
        if mode is ApprovalMode.YOLO:
            yield Permission(Verdict.ALLOW, "approval mode yolo")
        if mode is ApprovalMode.AUTO_EDIT and tool.kind is Kind.EDIT:
            yield Permission(Verdict.ALLOW, "approval mode auto-edit")

    def decide(self, tool: BaseTool[Any], details: ConfirmationDetails | None, mode: ApprovalMode) -> Permission:
        """The decision on a call of which nobody but the tool itself has something to say."""
        if details is None:
            return Permission(Verdict.ALLOW, f"{tool.name} changes nothing that needs consent")
        # Leaving plan mode is a person's to decide, never a dialog's that nobody may have seen.
        is_explicit = details.type == "plan"
        return Permission(Verdict.ASK, f"{details.type} needs consent in approval mode {mode}", is_explicit=is_explicit)

    def _rules_for(self, client: ClientState) -> Rules:
        return self.rules.with_allowed(client.grants) if client.grants else self.rules

    def _judge_command(
        self, command: CommandSubject, rules: Rules, mode: ApprovalMode, workspace: Workspace
    ) -> Permission:
        analysis = analyse(command.command)
        permission = CommandPolicy(rules, mode, workspace, self.home).judge(command, analysis)
        if permission.verdict is Verdict.DENY:
            said = f"The command is refused: {permission.reason}. Nothing was run; do not try it in another form."
            return Permission(Verdict.DENY, said, parts=permission.parts)
        if mode is ApprovalMode.PLAN and not analysis.is_read_only:
            return Permission(Verdict.DENY, PLAN_MODE, parts=permission.parts)
        return permission


def _runs_in_plan_mode(tool: BaseTool[Any]) -> bool:
    """Whether a tool may run in plan mode."""
    return tool.behaviour.read_only or tool.kind is Kind.THINK


def _by_rule(rule: Rule) -> Permission:
    if rule.verdict is Verdict.DENY:
        return Permission(
            Verdict.DENY, f"The call is refused by the {rule}. Nothing was done; do not try it in another way."
        )
    return Permission(Verdict.ASK, str(rule), is_explicit=True)


def _is_about(rule: Rule, subject: Subject, workspace: Workspace) -> bool:
    match subject:
        case PathSubject(path=path, named=named):
            paths = (path,) if rule.verdict is Verdict.ALLOW else (path, named)
            return rule.fits_path(paths, workspace.roots)
        case HostSubject(host=host):
            return rule.fits_host(host)
        case CommandSubject():
            return False  # judged by its parts


def _is_about_any(rule: Rule, subjects: Sequence[Subject], workspace: Workspace) -> bool:
    return rule.is_of_every_call or any(_is_about(rule, subject, workspace) for subject in subjects)


def _is_about_all(rule: Rule, subjects: Sequence[Subject], workspace: Workspace) -> bool:
    if rule.is_of_every_call:
        return True
    return bool(subjects) and all(_is_about(rule, subject, workspace) for subject in subjects)


def _protected(subjects: Sequence[Subject], workspace: Workspace) -> str | None:
    for subject in subjects:
        if isinstance(subject, PathSubject) and subject.access is Access.WRITE:
            location = workspace.at(subject.path)
            why = is_protected(location.relative)
            if why is not None:
                return f"'{location.relative}' is changed only with consent: {why}"
    return None
