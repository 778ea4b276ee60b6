"""Decides whether a call may run, always with a reason.

Deny takes precedence over ask, ask over allow, and allow over the tool's own behaviour in the approval mode:

    not offered > deny rule > plan mode > ask rule > changed tool, protected file > allow rule > approval mode
    > the tool itself

What a client's token permits and forbids (its `Rights`) is added to the settings for all clients.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tools.contract.call_options import ApprovalMode
from tools.contract.command_views import FileRestrictions, ViewKind
from tools.contract.confirmation import ConfirmationDetails, McpConfirmation, PlanConfirmation
from tools.contract.permission_subjects import (
    Access,
    AgentSubject,
    CommandSubject,
    HostSubject,
    PathSubject,
    Subject,
    ToolKind,
    ToolTraits,
)
from tools.files.workspace import Workspace, is_inside
from tools.permissions.git_repositories import why_protected_at
from tools.permissions.permission_rules import CORE, PROFILE, SANDBOXED, SESSION, Rule, Rules, parse_rule, read_rules
from tools.permissions.protected_files import GuardedPaths, why_protected
from tools.permissions.tool_names import PROFILES, names_of_any_tool
from tools.permissions.verdict import PLAN_MODE, Permission, Verdict

if TYPE_CHECKING:
    from tools.permissions.hidden_files import HiddenFileScanner


READ, WRITE, RUN, UPSTREAM = "read", "write", "run", "upstream:"
SCOPES = (READ, WRITE, RUN, f"{UPSTREAM}*")
"""The rights that a token can give: reading, changing files, running programs, and the tools of upstream servers."""

JOB_TOOLS = ("list_background_jobs", "read_background_output")


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a token."""

    source: str = ""  # the setting that defines the token, such as `http.tokens.laptop`
    roots: tuple[str, ...] = ()  # the client's workspace folders; empty to use the same folders as all clients
    profile: str = ""  # a profile that limits the built-in tools, in addition to the one for all clients
    allow: tuple[str, ...] = ()  # allow rules, in addition to those for all clients
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None  # members of `SCOPES`, or `upstream:alias` for one server; `None` for all
    prefix: str = ""  # what the token's issuer puts before each scope

    def missing_scope(self, tool: ToolTraits) -> str:
        """Return the scope that a tool needs but the token lacks, with the issuer's prefix, or an empty string."""
        if self.scopes is None:
            return ""
        if tool.server:
            return self.missing_for_server(tool.server)
        if tool.kind is ToolKind.EXECUTE or not tool.is_builtin:
            scope = RUN
        else:
            scope = READ if tool.only_reads_or_talks else WRITE
        is_given = scope in self.scopes or (scope == READ and WRITE in self.scopes)
        # The right to run programs includes reading their output.
        is_given = is_given or (RUN in self.scopes and tool.name in JOB_TOOLS)
        return "" if is_given else self.prefix + scope

    def missing_for_server(self, alias: str) -> str:
        """Return the scope that an upstream server needs but the token lacks, as `missing_scope` does for a tool."""
        if self.scopes is None or not self.scopes.isdisjoint((f"{UPSTREAM}*", UPSTREAM + alias)):
            return ""
        return f"{self.prefix}{UPSTREAM}{alias}"


ALL_RIGHTS = Rights()
"""The rights of an unrestricted client."""


_MISSING_SCOPE = "which this client's token does not have"
_NEW_LOGIN = "Do not try another way; tell the user. A new login with this scope is needed."
MAX_CACHED_GRANTS = 1_000  # maximum cached sets of rules, one for each combination of a token and grants


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    tool: ToolTraits
    mode: ApprovalMode
    grants: Sequence[str]
    workspace: Workspace
    asked_again: str = ""  # why the user must be asked even if rules and modes allow the call; else empty
    rights: Rights = ALL_RIGHTS  # the rights of the client's token


