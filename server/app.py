"""The composition root: everything is wired here, and follows clients and settings as they come and go."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from importlib import metadata
from itertools import chain
from typing import Literal

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning

from server.announcements import Announcements, ListenBus
from server.audit import AuditLog
from server.clients import STDIO_KEY, ClientTable, RequestContext, client_key
from server.consent.confirmers import ConfirmationOptions, Confirmers, let_malformed_answers_pass
from server.contexts import Contexts
from server.core_server import CoreServer, instructions
from server.custom_tools import CustomTools
from server.exchange import exchange_of
from server.exposure import ParameterHeaders
from server.live_settings import LiveSettings, has_other_rules
from server.requests.files import FileFeatures
from server.requests.prompts import AT
from server.requests.resources import MemoryResources
from server.requests.tools import ToolRequests
from server.roots import WorkspacePolicy, ask_roots, see_to_changes
from server.services import Commands, UrlAccess, audit_file, permission_policy, rule_keeper
from server.settings import SettingsReport
from server.upstreams.features import Own
from server.upstreams.proxy import Dependencies, Proxy
from tools.builtin.all_tools import builtin_tools
from tools.call.consent import Judgement
from tools.call.context import ClientState, Services
from tools.call.flow import Flow
from tools.call.registry import ToolRegistry
from tools.contract.results import FunctionCall
from tools.contract.threads import THREADS
from tools.permissions.rules import hidden_paths
from tools.planning.todo_lists import TodoLists

logger = logging.getLogger(__name__)

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
        self.registry = ToolRegistry()
        self._commands = Commands(report)
        web, memory, self._todos = UrlAccess(settings.web), settings.memory.for_tools(report.own_folder), TodoLists()
        built_in = builtin_tools(
            fetcher=web.fetcher,
            search=settings.web.search.for_tools(),
            opener=web.opener,
            memory=memory,
            todos=self._todos,
            agents=[agent.for_tools(name) for name, agent in settings.agents.items()],
            programs=self._commands.programs,
        )
        for tool in built_in if settings.tools.built_in else ():
            self.registry.register_tool(tool)
        self._parameter_headers = ParameterHeaders(self.registry)
        reserved = chain.from_iterable((tool.name, *tool.aliases) for tool in built_in)
        self.custom_tools = CustomTools(settings, self._commands, self.registry, reserved)
        self.clients = ClientTable(
            settings.approval_mode, settings.http.session_idle / 1000, self._commands.output_folder, self._forget
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
        self._bus = ListenBus()
        self._announcements = Announcements(self._bus, self.clients.sessions)
        self.proxy = self._build_proxy(served_over)
        self.pool = self.proxy.pool
        self.live = LiveSettings(report, self.registry, self._policy, self.pool, self._on_settings_changed)
        self._flow = Flow(self.registry, self._policy, rule_keeper(report), self._audit)
        self._tasks: TaskGroup | None = None
        self._is_started = False
        self._contexts = Contexts(
            clients=self.clients,
            workspaces=self._workspaces,
            limits=settings.limits.for_tools(),
            services=Services(self._commands.runner, self._commands.consented),
            media=settings.media,
            before=self.start_upstreams,
        )
        self.tools = ToolRequests(
            registry=self.registry,
            flow=self._flow,
            contexts=self._contexts,
            confirmers=self._confirmers,
            relay=self.proxy.relay,
            custom_tools=self.custom_tools,
            is_built_in=settings.tools.built_in,
            display=settings.results.display,
            listed=self._tell_headers,
            modes_changed=lambda sessions: self._announcements.tell("tools", sessions),
        )
        self._remembered = MemoryResources(memory, self._todos)
        self.server = self._build_server()
        self.registry.on_change(self._tools_changed)

    def _build_proxy(self, served_over: ServedOver) -> Proxy:
        return Proxy(
            self._report,
            Dependencies(
                registry=self.registry,
                served_over=served_over,
                key_of=lambda ctx: client_key(ctx) or "",
                own=Own(frozenset({AT}), has_resources=True) if self._settings.tools.built_in else Own(),
                why_denied=self._policy.why_server_not_offered,
                before=self._before,
                bus=self._bus,
                changed=lambda kind: self._announcements.note(kind, self._tasks),
            ),
        )

    def _build_server(self) -> CoreServer:
        with warnings.catch_warnings():
            # Roots are how handshake-era clients say which folders are open; the SDK warns of every use of them.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            server = CoreServer(
                "coretools-mcp",
                version=metadata.version("coretools-mcp"),
                title="Core tools",
                instructions=instructions(self._report),
                on_list_tools=self.tools.on_list,  # pyright: ignore[reportArgumentType] - wire mappings are accepted
                on_call_tool=self.tools.on_call,  # pyright: ignore[reportArgumentType]
                on_subscriptions_listen=ListenHandler(self._bus),
                on_roots_list_changed=self._on_roots_list_changed,
            )
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._on_initialized)
        server.has_upstreams = bool(self._report.upstreams)
        FileFeatures(
            self._flow,
            self._contexts.of,
            lambda ctx: self.clients.of(ctx).at_work(),
            self._confirmers,
            self._remembered,
        ).register(server)
        # Tracing of the SDK is a no-op without an exporter, and costs a twentieth of a small call.
        server.middleware.clear()
        server.middleware += [let_malformed_answers_pass, self.proxy.features, self.tools.answer_as_it_is]
        return server

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold what outlives a request: the upstreams' owner tasks and background questions."""
        async with anyio.create_task_group() as tasks:
            self._tasks, self._is_started = tasks, False
            try:
                yield
            finally:
                self._tasks = None
                self._announcements.stop()
                tasks.cancel_scope.cancel()
                await self._commands.aclose(self.clients.job_tables())
                with anyio.CancelScope(shield=True):
                    await THREADS.run(self._audit.close)

    def start_upstreams(self, ctx: RequestContext | None = None) -> None:
        """Start the upstreams and the discovery of custom tools, and follow the settings, once.

        Called when a client is really there: some start a server only to probe it.

        Args:
            ctx: The client's request; upstreams are told what the one client over stdio can do.
        """
        if self._tasks is not None and not self._is_started:
            self._is_started = True
            self.proxy.start(self._tasks, ctx)
            self.custom_tools.start(self._tasks)
            self.live.start(self._tasks)

    async def _on_settings_changed(self, before: SettingsReport, now: SettingsReport) -> None:
        self._commands.change(now.settings)
        if self._tasks is not None:
            self.custom_tools.change(now.settings, self._tasks)
        has_rules = has_other_rules(before.settings, now.settings)
        if has_rules or before.upstreams != now.upstreams:
            self.proxy.settings_changed()
        if has_rules:
            self._workspaces.rebuild()
            self._tools_changed()

    def _forget(self, state: ClientState) -> None:
        self._todos.forget(state.key)
        self.proxy.relay.forget(state.key)
        if self._tasks is not None:
            self._tasks.start_soon(self._commands.forget, state.key, state.jobs)

    def _tools_changed(self) -> None:
        self.tools.forget_listings()
        self._announcements.note("tools", self._tasks)

    def _tell_headers(self) -> None:
        # Until now the SDK came to the list before each call, so that none overtakes the first one.
        self.server.get_tool_input_schema = self._parameter_headers.schema

    async def _before(self, ctx: RequestContext) -> None:
        """Every request of a client that is really there begins with this."""
        self.start_upstreams(ctx)
        self.clients.of(ctx)

    async def _on_initialized(self, ctx: RequestContext, params: types.NotificationParams) -> None:
        del params
        client = self.clients.of(ctx)
        is_new = self.clients.follow(ctx)
        self.start_upstreams(ctx)
        if is_new and self._tasks is not None:
            self._tasks.start_soon(partial(self._workspaces.workspace_of, client, ctx, related=False))

    async def _on_roots_list_changed(self, ctx: RequestContext, params: types.NotificationParams | None) -> None:
        del params
        client = self.clients.of(ctx)

        async def take(ctx: RequestContext) -> None:
            await self.proxy.roots_changed(exchange_of(ctx, client.state.key))
            await ask_roots(client, ctx, related=False)

        await see_to_changes(client, ctx, take)

    async def judge(self, call: FunctionCall) -> Judgement:
        """What would be decided on a call of a client over stdio that names no roots. Nothing is run.

        Raises:
            ToolError: The call cannot succeed, or nobody has a tool of this name.
        """
        state = ClientState(STDIO_KEY, self._settings.approval_mode)
        context = self._contexts.bare(state)
        return await self._flow.judge(self.registry.get_tool(call.name), call.arguments, context)
