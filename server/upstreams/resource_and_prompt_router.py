"""Routes clients' requests to upstreams: for resources, prompts, skills, tasks, completion and log levels.

Tool calls take another path. The router is a middleware. It passes requests for this server's own items, and for
unknown prompts, to the next handler. An unknown URI is an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import anyio
from anyio.abc import TaskGroup

from server.clients.announcements import ListenBus, ListKind
from server.clients.client_request import LEVELS, WELCOMES, Exchange, exchange_of, rights_of
from server.protocol.json_rpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Json,
    MCPError,
    as_list,
    as_mapping,
)
from server.protocol.request_table import NEVER_CACHED, CallNext, RequestContext
from server.protocol.revisions import SUBSCRIPTION_ID_META_KEY, decode_header
from server.settings import SettingsReport
from server.settings.server_models import UpstreamSettings
from server.store.replica import Replica
from server.store.shared_store import StoreUnavailableError
from server.upstreams.catalog.lock_file import read_lock
from server.upstreams.catalog.published_names import SEARCH_NAMES, NameList, NameMap, name_map
from server.upstreams.catalog.stored_lists import StoredLists
from server.upstreams.connections.connection import Audience, FoldersOf, SessionKey, Upstream
from server.upstreams.connections.pool import LoginOptions, UpstreamPool, bounded_gather
from server.upstreams.relay.relayed_results import RESULTS_URI, LargeResults, protocol_error, protocol_error_for
from server.upstreams.relay.request_relay import Relay
from server.upstreams.relay.upstream_resources import (
    ResourceRoutes,
    Route,
    SharedUriError,
    Watching,
    scheme_of,
    without_alias,
)
from server.upstreams.relay.upstream_tasks import TASKS_REQUIRED, knows_tasks
from server.upstreams.session.list_reader import (
    PROMPTS,
    RESOURCES,
    SKILLS,
    TEMPLATES,
    IsThisServerError,
    OfferedKind,
    prompt_with_visible_texts,
    read_list,
)
from server.upstreams.session.protocol_era import ANNOUNCED_EXTENSIONS, DECLARED_EXTENSIONS, TASKS
from server.upstreams.session.protocol_era import SKILLS as SKILLS_EXTENSION
from server.upstreams.session.upstream_session import UpstreamSession
from server.upstreams.wire.json_rpc_channel import ConnectionLostError, Observer, RelayError, UpstreamError
from server.upstreams.wire.origin_meta import list_meta, listed_for, with_origin
from tools.call.tool_registry import ToolRegistry
from tools.contract.display import visible, visible_line
from tools.contract.tool_errors import ToolError
from tools.permissions.permission_policy import ALL_RIGHTS, Rights
from tools.permissions.tool_names import BETWEEN

logger = logging.getLogger(__name__)

EVERYTHING: Json = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"context": {}, "tools": {}},
    "roots": {"listChanged": True},
    "extensions": DECLARED_EXTENSIONS,
}
"""The capabilities that a listing session declares if it is not for a single client: all of them, because some servers
list fewer items to clients with fewer capabilities.
"""

STATUS_URI = "coretools://upstreams"

STATUS: Json = {
    "uri": STATUS_URI,
    "name": "upstreams",
    "title": "Upstream servers",
    "description": "The state of each server: its transport, what it offers, its latest error, and what is not listed.",
    "mimeType": "application/json",
}

OWN_SCHEMES = frozenset({"file", "memory", "todo", "coretools"})  # the schemes of this server's own resources
FIRST_SKILLS_SECONDS = 0.5  # time limit for listing the skills of upstreams whose skills have never been requested
SKILLS_SECONDS = 5.0  # time limit for listing all upstreams' skills
SILENT_SECONDS = 60.0  # how long not to send `skills/list` to a server that exceeded `SKILLS_SECONDS`
MAX_NAMED = 5  # maximum number of servers named in an error

Result = TypeVar("Result")

_HANDSHAKE_METHODS = frozenset({"resources/subscribe", "resources/unsubscribe", "logging/setLevel"})
_TASK_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_LISTS = frozenset({"resources/list", "resources/templates/list", "prompts/list", "skills/list"})
_ITEMS = frozenset({"resources/read", "resources/directory/read", "prompts/get", "skills/get"})
_METHODS = _HANDSHAKE_METHODS | _TASK_METHODS | _LISTS | _ITEMS | {"completion/complete", "subscriptions/listen"}


@dataclass(frozen=True, slots=True)
class OwnOffer:
    """This server's own prompts, and whether it has resources."""

    prompts: frozenset[str] = frozenset()
    has_resources: bool = False

    def has(self, uri: str) -> bool:
        """Return whether this server itself serves a URI or template; if so, no upstream is asked for it."""
        return self.has_resources and scheme_of(uri) in OWN_SCHEMES


