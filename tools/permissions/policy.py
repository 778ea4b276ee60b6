"""May this call run? The one place that decides, each time with the reason.

Deny stands over ask, ask over allow, allow over what the tool itself would do in the client's approval mode:

    not offered > deny rule > plan mode > ask rule > changed tool, protected file > allow rule > approval mode
    > the tool itself
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tools.call.base_tool import BaseTool, BuiltinTool
from tools.call.context import ClientState
from tools.contract.confirmation import ConfirmationDetails
from tools.contract.limits import ApprovalMode
from tools.contract.subjects import Access, AgentSubject, CommandSubject, HostSubject, Kind, PathSubject, Subject
from tools.files.workspace import Workspace
from tools.permissions.auto_run_files import why_protected
from tools.permissions.command_paths import NamesOnDisk
from tools.permissions.command_policy import CommandPolicy
from tools.permissions.own_settings import GuardedPaths
from tools.permissions.rules import CORE, INCLUDE, SESSION, Rule, Rules, parse_rule
from tools.permissions.tool_names import names_of_any_tool
from tools.permissions.verdict import Permission, Verdict

_PLAN_MODE = Permission(
    Verdict.DENY,
    "plan mode is on, and only reading and searching are possible",
    way_out="Present your plan with exit_plan_mode; where that is not offered, the operator starts the server with "
    "another approval mode.",
)


MOST_REMEMBERED = 1_000
"""Tools, and clients' grants, of which it is remembered what the rules say."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """What rules and mode say of a tool, whatever a call of it touches.

    Args:
        tool: Of which it was asked; not kept alive by this, since one of another server may be as large as that likes.
        rules: Which were asked.
        mode: The client's approval mode.
        permission: The verdict, or `None` where the tool itself has to be asked.
    """

    tool: weakref.ref[BaseTool[Any]]
    rules: Rules
    mode: ApprovalMode
    permission: Permission | None


@dataclass(slots=True)
class PermissionPolicy:
    """Decides by rules and by the client's approval mode.

    A call is judged in up to three steps, so that a refusal reveals nothing and what is allowed anyway costs nothing:
    by its tool alone, by its subjects, and by the details of what the tool itself would ask.

    Args:
        rules: What the operator has said.
        canonical: The wire name for another name of a built-in tool.
        home: The user's home folder.
        guarded: The server's own settings.
    """

    rules: Rules = field(default_factory=Rules)
    canonical: Callable[[str], str] = str
    home: str = field(default_factory=lambda: os.path.expanduser("~"))
    guarded: GuardedPaths = field(default_factory=GuardedPaths)
    _standings: dict[int, _Standing] = field(default_factory=dict[int, _Standing], repr=False)
    _granting: dict[tuple[str, ...], tuple[Rules, Rules]] = field(
        default_factory=dict[tuple[str, ...], tuple[Rules, Rules]], repr=False
    )

    def allow(self, texts: Iterable[str], source: str) -> None:
        """Add rules that a person has saved, for every client."""
        self.rules = self.rules.with_allowed(self._granted(texts, source))

    def _granted(self, texts: Iterable[str], source: str) -> list[Rule]:
        return [parse_rule(text, Verdict.ALLOW, source, self.canonical, self.home) for text in texts]

    def why_not_offered(self, tool: BaseTool[Any]) -> Permission | None:
        """The verdict on a tool that is not there at all, or `None` if it is."""
        core, included = self.rules.core, self.rules.included
        if included is not None and not any(rule.names_tool(tool) for rule in included):
            reason = f"{tool.name} is switched off, since {INCLUDE} does not name it"
            return Permission(Verdict.DENY, reason, setting=INCLUDE)
        if core and isinstance(tool, BuiltinTool) and not any(rule.names_tool(tool) for rule in core):
            return Permission(Verdict.DENY, f"{tool.name} is switched off, since {CORE} does not name it", setting=CORE)
        rule = next((rule for rule in self.rules.deny if rule.is_of_every_call and rule.names_tool(tool)), None)
        if rule is None:
            return None
        return Permission(Verdict.DENY, f"{tool.name} is switched off by the {rule}", setting=rule.source)

    def judge_alone(
        self, tool: BaseTool[Any], client: ClientState, workspace: Workspace
    ) -> tuple[Permission | None, bool]:
        """The verdict on a call of which nothing has to be looked at, and whether it is one.

        It is remembered, since nothing in a call changes it: looking through the rules would be most of the work of
        a small call.

        Args:
            tool: The tool.
            client: Whose call it is.
            workspace: Where it may act.
        """
        rules, mode = self._rules_for(client), client.approval_mode
        is_as_it_was = not tool.why_asked_anew(client.key)
        known = self._standings.get(id(tool))
        if known is not None and is_as_it_was and known.tool() is tool and known.rules is rules and known.mode is mode:
            return known.permission, True
        permission = self._judge_tool(tool, mode)
        if permission is None:
            if self._needs_subjects(tool, client):
                return None, False
            permission = self.judge_subjects(tool, (), client, workspace)
        if is_as_it_was:
            if len(self._standings) >= MOST_REMEMBERED:
                self._standings.clear()
            self._standings[id(tool)] = _Standing(weakref.ref(tool), rules, mode, permission)
        return permission, True

    def why_server_not_offered(self, server: str) -> str:
        """Why nothing at all of another server is there, as a sentence, or nothing if a rule does not say so."""
        names = names_of_any_tool(server)
        rule = next((rule for rule in self.rules.deny if rule.is_of_every_call and rule.names(names)), None)
        return "" if rule is None else f"The server {server} is switched off by the {rule}."

    def _judge_tool(self, tool: BaseTool[Any], mode: ApprovalMode) -> Permission | None:
        """A verdict for which nothing of the call has to be looked at, or `None`."""
        why_not = self.why_not_offered(tool)
        if why_not is None and mode is ApprovalMode.PLAN and not _runs_in_plan_mode(tool):
            return _PLAN_MODE if tool.kind is not Kind.EXECUTE else None
        return why_not

    def _needs_subjects(self, tool: BaseTool[Any], client: ClientState) -> bool:
        """Whether `judge_subjects`, or what an answer would cover, needs to know what a call touches."""
        if tool.kind in (Kind.EDIT, Kind.EXECUTE, Kind.FETCH):
            return True
        return any(rule.names_tool(tool) for rule in self._rules_for(client).of_calls)

    def judge_subjects(
        self, tool: BaseTool[Any], subjects: Sequence[Subject], client: ClientState, workspace: Workspace
    ) -> Permission | None:
        """A verdict for which the tool need not be asked, or `None`. Blocking, where there are subjects.

        Args:
            tool: The tool.
            subjects: What the call touches; none where nothing of it has to be looked at, as `judge_alone` finds out.
            client: Whose call it is.
            workspace: Where it may act.
        """
        rules, mode = self._rules_for(client), client.approval_mode
        command = next((subject for subject in subjects if isinstance(subject, CommandSubject)), None)
        if command is not None:
            return self._judge_command(command, rules, mode, workspace)
        return next(self._opinions(tool, subjects, rules, client, workspace), None)

    def _opinions(
        self,
        tool: BaseTool[Any],
        subjects: Sequence[Subject],
        rules: Rules,
        client: ClientState,
        workspace: Workspace,
    ) -> Iterator[Permission]:
        """What there is to say of a call, that which counts most first."""
        mode = client.approval_mode
        named = [rule for rule in (*rules.deny, *rules.ask) if rule.names_tool(tool)]
        about = [rule for rule in named if _is_about_any(rule, subjects, workspace)]
        yield from (_by_rule(rule) for rule in about if rule.verdict is Verdict.DENY)
        if mode is ApprovalMode.PLAN and not _runs_in_plan_mode(tool):
            yield _PLAN_MODE
        yield from (_by_rule(rule) for rule in about)
        protected = tool.why_asked_anew(client.key) or self._protected(subjects, workspace)
        if protected is not None:
            yield Permission(Verdict.ASK, protected, no_rule_allows=True)
        if tool.kind is Kind.COMMUNICATE:
            return  # no rule and no mode answers in a person's place
        for rule in rules.allow:
            if rule.names_tool(tool) and _is_about_all(rule, subjects, workspace):
                yield Permission(Verdict.ALLOW, str(rule))
        if mode is ApprovalMode.YOLO:
            yield Permission(Verdict.ALLOW, "approval mode yolo")
        if mode is ApprovalMode.AUTO_EDIT and _runs_in_auto_edit(tool, subjects, workspace):
            yield Permission(Verdict.ALLOW, "approval mode auto-edit")

    def _protected(self, subjects: Sequence[Subject], workspace: Workspace) -> str | None:
        """Why no rule and no mode stands for a person's consent to what is written, or `None`."""
        for subject in subjects:
            if not isinstance(subject, PathSubject) or subject.access is not Access.WRITE:
                continue
            is_inside = workspace.holds(subject.path)
            shown = workspace.at(subject.path).relative if is_inside else subject.path
            why = self.guarded.why((subject.path, subject.named))
            if why is None and is_inside:
                why = why_protected(shown)
            if why is not None:
                return f"'{shown}' is changed only with consent: {why}"
        return None

    def judge_details(self, tool: BaseTool[Any], details: ConfirmationDetails | None, mode: ApprovalMode) -> Permission:
        """The decision on a call of which nobody but the tool itself has something to say."""
        if details is None:
            return Permission(Verdict.ALLOW, f"{tool.name} changes nothing that needs consent")
        # Leaving plan mode is a person's to decide, never a dialog's that nobody may have seen.
        is_explicit = details.type == "plan"
        return Permission(Verdict.ASK, f"{tool.name} needs consent in approval mode {mode}", is_explicit=is_explicit)

    def _rules_for(self, client: ClientState) -> Rules:
        if not client.grants:
            return self.rules
        grants = tuple(client.grants)
        known = self._granting.get(grants)
        if known is None or known[0] is not self.rules:
            if len(self._granting) >= MOST_REMEMBERED:
                self._granting.clear()
            known = self._granting[grants] = (self.rules, self.rules.with_allowed(self._granted(grants, SESSION)))
        return known[1]

    def _judge_command(
        self, command: CommandSubject, rules: Rules, mode: ApprovalMode, workspace: Workspace
    ) -> Permission:
        from tools.permissions.shell.analyser import analyse  # noqa: PLC0415 - tables load at the first command

        analysis = analyse(command.command, NamesOnDisk(self.home, command.directory))
        permission = CommandPolicy(rules, mode, workspace, self.home, self.guarded).judge(command, analysis)
        if mode is ApprovalMode.PLAN and permission.verdict is not Verdict.DENY and not analysis.is_read_only:
            return replace(_PLAN_MODE, parts=permission.parts)
        return permission