@dataclass(slots=True)
class PermissionPolicy:
    """Decides about calls by rules and the client's approval mode.

    A call is judged in up to three steps: by its tool alone, by its subjects, and by the tool's own question. A later
    step is taken only if the earlier ones do not decide, so a refusal reveals nothing about the files that the tool
    would read, and an allowed call is cheap.
    """

    rules: Rules = field(default_factory=Rules)
    canonical: Callable[[str], str] = str
    home: str = field(default_factory=lambda: os.path.expanduser("~"))
    guarded: GuardedPaths = field(default_factory=GuardedPaths)
    sandboxed_commands: bool = False  # whether every command that stays in the sandbox runs without consent
    switched_off: frozenset[str] = frozenset()  # tools that are switched off until the server stops
    _scanner: HiddenFileScanner | None = field(default=None, repr=False)  # finds what is hidden from commands
    _judged_tools: weakref.WeakKeyDictionary[ToolTraits, tuple[Rules, ApprovalMode, Permission | None]] = field(
        default_factory=weakref.WeakKeyDictionary, repr=False
    )
    _rules_of_clients: dict[tuple[tuple[str, ...], Rights], tuple[Rules, Rules]] = field(
        default_factory=dict, repr=False
    )

    def allow(self, texts: Iterable[str], source: str) -> None:
        """Add allow rules that a person has saved. The rules apply to every client."""
        self.rules = self._with_allowed(self.rules, texts, source)

    def switch(self, name: str, *, is_on: bool) -> None:
        """Switch a tool on or off until the server stops. If on, the rules and the profile decide if it is offered."""
        self.switched_off = self.switched_off - {name} if is_on else self.switched_off | {name}
        self.rules = replace(self.rules)  # invalidates the caches for the old rules

    def why_not_offered(self, tool: ToolTraits, rights: Rights = ALL_RIGHTS) -> Permission | None:
        """Return the decision on a tool that is not offered to a client, or `None` if it is offered."""
        if scope := rights.missing_scope(tool):
            reason = f"{tool.name} needs the scope {scope}, {_MISSING_SCOPE}"
            return Permission(Verdict.DENY, reason, way_out=_NEW_LOGIN)
        rules = self.rules_of(rights)
        if tool.name in self.switched_off:
            return Permission(Verdict.DENY, f"{tool.name} is switched off on the dashboard", setting="its switch there")
        if rules.included is not None and not any(rule.names_tool(tool) for rule in rules.included):
            setting = rules.include_setting
            reason = f"{tool.name} is turned off, because {setting} does not include it"
            return Permission(Verdict.DENY, reason, setting=setting)
        for profile, setting in ((rules.profile, PROFILE), (rights.profile, f"{rights.source}.profile")):
            if tool.is_builtin and tool.name not in PROFILES.get(profile, (tool.name,)):
                reason = f"{tool.name} is turned off, because it is not in the profile {profile} ({setting})"
                return Permission(Verdict.DENY, reason, setting=setting)
        if rules.core and tool.is_builtin and not any(rule.names_tool(tool) for rule in rules.core):
            reason = f"{tool.name} is turned off, because {CORE} does not include it"
            return Permission(Verdict.DENY, reason, setting=CORE)
        rule = next((rule for rule in rules.deny if rule.specifier is None and rule.names_tool(tool)), None)
        if rule is None:
            return None
        return Permission(Verdict.DENY, f"{tool.name} is turned off by the {rule}", setting=rule.source)

    def why_server_not_offered(self, server: str, rights: Rights = ALL_RIGHTS) -> str:
        """Return why an upstream server is not offered to a client, as a sentence. Empty if it is offered."""
        if scope := rights.missing_for_server(server):
            return f"The server {server} needs the scope {scope}, {_MISSING_SCOPE}."
        names, deny = names_of_any_tool(server), self.rules_of(rights).deny
        rule = next((rule for rule in deny if rule.specifier is None and rule.names(names)), None)
        return "" if rule is None else f"The server {server} is turned off by the {rule}."

    def judge_alone(self, request: PermissionRequest) -> tuple[Permission | None, bool]:
        """Decide about a call by its tool alone, if possible.

        Returns the decision, if there is one, and whether the call's subjects can be ignored. The decision is cached
        per tool, because searching the rules would take most of the time that a small call takes.
        """
        tool, mode = request.tool, request.mode
        rules = self.rules_of(request.rights, request.grants)
        cached = self._judged_tools.get(tool)
        if cached is not None and not request.asked_again and cached[0] is rules and cached[1] is mode:
            return cached[2], True
        permission = self.why_not_offered(tool, request.rights)
        if permission is None and mode is ApprovalMode.PLAN and not tool.only_reads_or_talks:
            # Plan mode may allow a command because of its effect, and an edit because of its path.
            may_edit = tool.kind is ToolKind.EDIT and request.workspace.scratch is not None
            permission = None if may_edit or tool.kind is ToolKind.EXECUTE else PLAN_MODE
        if permission is None:
            of_some_calls = (rule for rule in (*rules.strict, *rules.allow) if rule.specifier is not None)
            depends = tool.kind in (ToolKind.EDIT, ToolKind.EXECUTE, ToolKind.FETCH)
            if depends or any(rule.names_tool(tool) for rule in of_some_calls):
                return None, False
            permission = self.judge_subjects(request, ())
        if not request.asked_again:
            self._judged_tools[tool] = rules, mode, permission
        return permission, True

    def judge_subjects(self, request: PermissionRequest, subjects: Sequence[Subject]) -> Permission | None:
        """Return a decision that does not depend on the tool's question, or `None`. Blocking if there are subjects."""
        command = next((subject for subject in subjects if isinstance(subject, CommandSubject)), None)
        if command is None:
            return next(self._decisions(request, subjects), None)
        # Imported for the first command, because many servers never run one.
        from tools.permissions.command_policy import PolicyRequest, judge_command  # noqa: PLC0415
        from tools.permissions.hidden_files import HiddenFileScanner  # noqa: PLC0415

        self._scanner = self._scanner or HiddenFileScanner()
        rules_now = partial(self.rules_of, request.rights, request.grants)
        is_sandboxed = self.sandboxed_commands or SANDBOXED in request.grants
        command_request = PolicyRequest(
            command, rules_now, request.mode, request.workspace, self.guarded, self._scanner, self.home, is_sandboxed
        )
        return judge_command(command_request)

    def judge_details(self, request: PermissionRequest, details: ConfirmationDetails | None) -> Permission:
        """Return the decision on a call that neither rules nor modes decide."""
        name = request.tool.name
        if details is None:
            return Permission(Verdict.ALLOW, f"{name} makes no changes that need consent")
        # Only the user may end plan mode. A client's own dialog is not enough, because the client may skip it.
        is_explicit = isinstance(details, PlanConfirmation)
        reason = f"{name} needs consent in approval mode {request.mode}"
        if isinstance(details, McpConfirmation):
            reason += f", because its server is not trusted (mcpServers.{details.server_name}.trust)"
        return Permission(Verdict.ASK, reason, is_explicit=is_explicit)

    def _decisions(self, request: PermissionRequest, subjects: Sequence[Subject]) -> Iterator[Permission]:
        """Yield the decisions that apply to a call, in order of precedence."""
        tool, mode, workspace = request.tool, request.mode, request.workspace
        rules = self.rules_of(request.rights, request.grants)
        matching_rules = [
            rule
            for rule in rules.strict
            if rule.names_tool(tool)
            and (rule.specifier is None or any(_applies(rule, subject, workspace) for subject in subjects))
        ]
        for rule in matching_rules:
            if rule.verdict is Verdict.DENY:
                yield Permission(Verdict.DENY, str(rule), setting=rule.source)
        # Files in the client's `/tmp` may be changed even in plan mode, because programs outside the sandbox do not use
        # them, and they do not outlive the client.
        in_scratch = [isinstance(subject, PathSubject) and subject.in_scratch for subject in subjects]
        is_scratch = bool(subjects) and all(in_scratch)
        if mode is ApprovalMode.PLAN and not tool.only_reads_or_talks and not is_scratch:
            yield PLAN_MODE
        for rule in matching_rules:
            yield Permission(rule.verdict, str(rule), setting=rule.source, is_explicit=rule.verdict is Verdict.ASK)
        if request.asked_again:
            yield Permission(Verdict.ASK, request.asked_again, no_rule_allows=True)
        yield from self._protections(subjects, workspace)
        if tool.kind is ToolKind.COMMUNICATE:
            return  # no rule or mode can answer for the user
        if is_scratch:
            yield Permission(Verdict.ALLOW, "it is in the client's own /tmp")
        for rule in rules.allow:
            if rule.allows_tool(tool) and (
                rule.specifier is None or (subjects and all(_applies(rule, subject, workspace) for subject in subjects))
            ):
                yield Permission(Verdict.ALLOW, str(rule))
        if mode is ApprovalMode.YOLO:
            yield Permission(Verdict.ALLOW, "approval mode yolo")
        if mode is ApprovalMode.AUTO_EDIT:
            # Outside the workspace, tools can edit only the user's own memory. This mode does not allow such edits,
            # because the memory affects every project.
            paths = [subject.path for subject in subjects if isinstance(subject, PathSubject)]
            are_inside = all(is_inside(path, workspace.roots) for path in paths)
            if tool.kind in (ToolKind.FETCH, ToolKind.SEARCH) or (tool.kind is ToolKind.EDIT and are_inside):
                yield Permission(Verdict.ALLOW, "approval mode auto-edit")

    def _protections(self, subjects: Sequence[Subject], workspace: Workspace) -> Iterator[Permission]:
        """Yield decisions on writes that need consent even if an allow rule or the mode would allow them."""
        for subject in subjects:
            if not isinstance(subject, PathSubject) or subject.access is not Access.WRITE:
                continue
            # Outside the workspace, tools change only the user's own memory, and files in the client's `/tmp`.
            location = workspace.at(subject.path) if workspace.holds(subject.path) else None
            display_path = subject.path if location is None else location.relative
            guarded_reason = None if subject.in_scratch else self.guarded.why((subject.path, subject.unresolved_path))
            reason = guarded_reason
            if subject.in_scratch:
                reason = why_protected(display_path)
            elif reason is None and location is not None:
                reason = why_protected_at(location.path, location.root)
            if reason is not None:
                message = f"'{display_path}' can be changed only with consent: {reason}"
                yield Permission(Verdict.ASK, message, no_rule_allows=True, is_guarded=guarded_reason is not None)

    def kept_from_readers(self, workspace: Workspace, rights: Rights) -> tuple[FileRestrictions, str]:
        """Return what file rules and agent-ignore files deny to a program that only reads.

        Also return why this cannot be fully enforced; empty if it can. Blocking.
        """
        from tools.permissions.hidden_files import HiddenFileScanner, LiftedLimits, restrictions  # noqa: PLC0415

        self._scanner = scanner = self._scanner or HiddenFileScanner()
        rules = self.rules_of(rights)
        hidden_files = scanner.scan(workspace, rules)
        stores = scanner.stores_hidden(workspace, hidden_files, rules) if hidden_files.unreadable else ()
        return restrictions(
            hidden_files, rules, workspace.roots, ViewKind.READING, stores, lifted=LiftedLimits(), is_asked=False
        ), hidden_files.problem

    def rules_of(self, rights: Rights, grants: Sequence[str] = ()) -> Rules:
        """Return the rules of the operator, the token and the grants; the same object until one of these changes."""
        if not grants and rights is ALL_RIGHTS:  # the usual case
            return self.rules
        key = tuple(grants), rights
        cached = self._rules_of_clients.get(key)
        if cached is None or cached[0] is not self.rules:
            if len(self._rules_of_clients) >= MAX_CACHED_GRANTS:
                self._rules_of_clients.clear()
            token_rules, _ = self.read_rules_of(rights)
            rules = replace(
                self.rules,
                deny=(*self.rules.deny, *token_rules.deny),
                ask=(*self.rules.ask, *token_rules.ask),
                allow=(*self.rules.allow, *token_rules.allow),
            )
            cached = self._rules_of_clients[key] = (self.rules, self._with_allowed(rules, grants, SESSION))
        return cached[1]

    def read_rules_of(self, rights: Rights) -> tuple[Rules, list[str]]:
        """Parse the rules of a token. Also return a warning for each rule that is not used as written."""
        lists = {"permissions.allow": rights.allow, "permissions.ask": rights.ask, "permissions.deny": rights.deny}
        places = {key: key.replace("permissions", f"{rights.source}.rules") for key in lists}
        return read_rules(lists, self.canonical, self.home, places)

    def _with_allowed(self, rules: Rules, texts: Iterable[str], source: str) -> Rules:
        new_rules = (parse_rule(text, Verdict.ALLOW, source, self.canonical, self.home) for text in texts)
        return replace(rules, allow=(*rules.allow, *new_rules))


def _applies(rule: Rule, subject: Subject, workspace: Workspace) -> bool:
    match subject:
        case PathSubject(path=path, unresolved_path=unresolved_path):
            paths = (path,) if rule.verdict is Verdict.ALLOW else (path, unresolved_path)
            return rule.fits_path(paths, workspace.roots)
        case HostSubject(host=host):
            return rule.fits_host(host)
        case AgentSubject(name=name):
            return rule.fits_agent(name)
        case CommandSubject():
            return False  # `judge_command` applies the rules to the simple commands