@dataclass(frozen=True, slots=True)
class Dependencies:
    registry: ToolRegistry  # where tools are published
    served_over: Literal["stdio", "network"]  # over stdio there is one client; over the network there may be many
    key_of: Callable[[RequestContext], str]  # returns a request's `ClientState.key`
    own: OwnOffer  # this server's own items
    large_results: LargeResults  # stores results that are too long for a conversation
    # returns why an upstream is hidden from clients with these rights; empty if it is visible
    why_denied: Callable[[str, Rights], str]
    on_request: Callable[[RequestContext], object]  # called before each request; the first call starts the upstreams
    bus: ListenBus  # reaches 2026-07-28 clients that listen for changes
    on_change: Callable[[ListKind], None]  # called when a list has changed, or an upstream announces a change
    replica: Replica  # provides the keys that protect the state that clients send back
    observer_of: Callable[[str, UpstreamSettings], Observer] | None  # creates the observer of requests to upstreams
    folders_of: FoldersOf  # returns the folders for upstream programs: their working folder and roots


def _login_options(report: SettingsReport, dependencies: Dependencies) -> LoginOptions | None:
    settings, folder, replica = report.settings, report.state_folder, dependencies.replica
    if folder is None and not replica.shares_secrets:
        return None
    is_network = dependencies.served_over == "network"
    pages, public_url = None, settings.http.public_url
    if is_network and public_url is not None:
        from server.upstreams.login.connect_pages import ConnectPages  # noqa: PLC0415 - rarely needed

        pages = ConnectPages(public_url, replica.place if replica.shares_secrets else "")
    return LoginOptions(
        replica,
        folder,
        settings.proxy.token_storage,
        settings.proxy.login_port,
        report.command_options,
        has_principals=is_network and (len(settings.http.tokens) > 1 or settings.http.oauth.is_configured),
        is_local=not is_network or settings.http.is_loopback,
        pages=pages,
    )


