"""The composition root: it creates and connects all parts, and it reacts to changes in clients and settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.abc import TaskGroup

from server.administration.audit_log import AuditLog
from server.administration.server_controls import RunningServer
from server.administration.settings_reload import LiveSettings, has_other_rules
from server.clients.announcements import Announcements, ListenBus, ListenStreams, ListKind
from server.clients.client_request import Exchange, exchange_of
from server.clients.client_workspaces import WorkspacePolicy, follow_roots, learn_roots
from server.protocol.json_rpc import Json
from server.protocol.request_table import MODERN, RequestContext, RequestTable
from server.questions.client_confirmer import ConsentPolicy
from server.requests import call_contexts
from server.requests.progress_reports import report_waiting
from server.requests.prompts_and_resources import AT, READER, FileRequests, MemoryResources
from server.requests.recent_calls import RecentCalls
from server.requests.tool_requests import ToolRequests
from server.requests.tool_search import ToolSearch
from server.requests.tool_services import (
    Commands,
    CustomTools,
    LazyJournal,
    audit_file,
    page_fetcher,
    permission_policy,
    skill_folders,
)
from server.settings import SettingsReport
from server.settings.document_editor import SavedRules
from server.store.replica import Replica, lone_replica
from server.upstreams.catalog.published_names import SEARCH_NAMES
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.relay.relayed_results import LargeResults
from server.upstreams.resource_and_prompt_router import Dependencies, OwnOffer, ResourceAndPromptRouter
from tools.builtin.all_tools import builtin_tools
from tools.builtin.todo_write import TodoLists
from tools.builtin.web import WebSearchTool
from tools.call.base_tool import ClientState, Services
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.machine.threads import THREADS
from tools.permissions.permission_policy import ALL_RIGHTS, Rights
from tools.permissions.permission_rules import hidden_paths, rule_of_all_reading

if TYPE_CHECKING:
    from starlette.routing import Route

    from server.telemetry.observation import Observation

ServedOver = Literal["stdio", "network"]  # over stdio, there is one client; over the network, there may be many


class App:
    """One running server: its registry, clients, consent and upstreams. Create it inside a running event loop."""

    def __init__(
        self,
        report: SettingsReport,
        served_over: ServedOver,
        observation: Observation | None = None,
        replica: Replica | None = None,
        *,
        keeps_tmp: bool = True,  # whether a client's `/tmp` outlives a call
    ) -> None:
        self.replica = replica = replica or lone_replica()
        settings = report.settings
        self._tasks: TaskGroup | None = None
        self.metrics: Callable[[], Awaitable[str]] | None = None  # returns the current metrics; `None` if they are off
        self.on_http_refusal: Callable[[int], None] = lambda _: None  # called with the HTTP status of each refusal
        self.started = anyio.Event()  # set by `start_upstreams`
        self.registry = ToolRegistry()
        self.commands = Commands(report, keeps_tmp=keeps_tmp)
        self._fetcher, self._memory = page_fetcher(settings.web), settings.memory.for_tools(report.own_folder)
        self._todos = TodoLists()
        self.custom_tools = CustomTools(settings, self.commands, self.registry, self._add_builtin_tools(report))
        # The policy needs the built-in tools: a rule may name one by an older name, which the registry resolves.
        self._policy = permission_policy(report, self.registry)
        self.clients = call_contexts.ClientTable(
            settings.approval_mode,
            settings.http.session_idle / 1000,
            self.commands.output_folder,
            self.commands.scratch,
            on_new=self.start_upstreams,
            on_forget=self._forget,
            replica=replica.name if replica.shared_store is not None else "",
        )
        consent = settings.confirmation
        self._consent = ConsentPolicy(consent.when_unavailable, consent.timeout / 1000, consent.style, replica)
        self._journal = LazyJournal(report)
        self._audit = AuditLog(audit_file(report))
        self._audit.warn_of_roots(settings.workspace.roots)
        self._contexts = self._make_contexts(report)
        self._bus = ListenBus()
        self._announcements = Announcements(self._bus, self.clients.connections, replica)
        self.router = self._make_router(report, served_over, observation)
        self.pool = self.router.pool
        self.live = LiveSettings(report, self.registry, self._policy, self.pool, self._on_settings_changed)
        self._runner = self._make_runner(report)
        self.search = ToolSearch(settings.proxy.search, self.registry, self._policy, self.pool)
        self.tools = ToolRequests(
            registry=self.registry,
            runner=self._runner,
            clients=self.clients,
            contexts=self._contexts,
            consent=self._consent,
            router=self.router,
            search=self.search,
            custom_tools=self.custom_tools,
            is_built_in=settings.tools.built_in,
            display=settings.results.display,
            report=lambda: self.live.report,
            modes_changed=partial(self._announcements.notify, "tools"),
        )
        self.table, self.running_server = self._make_table(report, observation)
        self.table.instructions = self.tools.instructions(ALL_RIGHTS, report)
        self.registry.on_change(partial(self._list_changed, "tools"))

    def _add_builtin_tools(self, report: SettingsReport) -> list[str]:
        """Register this server's own tools, if the settings enable them; return the names that others may not use."""
        settings = report.settings
        built_in = builtin_tools(
            fetcher=self._fetcher,
            search=settings.web.search.for_tools(),
            memory=self._memory,
            todos=self._todos,
            agents=[agent.for_tools(name) for name, agent in settings.agents.items()],
            programs=self.commands.programs,
            undo=settings.undo.enabled,
            skills=skill_folders(report),
            code=lambda: self.commands.code(self._policy),
            has_language_servers=lambda: self.commands.has_language_servers,
        )
        for tool in built_in if settings.tools.built_in else ():
            self.registry.register_tool(tool)
        return [*SEARCH_NAMES, *chain.from_iterable((tool.name, *tool.aliases) for tool in built_in)]

    def _make_contexts(self, report: SettingsReport) -> call_contexts.Contexts:
        settings, policy = report.settings, self._policy
        return call_contexts.Contexts(
            workspaces=WorkspacePolicy(
                settings.workspace,
                lambda roots, rights: hidden_paths(policy.rules_of(rights), roots),
                lambda rights: rule_of_all_reading(policy.rules_of(rights)),
                [report.state_folder] if report.state_folder is not None else [],
            ),
            limits=settings.limits.for_tools(),
            services=Services(
                self.commands.runner,
                self.commands.consented,
                self._journal.open,
                self.commands.folders.forget_plan,
                lambda: self.commands.code_intelligence,
            ),
            media=settings.media,
            why_no_scratch=self.commands.why_no_scratch,
        )

    def _make_router(
        self, report: SettingsReport, served_over: ServedOver, observation: Observation | None
    ) -> ResourceAndPromptRouter:
        settings, clients = report.settings, self.clients

        def reads_files(rights: Rights) -> bool:
            tool = self.registry.find(READER)
            return tool is not None and tool.is_builtin and self._policy.why_not_offered(tool.traits, rights) is None

        dependencies = Dependencies(
            registry=self.registry,
            served_over=served_over,
            key_of=call_contexts.client_key,
            own=OwnOffer(frozenset({AT}), has_resources=True) if settings.tools.built_in else OwnOffer(),
            large_results=LargeResults(settings.limits.result_chars, self.commands.folders.folder, reads_files),
            why_denied=self._policy.why_server_not_offered,
            on_request=clients.find,
            bus=self._bus,
            on_change=self._list_changed,
            replica=self.replica,
            observer_of=None if observation is None else observation.observer_for,
            folders_of=lambda exchange: self._contexts.folders(
                None if exchange is None else clients.known(exchange.client_key), exchange
            ),
        )
        return ResourceAndPromptRouter(report, dependencies)

    def _make_runner(self, report: SettingsReport) -> ToolRunner:
        # Rules that people save go into the user's own settings file, if there is one.
        save_rules = SavedRules(report.user_file).save if report.user_file is not None else None
        runner = ToolRunner(self.registry, self._policy, save_rules, self._audit.note)
        if self.replica.shares_secrets:
            from server.clients.shared_grants import SharedGrants  # noqa: PLC0415 - loaded only if replicas share secrets

            runner.shared_grants = SharedGrants(
                self.replica,
                report.settings.http.session_idle / 1000,
                lambda: " ".join(sorted(f"{upstream.alias} {upstream.reach}" for upstream in self.pool.upstreams)),
            )
        return runner

    def _make_table(
        self, report: SettingsReport, observation: Observation | None
    ) -> tuple[RequestTable, RunningServer]:
        """Create the request handlers, and the object that shows this app to the dashboard and terminal commands."""
        settings, contexts, recent_calls = report.settings, self._contexts, RecentCalls()
        memory_resources = MemoryResources(self._memory, self._todos)
        table = RequestTable(self._capabilities)
        table.add("tools/list", self.tools.on_list)
        table.add("tools/call", self.tools.on_call)  # handles only the calls that `dispatch` does not run
        table.add("subscriptions/listen", ListenStreams(self._bus, call_contexts.client_key), MODERN)
        table.add_notification("notifications/initialized", self._on_initialized)
        table.add_notification("notifications/roots/list_changed", self._on_roots_list_changed)
        FileRequests(
            self._runner,
            lambda ctx: contexts.for_request(self.clients.find(ctx), ctx),
            self.clients.find,
            self._consent,
            memory_resources,
        ).register(table)
        table.middleware = [recent_calls, report_waiting, self.tools.dispatch, self.router]
        if settings.limits.calls_per_minute is not None or settings.limits.calls_at_once is not None:
            from server.requests.call_limits import CallLimits  # noqa: PLC0415 - loaded only if a limit is set

            table.middleware.insert(1, CallLimits(settings.limits, self.replica.shared_store))
        if observation is not None:
            observation.find_tool = self.registry.find
            if observation.metrics is not None:
                self.metrics = partial(observation.metrics.text, self.clients, self.router)
                self.on_http_refusal = observation.metrics.count_http_refusal
            table.middleware.insert(1, observation)
        running_server = RunningServer(
            live=self.live,
            clients=self.clients,
            contexts=contexts,
            runner=self._runner,
            questions=self._consent.pending,
            asks_at_dashboard=settings.confirmation.when_unavailable == "page",
            audit=self._audit,
            journal=self._journal,
            commands=self.commands,
            custom_tools=self.custom_tools,
            memory=memory_resources,
            recent_calls=recent_calls,
            on_switch=partial(self._list_changed, "tools"),
        )
        return table, running_server

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the tasks that outlive a single request, such as those that own the connections to upstreams."""
        store = self.replica.shared_store
        if store is not None:
            await store.start()
        if self.pool.approvals is not None:
            await self.pool.approvals.refresh()  # before any list is sent
        async with anyio.create_task_group() as tasks:
            self._tasks, self.started = tasks, anyio.Event()
            try:
                yield
            finally:
                self._tasks = None
                self._announcements.stop()
                tasks.cancel_scope.cancel()
                await self.commands.aclose(self.clients.job_tables())
                with anyio.CancelScope(shield=True):
                    await THREADS.run(self._audit.close)
                    await THREADS.run(self._journal.close)
                    if store is not None:
                        await store.aclose()

    @property
    def is_settled(self) -> bool:
        """Whether the server has tried at least once to connect to every upstream."""
        return self.pool.is_settled

    @property
    def pages(self) -> Sequence[Route]:
        """Pages that people open in a browser over the network, without a token."""
        logins = self.pool.logins
        return logins.pages.routes if logins is not None and logins.pages is not None else ()

    async def schema_with_headers(self, tool: str) -> Mapping[str, Any] | None:
        """Return a tool's schema if clients must repeat some of its arguments in HTTP headers (`x-mcp-header`)."""
        await self.pool.wait_for_first_list()
        registered_tool = self.registry.find(tool)
        if isinstance(registered_tool, DiscoveredMCPTool) and registered_tool.header_names:
            return registered_tool.parameter_schema
        return None

    def start_upstreams(self, ctx: RequestContext | None = None) -> None:
        """Start the upstreams and tool discovery, and begin to watch the settings. Only the first call has an effect.

        Over stdio, this is called once a real client has connected: some programs start a server only to probe it, and
        the upstreams must be told the client's capabilities. Over the network, it is called at startup.
        """
        if self._tasks is not None and not self.started.is_set():
            self.started.set()
            self.router.start(self._tasks, ctx)
            self.custom_tools.start(self._tasks)
            self._tasks.start_soon(self.live.follow, self._tasks, name="settings")
            if self.replica.shared_store is not None:
                self._tasks.start_soon(self._announcements.follow_replicas, name="replicas")

    async def _on_settings_changed(self, previous: SettingsReport, current: SettingsReport) -> None:
        self.commands.change(current.settings)
        if self._tasks is not None:
            self.custom_tools.change(current.settings, self._tasks)
        search = current.settings.web.search
        if search != previous.settings.web.search and self.tools.is_built_in:
            self.registry.replace_tool(WebSearchTool(search.for_tools(), lambda: self._fetcher().opener))
        has_rules = has_other_rules(previous.settings, current.settings)
        if has_rules:
            self._contexts.workspaces.cache.clear()  # the new rules may hide different files
        if has_rules or previous.upstreams != current.upstreams:
            self.router.settings_changed()
            self._list_changed("tools")
        self.table.instructions = self.tools.instructions(ALL_RIGHTS, current)

    def _forget(self, state: ClientState) -> None:
        self._todos.forget(state.key)
        self.router.relay.forget(state.key)
        if self._tasks is not None:
            self._tasks.start_soon(self.commands.forget, state.key, state.jobs)

    def _list_changed(self, kind: ListKind) -> None:
        if kind == "tools":
            self.tools.listings.clear()
            self.search.changed()
        # A change before the response to the first list request needs no notification: the response includes it.
        if not self.pool.is_recalling and (kind in self.pool.listed or self.pool.is_settled):
            self._announcements.schedule(kind, self._tasks)

    def _capabilities(self) -> Json:
        """Return the capabilities. With upstreams, declare all, because a client never learns of later additions."""
        if self.pool.upstreams:
            changes = {"listChanged": True}
            resources = {"subscribe": True, **changes}
            return {"tools": changes, "prompts": changes, "resources": resources, "completions": {}, "logging": {}}
        return self.table.own_capabilities()

    async def _on_initialized(self, ctx: RequestContext) -> None:
        client = self.clients.find(ctx)
        is_new = self.clients.follow(ctx)
        exchange = exchange_of(ctx, client.state.key).outside_request()
        asks_for_roots = self._contexts.workspaces.asks_for_roots and client.folders.roots is None
        if is_new and self._tasks is not None and asks_for_roots and exchange is not None:
            self._tasks.start_soon(self._learn_roots, client, exchange, ctx)

    async def _learn_roots(self, client: call_contexts.Client, exchange: Exchange, ctx: RequestContext) -> None:
        """Ask a client for its folders, because the tool list that it received may lack the skills in its folders."""
        roots = await learn_roots(client.folders, exchange)
        if roots is not None and roots.folders and (await self.tools.known_skills(client, ctx)).by_name:
            await self._announcements.notify("tools", [ctx.connection])

    async def _on_roots_list_changed(self, ctx: RequestContext) -> None:
        client = self.clients.find(ctx)

        async def on_roots_changed(ctx: RequestContext) -> None:
            exchange = exchange_of(ctx, client.state.key)
            await self.router.roots_changed(exchange)
            if (outside := exchange.outside_request()) is not None:
                await learn_roots(client.folders, outside)

        await follow_roots(client.folders, ctx, on_roots_changed)
