"""The interface through which the dashboard and the terminal commands see and control a running server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from server.administration.audit_log import AuditLog
from server.administration.settings_reload import LiveSettings
from server.clients.client_request import principal_in
from server.clients.client_workspaces import ClientRoots
from server.questions.client_confirmer import PendingQuestions
from server.requests.call_contexts import STDIO_KEY, Client, ClientTable, Contexts
from server.requests.prompts_and_resources import MemoryResources
from server.requests.recent_calls import RecentCalls
from server.requests.tool_services import Commands, CustomTools, LazyJournal
from server.settings.settings_files import real_path
from server.upstreams.catalog.blocked_tools import BlockedMCPTool
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tools.call.base_tool import BaseTool, ClientState, ToolContext
from tools.call.consent import Judgement
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.tool_results import FunctionCall
from tools.files.workspace import Workspace
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import ALL_RIGHTS, PermissionRequest, Rights
from tools.permissions.tool_names import SHELL
from tools.permissions.verdict import PLAN_MODE, Permission, Verdict


@dataclass(slots=True, kw_only=True)
class RunningServer:
    """One running server, as people see and control it."""

    live: LiveSettings
    clients: ClientTable
    contexts: Contexts
    runner: ToolRunner
    questions: PendingQuestions
    asks_at_dashboard: bool
    audit: AuditLog
    journal: LazyJournal
    commands: Commands
    custom_tools: CustomTools
    memory: MemoryResources
    recent_calls: RecentCalls
    on_switch: Callable[[], None]  # called when a tool is switched on or off

    def status(self) -> dict[str, Any]:
        report = self.live.report
        custom = self.custom_tools.discovery
        disabled = {"state": "switched off", "problem": "it was switched off on the dashboard", "tools": 0}
        return {
            "approvalMode": self.clients.approval_mode.value,
            "workspaces": list(self.folders),
            "settings": list(report.files),
            "logLevel": report.settings.log.level,
            "clients": [
                {
                    "name": client.name,
                    "principal": principal_in(client.state.key),
                    "protocolVersion": client.version,
                    "folders": list(self._workspace_of(client).roots),
                    "calls": client.calls,
                    "jobs": len(client.state.jobs.running()) if client.state.jobs is not None else 0,
                    "silentSeconds": round(time.monotonic() - client.last_seen, 1),
                }
                for client in self.clients.all()
            ],
            "servers": [*self.live.pool.report(), *({"alias": alias, **disabled} for alias in self.live.switched_off)],
            **({"lock": lock.why_closed or lock.path} if (lock := self.live.pool.catalog.lock) is not None else {}),
            "leftOut": dict(self.live.pool.left_out),
            "customTools": custom.state.problem or "found" if custom is not None else "none",
        }

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that this server works in, from the settings and its clients."""
        operators = map(real_path, self.live.report.settings.workspace.roots)
        client_roots = (self._workspace_of(client).roots for client in self.clients.all())
        folders = tuple(dict.fromkeys((*operators, *chain.from_iterable(client_roots))))
        return folders or self.contexts.workspaces.workspace(ClientRoots()).roots

    def _workspace_of(self, client: Client) -> Workspace:
        return self.contexts.workspaces.workspace(client.folders.roots, client.readable, client.rights)

    async def permission_of(self, tool: BaseTool[Any]) -> Permission:
        """Return the decision about calls to a tool if their arguments are unknown, and the reason for it."""
        if isinstance(tool, DiscoveredMCPTool):
            any_arguments = dict.fromkeys(tool.required_arguments)  # without these, the call would be refused
            return (await self.judge(FunctionCall(tool.name, any_arguments))).permission
        workspace = self.contexts.workspaces.workspace(ClientRoots())
        policy, mode = self.runner.policy, self.clients.approval_mode
        request = PermissionRequest(tool.traits, mode, (), workspace, tool.why_asked_again(STDIO_KEY))
        permission, is_settled = policy.judge_alone(request)
        if permission is None and not is_settled:
            permission = await THREADS.run(partial(policy.judge_subjects, request, ()))
        if permission is PLAN_MODE and tool.name == SHELL:
            return Permission(Verdict.ALLOW, "in plan mode, commands that only read may run; others are refused")
        if permission is not None:
            return permission
        if tool.asks:
            return Permission(Verdict.ASK, f"{tool.name} needs consent in approval mode {mode}")
        return Permission(Verdict.ALLOW, f"{tool.name} makes no changes that need consent")

    def notify_on_change(self, on_change: Callable[[], None]) -> None:
        """From now on, call `on_change` when a pending question or a recent call changes, to update the dashboard."""
        self.questions.on_change = self.recent_calls.on_change = on_change

    def switch_tool(self, name: str, *, is_on: bool) -> None:
        self.runner.policy.switch(name, is_on=is_on)
        self.on_switch()

    def blocked_tool(self, name: str) -> BlockedMCPTool | None:
        """Return the tool with this name, if it is blocked until somebody approves it."""
        tool = self.live.registry.find(name)
        return tool if isinstance(tool, BlockedMCPTool) else None

    @property
    def switched_off(self) -> frozenset[str]:
        return self.runner.policy.switched_off

    def workspace_of_person(self) -> Workspace:
        """Return the folders of all clients, with nothing hidden, because the viewer is a person. This blocks."""
        return Workspace(self.folders, respect_agent_ignore=False)

    async def memories(self) -> list[tuple[str, str, str]]:
        """Return the memories and todos, each as the name of the client, a title and the text."""
        entries: list[tuple[str, str, str]] = []
        for client in self.clients.all():
            context = ToolContext(self._workspace_of(client), self.contexts.limits, client.state)
            entries += [(client.name, title, text) for title, text in await self.memory.read_all(context)]
        return entries

    async def judge(self, call: FunctionCall, rights: Rights = ALL_RIGHTS) -> Judgement:
        """Return the decision about a call from a client without roots. The call does not run."""
        state = ClientState(STDIO_KEY, self.clients.approval_mode)
        scratch = self.clients.scratch(STDIO_KEY)[state.approval_mode is ApprovalMode.PLAN]
        params = {"arguments": call.arguments}
        workspace = await self.contexts.workspace(ClientRoots(), (), rights, scratch, params)
        context = ToolContext(workspace, self.contexts.limits, state, self.contexts.services, rights=rights)
        return await self.runner.judge(self.live.registry.get_tool(call.name), call.arguments, context)
