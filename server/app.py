"""The composition root: everything is wired here, and the protocol's requests are answered here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import metadata
from typing import Any, Literal

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.subscriptions import ToolsListChanged

from server.approval import Approval, ApprovalPolicy
from server.clients import Client, ClientTable, RequestContext
from server.exposure import complete, result_to_wire, tool_to_wire
from server.file_features import FileFeatures
from server.roots import WorkspacePolicy, ask_roots
from server.settings import SettingsReport
from server.upstreams.pool import UpstreamPool
from tools.builtins import builtin_tools
from tools.contract.confirmation import Question
from tools.contract.context import ToolContext
from tools.contract.errors import ToolNotRegisteredError
from tools.contract.result import FunctionCall, ToolResult
from tools.filesystem.workspace import Workspace
from tools.flow import Flow
from tools.permissions.policy import PermissionPolicy
from tools.registry import ToolRegistry

logger = logging.getLogger(__name__)

INSTRUCTIONS = (
    "Tools for the files of the workspace: list_directory, glob and grep_search find, read_file and read_many_files "
    "read, edit and write_file change. Paths may be absolute or relative to the first workspace folder. Large results "
    "are cut, and say how to get the rest. Changes may be shown to the user for consent first; a refused call had no "
    "effect and should not be repeated unchanged."
)

ServedOver = Literal["stdio", "network"]


class CoreServer(Server[dict[str, Any]]):
    """The SDK's server; what it announces is the same on every transport."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Announce that the tool list may change; over HTTP the SDK gives no other way to say so."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Announce what there is. For 2026-07-28 the SDK would promise every change that its stream can carry."""
        capabilities = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        if capabilities.prompts is not None:
            capabilities.prompts = types.PromptsCapability(list_changed=False)
        if capabilities.resources is not None:
            capabilities.resources = types.ResourcesCapability(subscribe=False, list_changed=False)
        return capabilities


