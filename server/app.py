"""The composition root: everything is wired here, and the protocol's requests are answered here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import metadata
from typing import Any, Literal

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.subscriptions import ToolsListChanged

from server.audit import AuditLog
from server.clients import STDIO_KEY, Client, ClientRoots, ClientTable, RequestContext
from server.commands import Commands
from server.consent.confirmers import ConfirmationOptions, Confirmers
from server.consent.malformed_answers import let_malformed_answers_pass
from server.core_server import CoreServer, instructions
from server.custom_tools import CustomTools
from server.exposure import complete, result_to_wire, tool_to_wire
from server.file_features import FileFeatures
from server.guarded_settings import audit_file
from server.live_settings import LiveSettings, has_other_rules
from server.memory_resources import MemoryResources
from server.parameter_headers import ParameterHeaders
from server.permissions import permission_policy, rule_keeper
from server.progress import CallProgress
from server.roots import WorkspacePolicy, ask_roots
from server.settings import SettingsReport
from server.upstreams.pool import UpstreamPool
from server.url_access import UrlAccess
from tools.builtins import builtin_tools
from tools.consent import Judgement
from tools.contract.base import BaseTool
from tools.contract.confirmation import Question
from tools.contract.context import ApprovalMode, ClientState, ToolContext
from tools.contract.errors import ToolError, ToolNotRegisteredError
from tools.contract.result import FunctionCall, ToolResult
from tools.contract.services import Services
from tools.filesystem.workspace import Workspace
from tools.flow import Flow
from tools.permissions.hidden import hidden_paths
from tools.permissions.tool_names import DELEGATING
from tools.planning.todo_lists import TodoLists
from tools.registry import ToolRegistry

logger = logging.getLogger(__name__)

EXIT_PLAN_MODE = "exit_plan_mode"
"""Listed for clients in plan mode only."""

ASK_USER_QUESTION = "ask_user_question"
"""Listed for clients that can show a person a form."""

TELL_SECONDS = 10.0
"""How long a session may take to hear of a change."""

NO_AGENTS = (
    f"Tool '{DELEGATING}' is not there, because no agent is configured. Do the work yourself; the operator can name "
    "programs that take tasks with the setting agents."
)
"""Who knows the tool from elsewhere calls it."""

ServedOver = Literal["stdio", "network"]


class App:
    """One running server: registry, clients, consent, upstreams, and the handlers that join them.

    To be made in a running event loop.

    Args:
        report: The merged settings, and which upstreams are to be used.
        served_over: Decides who answers where nobody can be asked: the client's own dialog on stdio, nobody else.
    """

    def __init__(self, report: SettingsReport, served_over: ServedOver) -> None:
        self._report = report
        self._settings = settings = report.settings
        self._limits = settings.limits.for_tools()
        self.registry = ToolRegistry()
        self._commands = Commands(report)
        self._services = Services(commands=self._commands.runner)
        web, memory, self._todos = UrlAccess(settings.web), settings.memory.for_tools(report.own_folder), TodoLists()
        for tool in builtin_tools(
            fetcher=web.fetcher,
            search=settings.web.search.for_tools(),
            opener=web.opener,
            memory=memory,
            todos=self._todos,
            agents=[agent.for_tools(name) for name, agent in settings.agents.items()],
            programs=self._commands.programs,
        ):
            self.registry.register_tool(tool)
        self.registry.on_change(self._tools_changed)
        self._parameter_headers = ParameterHeaders(self.registry)
        self.custom_tools = CustomTools(settings, self._commands, self.registry)
        self.clients = ClientTable(
            settings.approval_mode, settings.http.session_idle / 1000, self._commands.spill_folder, self._forget
        )
        fallback: Literal["client", "deny"] = "client" if served_over == "stdio" else "deny"
        self._confirmers = Confirmers(
            ConfirmationOptions(
                when_unavailable=settings.confirmation.when_unavailable or fallback,
                timeout_seconds=settings.confirmation.timeout / 1000,
                style=settings.confirmation.style,
            )
        )
        self._policy = permission_policy(report, self.registry)
        self._workspaces = WorkspacePolicy(
            settings.workspace.roots,
            intersect=settings.workspace.client_roots == "intersect",
            respect_git_ignore=settings.workspace.respect_git_ignore,
            respect_agent_ignore=settings.workspace.respect_agent_ignore,
            hidden=lambda roots: hidden_paths(self._policy.rules, roots),
        )
        self._audit = AuditLog(audit_file(report))
        self._audit.warn_of_roots(settings.workspace.roots)
        self.pool = UpstreamPool(report.upstreams, self.registry, settings.proxy.first_list_wait / 1000)
        self.live = LiveSettings(report, self.registry, self._policy, self.pool, self._on_settings_changed)
        self._flow = Flow(self.registry, self._policy, rule_keeper(report), self._audit)
        self._tasks: TaskGroup | None = None
        self._bus = InMemorySubscriptionBus()
        self._listings: dict[tuple[bool, bool], dict[str, Any]] = {}
        self._remembered = MemoryResources(memory, self._todos)
        self.server = self._build_server()

    def _build_server(self) -> CoreServer:
        with warnings.catch_warnings():
            # Roots are how handshake-era clients say which folders are open; the SDK warns of every use of them.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            server = CoreServer(
                "coretools-mcp",
                version=metadata.version("coretools-mcp"),
                title="Core tools",
                instructions=instructions(self._report),
                on_list_tools=self._on_list_tools,  # pyright: ignore[reportArgumentType] - wire mappings are accepted
                on_call_tool=self._on_call_tool,  # pyright: ignore[reportArgumentType]
                on_subscriptions_listen=ListenHandler(self._bus),
                on_roots_list_changed=self._on_roots_list_changed,
            )
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._on_initialized)
        FileFeatures(
            self._flow,
            self._context_of,
            lambda ctx: self.clients.of(ctx).at_work(),
            self._confirmers,
            self._remembered,
        ).register(server)
        # Tracing of the SDK is a no-op without an exporter, and costs a twentieth of a small call.
        server.middleware.clear()
        server.middleware.append(let_malformed_answers_pass)
        return server

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold what outlives a request: the upstreams' owner tasks and background questions."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()
                await self._commands.aclose(self.clients.job_tables())
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._audit.close)

    def start_upstreams(self) -> None:
        """Start the upstreams and the discovery of custom tools, and follow the settings, once.

        Called when a client is really there: some start a server only to probe it.
        """
        if self._tasks is not None:
            self.pool.start(self._tasks)
            self.custom_tools.start(self._tasks)
            self.live.start(self._tasks)

    async def _on_settings_changed(self, before: SettingsReport, now: SettingsReport) -> None:
        self._commands.change(now.settings)
        if self._tasks is not None:
            self.custom_tools.change(now.settings, self._tasks)
        if has_other_rules(before.settings, now.settings):
            self._workspaces.rebuild()
            self._tools_changed()

    def _forget(self, state: ClientState) -> None:
        self._todos.forget(state.key)
        if self._tasks is not None:
            self._tasks.start_soon(self._commands.forget, state.key, state.jobs)

    def _tools_changed(self) -> None:
        self._listings.clear()
        if self._tasks is not None:
            self._tasks.start_soon(self._tell_tools_changed, list(self.clients.sessions()))

    async def _tell_tools_changed(self, sessions: Sequence[ServerSession]) -> None:
        """Tell these sessions, and whoever listens in the 2026-07-28 revision, that the list of tools changed."""
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(_tell_tools_changed, session)

    async def _on_initialized(self, ctx: RequestContext, params: types.NotificationParams) -> None:
        del params
        client = self.clients.of(ctx)
        is_new = self.clients.follow(ctx)
        self.start_upstreams()
        if is_new and self._workspaces.follows_client and self._tasks is not None:
            self._tasks.start_soon(partial(ask_roots, client, ctx, related=False))

    async def _on_roots_list_changed(self, ctx: RequestContext, params: types.NotificationParams | None) -> None:
        del params
        client = self.clients.of(ctx)
        client.roots = None
        await ask_roots(client, ctx, related=False)

    async def _on_list_tools(
        self, ctx: RequestContext, params: types.PaginatedRequestParams | None
    ) -> Mapping[str, Any]:
        del params
        self.start_upstreams()
        await self.pool.wait_for_first_list()
        await self.custom_tools.wait_for_first_list()
        # Until now the SDK came here before each call, so that none overtakes the first list.
        self.server.get_tool_input_schema = self._parameter_headers.schema
        plans, shows_forms = _is_planning(self.clients.of(ctx)), self._confirmers.shows_forms(ctx)
        listing = self._listings.get((plans, shows_forms))
        if listing is None:
            tools = [tool_to_wire(tool) for tool in self.offered_tools(plans=plans, shows_forms=shows_forms)]
            # It may change at any time, and depends on what the operator configured.
            listing = self._listings[plans, shows_forms] = {"tools": tools, "ttlMs": 0, "cacheScope": "private"}
        return complete(listing, ctx.protocol_version)

    def offered_tools(self, *, plans: bool, shows_forms: bool) -> list[BaseTool[Any]]:
        """The tools that a client would see.

        Args:
            plans: Whether it is in plan mode.
            shows_forms: Whether it can show a person a form.
        """
        of_use = {EXIT_PLAN_MODE: plans, ASK_USER_QUESTION: shows_forms}
        hidden = {name for name, is_of_use in of_use.items() if not is_of_use}
        tools = (tool for tool in self.registry.get_all_tools() if tool.name not in hidden)
        return [tool for tool in tools if self._policy.why_not_offered(tool) is None]

    async def _on_call_tool(self, ctx: RequestContext, params: types.CallToolRequestParams) -> Mapping[str, Any]:
        self.start_upstreams()
        client = self.clients.of(ctx)
        try:
            with client.at_work():
                outcome = await self._outcome(ctx, params, client)
        except ToolError as error:
            outcome = ToolResult.failed(error)
        if isinstance(outcome, Question):
            return self._confirmers.input_required(outcome, client.state.key, ctx.protocol_version)
        return result_to_wire(params.name, outcome, self._settings.results.display, ctx.protocol_version)

    async def _outcome(
        self, ctx: RequestContext, params: types.CallToolRequestParams, client: Client
    ) -> ToolResult | Question:
        owner = self.pool.owner_of(params.name)
        # A client may know a tool from an earlier run: the first attempt to find it is waited for.
        if owner is None and not self.registry.knows(params.name):
            await self.custom_tools.wait_until_known()
        if owner is not None:
            await owner.known.wait()
            workspace = self._workspaces.workspace(client.roots, client.readable)
        else:
            workspace = await self._workspaces.workspace_of(client, ctx)
        progress = CallProgress(ctx.session)
        context = self._context(client, workspace, progress)
        mode = client.state.approval_mode
        call = FunctionCall(params.name, params.arguments or {})
        confirmer = self._confirmers.of(ctx, params, client.state.key)
        try:
            outcome = await self._flow.run(call, context, confirmer)
        except ToolNotRegisteredError as error:
            if owner is None or owner.is_connected:
                data = {"nearest": list(error.nearest)}
                message = NO_AGENTS if params.name == DELEGATING else error.message
                raise MCPError(code=types.INVALID_PARAMS, message=message, data=data) from None
            # A tool of an upstream that is down is not unknown, only not available.
            outcome = ToolResult.failed(owner.unavailable())
        await progress.settle()
        if client.state.approval_mode is not mode:
            await self._tell_tools_changed(list(client.sessions.values()))
        return outcome

    async def judge(self, call: FunctionCall) -> Judgement:
        """What would be decided on a call of a client over stdio that names no roots. Nothing is run.

        Raises:
            ToolError: The call cannot succeed, or nobody has a tool of this name.
        """
        state = ClientState(STDIO_KEY, self._settings.approval_mode)
        context = ToolContext(self._workspaces.workspace(ClientRoots()), self._limits, state)
        return await self._flow.judge(self.registry.get_tool(call.name), call.arguments, context)

    async def _context_of(self, ctx: RequestContext) -> ToolContext:
        """What a request for files acts in; the client's roots are waited for as for a call."""
        self.start_upstreams()
        client = self.clients.of(ctx)
        workspace = await self._workspaces.workspace_of(client, ctx)
        return self._context(client, workspace, CallProgress(ctx.session))

    def _context(self, client: Client, workspace: Workspace, progress: CallProgress) -> ToolContext:
        return ToolContext(
            workspace=workspace,
            limits=self._limits,
            client=client.state,
            services=self._services,
            media=self._settings.media,
            progress=progress,
        )


def _is_planning(client: Client) -> bool:
    """Whether a client is in plan mode, and can be told from others, so that it may leave it."""
    return client.state.approval_mode is ApprovalMode.PLAN and not client.state.is_anonymous


async def _tell_tools_changed(session: ServerSession) -> None:
    """Tell one session; one that does not read must not keep the others from hearing of it."""
    # One that has just ended needs no word either.
    with anyio.move_on_after(TELL_SECONDS), suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await session.send_tool_list_changed()