def _runs_in_plan_mode(tool: BaseTool[Any]) -> bool:
    """Whether a tool may run in plan mode."""
    return tool.behaviour.read_only or tool.kind is Kind.THINK


def _runs_in_auto_edit(tool: BaseTool[Any], subjects: Sequence[Subject], workspace: Workspace) -> bool:
    """Whether nobody is asked in auto-edit: about what is changed in the workspace, and about the web."""
    if tool.kind is Kind.EDIT:
        # What is outside is the user's own memory, which speaks to every other project.
        return all(workspace.holds(subject.path) for subject in subjects if isinstance(subject, PathSubject))
    return tool.kind in (Kind.FETCH, Kind.SEARCH)


def _by_rule(rule: Rule) -> Permission:
    is_explicit = rule.verdict is Verdict.ASK
    return Permission(rule.verdict, str(rule), setting=rule.source, is_explicit=is_explicit)


def _is_about(rule: Rule, subject: Subject, workspace: Workspace) -> bool:
    match subject:
        case PathSubject(path=path, named=named):
            paths = (path,) if rule.verdict is Verdict.ALLOW else (path, named)
            return rule.fits_path(paths, workspace.roots)
        case HostSubject(host=host):
            return rule.fits_host(host)
        case AgentSubject(name=name):
            return rule.fits_agent(name)
        case CommandSubject():
            return False  # judged by its parts


def _is_about_any(rule: Rule, subjects: Sequence[Subject], workspace: Workspace) -> bool:
    return rule.is_of_every_call or any(_is_about(rule, subject, workspace) for subject in subjects)


def _is_about_all(rule: Rule, subjects: Sequence[Subject], workspace: Workspace) -> bool:
    if rule.is_of_every_call:
        return True
    return bool(subjects) and all(_is_about(rule, subject, workspace) for subject in subjects)