class App:
    """One running server: registry, clients, consent, upstreams, and the handlers that join them.

    Args:
        report: The merged settings, and which upstreams are to be used.
        served_over: Decides who answers where nobody can be asked: the client's own dialog on stdio, nobody else.
    """

    def __init__(self, report: SettingsReport, served_over: ServedOver) -> None:
        self._report = report
        self._settings = settings = report.settings
        self._limits = settings.limits.for_tools()
        self.registry = ToolRegistry()
        for tool in builtin_tools():
            self.registry.register_tool(tool)
        self.registry.on_change(self._tools_changed)
        self.clients = ClientTable(settings.approval_mode, settings.http.session_idle / 1000)
        fallback: Literal["client", "deny"] = "client" if served_over == "stdio" else "deny"
        self._approval = Approval(
            ApprovalPolicy(
                when_unavailable=settings.confirmation.when_unavailable or fallback,
                timeout_seconds=settings.confirmation.timeout / 1000,
                style=settings.confirmation.style,
            )
        )
        self._workspaces = WorkspacePolicy(
            settings.workspace.roots,
            intersect=settings.workspace.client_roots == "intersect",
            respect_git_ignore=settings.workspace.respect_git_ignore,
            respect_agent_ignore=settings.workspace.respect_agent_ignore,
        )
        self.pool = UpstreamPool(report.upstreams, self.registry, settings.proxy.first_list_wait / 1000)
        self._flow = Flow(self.registry, PermissionPolicy())
        self._tasks: TaskGroup | None = None
        self._bus = InMemorySubscriptionBus()
        self._listing: dict[str, Any] | None = None
        self.server = self._build_server()

    def _build_server(self) -> CoreServer:
        with warnings.catch_warnings():
            # Roots are how handshake-era clients say which folders are open; the SDK warns of every use of them.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            server = CoreServer(
                "coretools-mcp",
                version=metadata.version("coretools-mcp"),
                title="Core tools",
                instructions=_instructions(self._report),
                on_list_tools=self._on_list_tools,  # pyright: ignore[reportArgumentType] - wire mappings are accepted
                on_call_tool=self._on_call_tool,  # pyright: ignore[reportArgumentType]
                on_subscriptions_listen=ListenHandler(self._bus),
                on_roots_list_changed=self._on_roots_list_changed,
            )
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._on_initialized)
        FileFeatures(self._flow, self._context_of, self._approval).register(server)
        # Tracing of the SDK is a no-op without an exporter, and costs a twentieth of a small call.
        server.middleware.clear()
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

    def start_upstreams(self) -> None:
        """Start the upstreams, once. Called when a client is really there: some start a server only to probe it."""
        if self._tasks is not None:
            self.pool.start(self._tasks)

    def _tools_changed(self) -> None:
        self._listing = None
        if self._tasks is not None:
            self._tasks.start_soon(self._tell_tools_changed)

    async def _tell_tools_changed(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in self.clients.sessions():
            await session.send_tool_list_changed()

    async def _on_initialized(self, ctx: RequestContext, params: types.NotificationParams) -> None:
        del params
        client = self.clients.of(ctx)
        client.session = ctx.session
        self.start_upstreams()
        if self._workspaces.follows_client and self._tasks is not None:
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
        if self._listing is None:
            tools = [tool_to_wire(tool) for tool in self.registry.get_all_tools()]
            # It may change at any time, and depends on what the operator configured.
            self._listing = {"tools": tools, "ttlMs": 0, "cacheScope": "private"}
        return complete(self._listing, ctx.protocol_version)

    async def _on_call_tool(self, ctx: RequestContext, params: types.CallToolRequestParams) -> Mapping[str, Any]:
        self.start_upstreams()
        client = self.clients.of(ctx)
        owner = self.pool.owner_of(params.name)
        if owner is not None:
            # A client may know the tool from an earlier run: the first attempt to connect is waited for.
            await owner.known.wait()
            workspace = self._workspaces.workspace(client.roots)
        else:
            workspace = await self._workspaces.workspace_of(client, ctx)
        context = self._context(ctx, client, workspace)
        call = FunctionCall(params.name, params.arguments or {})
        confirmer = self._approval.confirmer(ctx, params, client.state.key)
        try:
            outcome = await self._flow.run(call, context, confirmer)
        except ToolNotRegisteredError as error:
            if owner is None or owner.is_connected:
                data = {"nearest": list(error.nearest)}
                raise MCPError(code=types.INVALID_PARAMS, message=error.message, data=data) from None
            # A tool of an upstream that is down is not unknown, only not available.
            outcome = ToolResult.failed(owner.unavailable())
        if isinstance(outcome, Question):
            return self._approval.input_required(outcome, client.state.key, ctx.protocol_version)
        return result_to_wire(params.name, outcome, self._settings.results.display, ctx.protocol_version)

    async def _context_of(self, ctx: RequestContext) -> ToolContext:
        """What a request for files acts in; the client's roots are waited for as for a call."""
        self.start_upstreams()
        client = self.clients.of(ctx)
        return self._context(ctx, client, await self._workspaces.workspace_of(client, ctx))

    def _context(self, ctx: RequestContext, client: Client, workspace: Workspace) -> ToolContext:
        return ToolContext(
            workspace=workspace,
            limits=self._limits,
            client=client.state,
            media=self._settings.media,
            progress=_progress_of(ctx),
        )


def _instructions(report: SettingsReport) -> str:
    """Our own text, and for each server behind us what the operator says it is for."""
    lines = [f"{alias}__*: {entry.description}" for alias, entry in report.upstreams.items() if entry.description]
    return "\n".join([INSTRUCTIONS, *(["Tools of other servers:", *lines] if lines else [])])


def _progress_of(ctx: RequestContext) -> Any:
    async def progress(done: float, total: float | None, message: str) -> None:
        await ctx.session.report_progress(done, total, message)

    return progress