class ResourceAndPromptRouter:
    def __init__(self, report: SettingsReport, dependencies: Dependencies) -> None:
        settings = report.settings
        self._dependencies = dependencies
        self._own_offer = dependencies.own
        self._name_budget = settings.proxy.name_budget
        self._question_seconds = settings.confirmation.timeout / 1000
        self._denial_reasons: Mapping[str, str] | None = None
        self._routes: ResourceRoutes | None = None
        # Maps each session to the time at which listing its skills last timed out
        self._timed_out_at: WeakKeyDictionary[UpstreamSession, float] = WeakKeyDictionary()
        self._apps: Mapping[tuple[str, str], str] = {}  # `ResourceRoutes.apps`, as last computed
        self._prompts: NameMap | None = None
        self.pool = UpstreamPool(
            report.upstreams,
            dependencies.registry,
            settings.proxy.first_list_wait / 1000,
            self._name_budget,
            lambda upstream: partial(self.relay.call, upstream),
            on_offer=self._on_offer,
            on_updated=self._on_updated,
            left_out=report.left_out,
            logins=_login_options(report, dependencies),
            reserved_names=SEARCH_NAMES if settings.proxy.search != "off" else (),
            by_proxy=settings.proxy.environment_proxies,
            waits_again="first_list_wait" in settings.proxy.model_fields_set,
        )
        self.pool.written = report.written
        lock = read_lock(report.lock, report.command_options)
        self.pool.catalog.command_options = report.command_options
        self.pool.catalog.use_lock(lock)
        if dependencies.replica.shares_secrets:
            from server.upstreams.catalog.shared_approvals import SharedApprovals  # noqa: PLC0415 - needed only with replicas

            self.pool.approvals = SharedApprovals(dependencies.replica, lock, self.pool.apply_lock)
            self.pool.catalog.approves_in_file = False
            dependencies.bus.subscribe(self.pool.approvals.on_change)
        folder = report.state_folder
        self._stored_lists = StoredLists(folder) if folder is not None and settings.proxy.catalogue else None
        self.relay = Relay(
            self.pool,
            self._question_seconds,
            self.published_uri,
            dependencies.why_denied,
            dependencies.large_results,
            dependencies.replica,
        )
        self.watching = Watching(self.relay, dependencies.bus)

    def start(self, tasks: TaskGroup, ctx: RequestContext | None) -> None:
        """Start the upstreams. Call this only once. `ctx` is the client's request that led to the start, if any."""
        if self.pool.approvals is not None:
            tasks.start_soon(self.pool.approvals.follow, name="approvals")
        has_one_client = self._dependencies.served_over == "stdio"
        client = exchange_of(ctx, self._dependencies.key_of(ctx)) if has_one_client and ctx is not None else None
        # A terminal command has no client. It prints the current state, so it does not use lists from the last run.
        stored_lists = self._stored_lists if client is not None or not has_one_client else None
        self.pool.start(
            tasks,
            Audience(
                capabilities=EVERYTHING if client is None else client.capabilities,
                client=None if client is None else client.outside_request(),
                is_one=has_one_client,
                is_modern=client is None or client.is_modern,
                question_seconds=self._question_seconds,
                observer_of=self._dependencies.observer_of,
                folders_of=self._dependencies.folders_of,
                why_denied=self._dependencies.why_denied,
            ),
            stored_lists,
        )

    async def roots_changed(self, exchange: Exchange) -> None:

        async def tell(session: UpstreamSession) -> None:
            with suppress(ConnectionLostError):
                await session.channel.notify("notifications/roots/list_changed")

        sessions = [session for session in self.pool.sessions_of(exchange) if not session.era.is_modern]
        if self.pool.tasks is not None and sessions:
            await bounded_gather(self.pool.tasks, [partial(tell, session) for session in sessions])

    def settings_changed(self) -> None:
        """Record that the servers, or the rules about them, have changed."""
        self._denial_reasons = self._routes = self._prompts = None
        self._dependencies.on_change("prompts")
        self._dependencies.on_change("resources")

    def _on_offer(self, kind: OfferedKind, is_announced: bool) -> None:
        self._denial_reasons = self._routes = self._prompts = None
        if is_announced:
            self._dependencies.on_change(kind.capability)
        # Tools that are already listed may now need different URIs for their apps.
        if kind in (RESOURCES, TEMPLATES) and (previous_apps := self._apps) and self.routes.apps != previous_apps:
            self._dependencies.on_change("tools")

    def _on_updated(self, upstream: Upstream, uri: str, session_key: SessionKey | None) -> None:
        if upstream.alias not in self.denial_reasons:
            self.watching.updated(upstream, uri, session_key)

    def published_uri(self, upstream: Upstream, uri: str) -> str:
        return self.routes.published_uri(upstream, uri)

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        method = ctx.method
        if method in WELCOMES and self.pool.upstreams:
            # Declare the extensions even if no upstream has them yet, because an upstream may add skills later without
            # a notification.
            welcome = as_mapping(await call_next(ctx))
            extensions = dict(ANNOUNCED_EXTENSIONS)
            if method != "server/discover" or not self._may_have_tasks:
                del extensions[TASKS]
            return {**welcome, "capabilities": {**as_mapping(welcome.get("capabilities")), "extensions": extensions}}
        other_era_methods = _HANDSHAKE_METHODS if ctx.connection.is_modern else _TASK_METHODS
        if (
            method not in _METHODS
            or method in other_era_methods
            or not self.pool.upstreams
            or not ctx.connection.is_open
        ):
            return await call_next(ctx)
        self._dependencies.on_request(ctx)
        if method in _TASK_METHODS:
            return await self._task(ctx)
        await self.pool.wait_for_first_list()
        match method:
            case "resources/list" | "resources/templates/list" | "prompts/list":
                await self.pool.before_list(method.partition("/")[0])
                return await self._list(ctx, call_next)
            case "resources/read":
                return await self._read(ctx, call_next)
            case "skills/list":
                return _list_result(ctx, SKILLS, await self.skills(ctx, is_fresh=True))
            case "skills/get" | "resources/directory/read":
                uri = as_mapping(ctx.params).get("uri")
                route = self._route(ctx, uri)
                if route is None or not self._supports(route.upstream, method):
                    return await self._call_next_or_raise(ctx, call_next, uri)
                return await self._forward(ctx, route.upstream, {"uri": route.uri})
            case "prompts/get":
                return await self._get_prompt(ctx, call_next)
            case "completion/complete":
                ref = as_mapping(as_mapping(ctx.params).get("ref"))
                if isinstance(uri := ref.get("uri"), str):
                    if (route := await self._find_or_wait(partial(self._route, ctx), uri)) is not None:
                        return await self._complete(ctx, route.upstream, {**ref, "uri": route.uri})
                elif (prompt := await self._find_or_wait(self._prompt, ref.get("name"))) is not None:
                    return await self._complete(ctx, prompt[0], {**ref, "name": prompt[1]})
                return await call_next(ctx)
            case "subscriptions/listen":
                return await self._listen(ctx, call_next)
            case "logging/setLevel":
                level = as_mapping(ctx.params).get("level")
                if level not in LEVELS:
                    raise MCPError(INVALID_PARAMS, f"The level must be one of {', '.join(LEVELS)}.")
                if self.pool.tasks is not None:
                    await self.relay.set_level(str(level), await self._exchange(ctx), self.pool.tasks)
                return {}
            case _:
                return await self._subscribe(ctx, call_next)

    async def _read(self, ctx: RequestContext, call_next: CallNext) -> Any:
        uri = as_mapping(ctx.params).get("uri")
        if uri == STATUS_URI and self._own_offer.has(STATUS_URI):
            # The report contains text from the servers, so mark invisible characters in it.
            report = [status for status in self.pool.report() if self._is_permitted(status["alias"], ctx)]
            text = visible(json.dumps({"upstreams": report}, ensure_ascii=False, indent=2))
            return {"contents": [{"uri": STATUS_URI, "mimeType": STATUS["mimeType"], "text": text}]}
        if isinstance(uri, str) and uri.startswith(RESULTS_URI):
            contents = await self._dependencies.large_results.read(uri, self._dependencies.key_of(ctx))
            if contents is not None:
                return contents
        route = await self._find_or_wait(partial(self._route, ctx), uri)
        if route is None:
            return await self._call_next_or_raise(ctx, call_next, uri)
        return await self._forward(ctx, route.upstream, {"uri": route.uri})

    async def _get_prompt(self, ctx: RequestContext, call_next: CallNext) -> Any:
        prompt = await self._find_or_wait(self._prompt, as_mapping(ctx.params).get("name"))
        if prompt is None:
            return await call_next(ctx)
        upstream, name = prompt
        self._check_permitted(upstream, ctx)
        _check_prompt_arguments(upstream, name, as_mapping(ctx.params).get("arguments"))
        return await self._forward(ctx, upstream, {"name": name})

    async def _listen(self, ctx: RequestContext, call_next: CallNext) -> Any:
        """Handle `subscriptions/listen`: send changes to a client of the 2026-07-28 revision."""
        filters = as_mapping(as_mapping(ctx.params).get("notifications"))
        names = as_list(filters.get("taskIds"))
        exchange = await self._exchange(ctx)
        routes: list[Route] = []
        for uri in as_list(filters.get("resourceSubscriptions")):
            try:
                route = self._route(ctx, uri)
            except MCPError as error:
                logger.info("a client cannot watch a resource: %s", visible_line(error.message))
            else:
                # Omit unknown URIs: the acknowledgement names only what the stream reports.
                if route is not None and self._is_permitted(route.upstream.alias, ctx):
                    routes.append(route)
        async with self.watching.watched(routes, exchange) as uris:
            with self._dependencies.bus.stream(exchange, uris):
                if not names:
                    return await call_next(ctx)
                if not knows_tasks(exchange):
                    raise protocol_error(TASKS_REQUIRED)
                async with self.relay.tasks.listen(names, ctx, exchange) as listening_ctx:
                    return await call_next(listening_ctx)
        # Reached only when an upstream has ended its stream.
        result: Json = {"_meta": {SUBSCRIPTION_ID_META_KEY: ctx.request_id}}
        return result

    async def _task(self, ctx: RequestContext) -> Json:
        exchange = await self._exchange(ctx)
        # The transport checks the Mcp-Name header only for core requests, and tasks are an extension.
        name, request = exchange.params.get("taskId"), ctx.http_request
        if request is not None and decode_header(request.headers.get("mcp-name")) != name:
            raise MCPError(HEADER_MISMATCH, "The Mcp-Name header differs from the taskId of the request.")
        if not knows_tasks(exchange):
            raise protocol_error(TASKS_REQUIRED)
        return await self.relay.tasks.request(ctx.method, exchange)

    @property
    def _may_have_tasks(self) -> bool:
        """Whether an upstream supports tasks, or may do so because its first connection attempt is still running."""
        for upstream in self.pool.upstreams:
            era = upstream.era
            if not upstream.tried.is_set() or (era and era.is_modern and era.announces("extensions", TASKS)):
                return True
        return False

    async def _exchange(self, ctx: RequestContext) -> Exchange:
        try:
            return await self.relay.resumed(ctx.method, exchange_of(ctx, self._dependencies.key_of(ctx)))
        except StoreUnavailableError as error:
            raise MCPError(INTERNAL_ERROR, error.message, {"type": error.code.value}) from None

    async def _list(self, ctx: RequestContext, call_next: CallNext) -> Json:
        match ctx.method:
            case "resources/list":
                kind, published_items = RESOURCES, self.routes.resources
            case "resources/templates/list":
                kind, published_items = TEMPLATES, self.routes.templates
            case _:
                kind = PROMPTS
                prompts: dict[tuple[str, str], Json] = {
                    (upstream.alias, prompt["name"]): prompt
                    for upstream in self._permitted_upstreams
                    for prompt in upstream.offer.items(PROMPTS)
                }
                published_items = [
                    (alias, with_origin({**prompt_with_visible_texts(prompt), "name": name}, alias))
                    for name, (alias, own_name) in self.prompts.published.items()
                    if (prompt := prompts.get((alias, own_name))) is not None
                ]
        upstream_items = [item for alias, item in published_items if self._is_permitted(alias, ctx)]
        if kind is RESOURCES and self._own_offer.has_resources:
            upstream_items.insert(0, STATUS)
        own_items: list[Json] = []
        try:
            own_items = as_mapping(await call_next(ctx)).get(kind.field, [])
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
        return _list_result(ctx, kind, [*own_items, *upstream_items])

    async def skills(self, ctx: RequestContext, *, is_fresh: bool) -> list[Json]:
        """Return the skills of all upstreams for a client, without their files.

        Upstreams do not announce changes to their skills, so with `is_fresh`, each list is requested again, except from
        upstreams that recently timed out. Otherwise, only lists that have never been requested are requested, with a
        short time limit. If an upstream exceeds the limit, its last known skills are returned.
        """

        async def read(upstream: Upstream, session: UpstreamSession) -> None:
            try:
                upstream.offer.lists[SKILLS.field] = await read_list(session, SKILLS, upstream.offer)
            except (RelayError, IsThisServerError):
                logger.warning("upstream %s: skills/list failed", upstream.alias)
            pending_sessions.discard(session)

        pending_sessions: set[UpstreamSession] = set()
        with anyio.move_on_after(SKILLS_SECONDS if is_fresh else FIRST_SKILLS_SECONDS) as scope:
            async with anyio.create_task_group() as tasks:
                for upstream in self._permitted_upstreams:
                    session, is_known = upstream.live_session, SKILLS.field in upstream.offer.lists
                    if session is None or (is_known and not is_fresh):
                        continue
                    if monotonic() < self._timed_out_at.get(session, -SILENT_SECONDS) + SILENT_SECONDS:
                        continue
                    if self._supports(upstream, "skills/list"):
                        # Record an empty list first, so that without `is_fresh`, an upstream that does not respond is
                        # asked only once.
                        upstream.offer.lists.setdefault(SKILLS.field, [])
                        pending_sessions.add(session)
                        tasks.start_soon(read, upstream, session)
                    else:
                        upstream.offer.lists.pop(SKILLS.field, None)
        if is_fresh and scope.cancelled_caught:
            self._timed_out_at.update(dict.fromkeys(pending_sessions, monotonic()))
        self._routes = None
        return [
            with_origin(self.routes.published_skill(upstream, skill), upstream.alias)
            for upstream in self._permitted_upstreams
            for skill in upstream.offer.items(SKILLS)
            if self._is_permitted(upstream.alias, ctx)
        ]

    def _supports(self, upstream: Upstream, method: str) -> bool:
        """Return whether an upstream supports a method for skills or folders.

        An unavailable upstream counts as supporting the method, so that the request fails with the reason.
        """
        session = upstream.live_session
        if session is None:
            return True
        setting = ("directoryRead",) if method == "resources/directory/read" else ()
        return session.era.announces("extensions", SKILLS_EXTENSION, *setting)

    async def _call_next_or_raise(self, ctx: RequestContext, call_next: CallNext, uri: Any) -> Any:
        if not isinstance(uri, str) or self._own_offer.has(uri):
            try:
                return await call_next(ctx)
            except MCPError as error:
                if error.code != METHOD_NOT_FOUND or not isinstance(uri, str):
                    raise
        message = (
            "No server has a resource with this URI; resources/list and resources/templates/list show the available "
            "ones."
        )
        raise MCPError(INVALID_PARAMS, message, {"uri": uri})

    async def _forward(self, ctx: RequestContext, upstream: Upstream, params: Json) -> Json:
        self._check_permitted(upstream, ctx)
        await self.pool.until_live(upstream)
        result = await self.relay.forward(upstream, ctx.method, params, await self._exchange(ctx))
        if ctx.method == "skills/get":
            skill = self.routes.published_skill(upstream, as_mapping(result.get("skill")))
            result = {**result, "skill": with_origin(skill, upstream.alias)}
        return result

    async def _complete(self, ctx: RequestContext, upstream: Upstream, ref: Json) -> Json:
        try:
            return await self._forward(ctx, upstream, {"ref": ref})
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
        # This server declares completion because other upstreams may have it.
        return {"completion": {"values": []}}

    async def _subscribe(self, ctx: RequestContext, call_next: CallNext) -> Json:
        """Subscribe or unsubscribe a handshake-era client."""
        uri = as_mapping(ctx.params).get("uri")
        route = await self._find_or_wait(partial(self._route, ctx), uri)
        if route is None:
            return await self._call_next_or_raise(ctx, call_next, uri)
        self._check_permitted(route.upstream, ctx)
        exchange = await self._exchange(ctx)
        await self.pool.until_live(route.upstream)
        try:
            if ctx.method == "resources/subscribe":
                await self.watching.subscribe(route, exchange)
            else:
                self.watching.unsubscribe(route, exchange)
        except (RelayError, ToolError, TimeoutError) as error:
            if isinstance(error, UpstreamError) and error.code == METHOD_NOT_FOUND:
                message = f"The server {route.upstream.alias} does not support subscriptions to resources."
                raise MCPError(INVALID_PARAMS, message, {"uri": uri}) from None
            raise protocol_error_for(error, route.upstream.alias, exchange) from None
        return {}

    async def _find_or_wait(self, find: Callable[[Any], Result | None], name: Any) -> Result | None:
        """Look up a name; if it is unknown, wait until the servers have sent their lists, and look it up again."""
        result = find(name)
        if (
            result is None
            and isinstance(name, str)
            and not (self._own_offer.has(name) or name in self._own_offer.prompts)
        ):
            await self.pool.wait_for_first_list(is_live=True)
            result = find(name)
        return result

    def _route(self, ctx: RequestContext, uri: Any) -> Route | None:
        """Find an upstream's resource; raises `MCPError` if the URI is ambiguous, or the upstream is denied by a rule.

        If several upstreams could have the URI, only those that the client may use are candidates.
        """
        if not isinstance(uri, str):
            return None
        if not (self._own_offer.has(uri) or uri in self.routes.by_uri):
            self._refuse_denied(without_alias(uri)[0], uri, RESOURCES, TEMPLATES)
        try:
            return self.routes.find(uri)
        except SharedUriError as error:
            open_names = [name for name in error.names if self._is_permitted(without_alias(name)[0], ctx)]
            if not open_names[1:]:
                return self.routes.find((open_names or error.names)[0])
            names = open_names[:MAX_NAMED]
            message = (
                "More than one server could have this URI, so none of them received the request. Use one of these "
                f"URIs: {' or '.join(visible_line(name) for name in names)}."
            )
            raise MCPError(INVALID_PARAMS, message, {"uri": uri, "names": names}) from None

    def _prompt(self, name: Any) -> tuple[Upstream, str] | None:
        origin = self.prompts.find(name) if isinstance(name, str) else None
        if origin is None:
            if isinstance(name, str) and name not in self._own_offer.prompts:
                self._refuse_denied(name.partition(BETWEEN)[0], name, PROMPTS)
            return None
        upstream = self.pool.by_alias.get(origin.alias)
        return None if upstream is None else (upstream, origin.name)

    def _refuse_denied(self, alias: str, name: str, *kinds: OfferedKind) -> None:
        """Raise `MCPError` if a denied upstream has the alias or lists the name, and no permitted one has the alias."""
        if alias in self.pool.by_alias and alias not in self.denial_reasons:
            return
        for denied_alias, reason in self.denial_reasons.items():
            upstream = self.pool.by_alias.get(denied_alias)
            listed_names = [item[kind.key] for kind in kinds for item in upstream.offer.items(kind)] if upstream else []
            if denied_alias == alias or name in listed_names:
                raise MCPError(INVALID_PARAMS, f"{reason} Continue without it; the operator can change the rule.")

    def _is_permitted(self, alias: str, ctx: RequestContext) -> bool:
        rights = rights_of(ctx)
        return rights is ALL_RIGHTS or not self._dependencies.why_denied(alias, rights)

    def _check_permitted(self, upstream: Upstream, ctx: RequestContext) -> None:
        if not self._is_permitted(upstream.alias, ctx):
            reason = self._dependencies.why_denied(upstream.alias, rights_of(ctx))
            raise MCPError(INVALID_PARAMS, f"{reason} Continue without it, or tell the user.")

    @property
    def denial_reasons(self) -> Mapping[str, str]:
        if self._denial_reasons is None:
            why_denied = self._dependencies.why_denied
            reasons = ((upstream.alias, why_denied(upstream.alias, ALL_RIGHTS)) for upstream in self.pool.upstreams)
            self._denial_reasons = {alias: reason for alias, reason in reasons if reason}
        return self._denial_reasons

    @property
    def _permitted_upstreams(self) -> list[Upstream]:
        return [upstream for upstream in self.pool.upstreams if upstream.alias not in self.denial_reasons]

    @property
    def routes(self) -> ResourceRoutes:
        if self._routes is None:
            upstreams = self._permitted_upstreams
            is_alone = len(upstreams) == 1 and not self._own_offer.has_resources
            aliases = {upstream.alias for upstream in self.pool.upstreams}
            self._routes = ResourceRoutes(upstreams, aliases, self._own_offer.has, is_alone=is_alone)
            self._apps = self._routes.apps
        return self._routes

    @property
    def prompts(self) -> NameMap:
        if self._prompts is None:
            name_lists: list[NameList] = []
            for upstream in self.pool.upstreams:
                prompts = [] if upstream.alias in self.denial_reasons else upstream.offer.items(PROMPTS)
                names = tuple(prompt["name"] for prompt in prompts)
                name_lists.append(NameList(upstream.alias, names, upstream.entry.prefix == "alias"))
            self._prompts = name_map(name_lists, self._own_offer.prompts, self._name_budget)
        return self._prompts


def _check_prompt_arguments(upstream: Upstream, name: str, arguments: Any) -> None:
    """Raise `MCPError` if a required argument of a prompt is missing: some servers report that as an internal error."""
    for prompt in upstream.offer.items(PROMPTS):
        declared = map(as_mapping, as_list(prompt.get("arguments")) if prompt["name"] == name else [])
        required = [argument.get("name") for argument in declared if argument.get("required") is True]
        if missing := [visible_line(str(key)) for key in required if key not in as_mapping(arguments)]:
            raise MCPError(INVALID_PARAMS, f"Arguments that the prompt requires are missing: {', '.join(missing)}.")


def _list_result(ctx: RequestContext, kind: OfferedKind, items: list[Json]) -> Json:
    meta = as_mapping(as_mapping(ctx.params).get("_meta"))
    return {kind.field: listed_for(meta, items), **NEVER_CACHED, **list_meta(meta)}
