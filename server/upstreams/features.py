"""Resources, prompts, completion, log levels of upstreams: answered before the SDK's models see them.

A middleware. What it answers goes out as it is, so that nothing that those models do not know is lost; what is ours,
and what nobody behind us has, goes on to our own handlers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import CallNext
from mcp.shared.exceptions import MCPError

from server.announcements import ListenBus
from server.exchange import LEVELS, Exchange, exchange_of
from server.json_rpc import Json, as_mapping
from server.sdk_seams import RequestContext, is_open
from server.upstreams.catalog.names import Listed, NameMap, Origin, name_map
from server.upstreams.catalog.resources import ResourceRoutes, Route, SharedUriError, scheme_of
from server.upstreams.connection import Upstream
from server.upstreams.relay import Relay
from server.upstreams.session.listing import PROMPTS, RESOURCES, TEMPLATES, Kind, Offer
from server.upstreams.session.results import NEVER_CACHED, protocol_error_for, result_for_client
from server.upstreams.session.visible_texts import prompt_with_visible_texts
from server.upstreams.watching import TooManyWatchedError, Watching
from server.upstreams.wire.own_meta import list_meta, listed_for, with_origin
from server.upstreams.wire.peer import RelayError
from tools.contract.display import visible, visible_line
from tools.contract.errors import ToolError
from tools.permissions.tool_names import BETWEEN

STATUS_URI = "coretools://upstreams"

_JSON = "application/json"

STATUS: Json = {
    "uri": STATUS_URI,
    "name": "upstreams",
    "title": "Servers behind this one",
    "description": "The state of each: how it is reached, what it offers, its latest error, and what is not listed.",
    "mimeType": _JSON,
}
"""As it is listed."""


def status_contents(report: list[dict[str, Any]]) -> Json:
    """What is read of it.

    Args:
        report: How every upstream stands.
    """
    # Its instructions, name and version are a server's own words.
    text = visible(json.dumps({"upstreams": report}, ensure_ascii=False, indent=2))
    return {"contents": [{"uri": STATUS_URI, "mimeType": _JSON, "text": text}]}


logger = logging.getLogger(__name__)

Handler = Callable[[RequestContext, CallNext], Awaitable[Any]]

OWN_SCHEMES = frozenset({"file", "memory", "todo", "coretools"})
"""The schemes of our own resources."""

MOST_NAMED = 5
"""Servers that an error proposes."""


@dataclass(frozen=True, slots=True)
class Own:
    """What this server has itself.

    Args:
        prompts: The names of its prompts.
        has_resources: Whether it has resources.
    """

    prompts: frozenset[str] = frozenset()
    has_resources: bool = False

    def has(self, uri: str) -> bool:
        """Whether a URI, or a template of URIs, is for it to answer, so that no upstream gets it."""
        return self.has_resources and scheme_of(uri) in OWN_SCHEMES


class UpstreamFeatures:
    """Answers what belongs to upstreams.

    Args:
        relay: Brings requests to upstreams.
        key_of: Whose request it is, as `ClientState.key`.
        own: What is ours.
        budget: The most characters of a published name.
        before: Called before each request: starts what is started by the first one.
        why_denied: Why nothing of an upstream is there, as a sentence; empty if it is.
        bus: Reaches the clients of the 2026-07-28 revision that listen.
    """

    def __init__(
        self,
        relay: Relay,
        key_of: Callable[[RequestContext], str],
        own: Own,
        budget: int,
        before: Callable[[RequestContext], Awaitable[None]],
        *,
        why_denied: Callable[[str], str],
        bus: ListenBus,
    ) -> None:
        self._relay = relay
        self._key_of = key_of
        self._own = own
        self._why_denied = why_denied
        self._bus = bus
        self._tasks: TaskGroup | None = None
        self._budget = budget
        self._before = before
        self.watching = Watching(relay.session_of, relay.pool.by_alias)
        self._denied: Mapping[str, str] | None = None
        self._routes: ResourceRoutes | None = None
        self._prompts: NameMap | None = None
        self._handlers: Mapping[str, Handler] = {
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }
        self._handshake_handlers: Mapping[str, Handler] = {
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
        }

    def start(self, tasks: TaskGroup) -> None:
        """The upstreams are started.

        Args:
            tasks: Runs what is not waited for.
        """
        self._tasks = tasks
        self.watching.start(tasks)

    def forget(self) -> None:
        """What upstreams offer, or the rules about them, have changed."""
        self._denied = self._routes = self._prompts = None

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        """Answer a request, or let it go on."""
        handler = self._handlers.get(ctx.method) or self._handshake_handlers.get(ctx.method)
        if handler is None or not self._relay.pool.upstreams or not is_open(ctx):
            return await call_next(ctx)
        if ctx.method in self._handshake_handlers and exchange_of(ctx, "").is_modern:
            return await call_next(ctx)
        await self._before(ctx)
        await self._relay.pool.wait_for_first_list()
        return await handler(ctx, call_next)

    def _exchange(self, ctx: RequestContext) -> Exchange:
        return self._relay.resumed(ctx.method, exchange_of(ctx, self._key_of(ctx)))

    async def _list_resources(self, ctx: RequestContext, call_next: CallNext) -> Json:
        status = [STATUS] if self._own.has_resources else []
        return await self._with_ours(ctx, call_next, "resources", [*status, *self.routes.resources])

    async def _list_templates(self, ctx: RequestContext, call_next: CallNext) -> Json:
        return await self._with_ours(ctx, call_next, "resourceTemplates", self.routes.templates)

    async def _list_prompts(self, ctx: RequestContext, call_next: CallNext) -> Json:
        offered = {
            Origin(upstream.alias, prompt["name"]): prompt
            for upstream in self.open_upstreams
            for prompt in upstream.offer.of(PROMPTS)
        }
        listed = [
            with_origin({**prompt_with_visible_texts(offered[origin]), "name": name}, origin.alias)
            for name, origin in self.prompts.published.items()
            if origin in offered
        ]
        return await self._with_ours(ctx, call_next, "prompts", listed)

    async def _with_ours(self, ctx: RequestContext, call_next: CallNext, field: str, theirs: list[Json]) -> Json:
        ours: list[Json] = []
        try:
            ours = as_mapping(await call_next(ctx)).get(field, [])
        except MCPError as error:
            if error.error.code != types.METHOD_NOT_FOUND:
                raise
        meta = as_mapping(as_mapping(ctx.params).get("_meta"))
        listing = {field: listed_for(meta, [*ours, *theirs]), **NEVER_CACHED, **list_meta(meta)}
        return result_for_client(ctx.method, listing, ctx.protocol_version)

    async def _read(self, ctx: RequestContext, call_next: CallNext) -> Any:
        uri = as_mapping(ctx.params).get("uri")
        if uri == STATUS_URI and self._own.has(STATUS_URI):
            return result_for_client(ctx.method, status_contents(self._relay.pool.report()), ctx.protocol_version)
        route = self._route(uri) if isinstance(uri, str) else None
        if route is None:
            return await self._or_not_found(ctx, call_next, uri)
        return await self._bring(ctx, route.upstream, {"uri": route.uri})

    async def _or_not_found(self, ctx: RequestContext, call_next: CallNext, uri: Any) -> Any:
        if not isinstance(uri, str) or self._own.has(uri):
            try:
                return await call_next(ctx)
            except MCPError as error:
                if error.error.code != types.METHOD_NOT_FOUND or not isinstance(uri, str):
                    raise
        message = (
            "Nobody here has a resource with this URI; resources/list and resources/templates/list tell what there is."
        )
        raise MCPError(code=types.INVALID_PARAMS, message=message, data={"uri": uri})

    async def _get_prompt(self, ctx: RequestContext, call_next: CallNext) -> Any:
        name = as_mapping(ctx.params).get("name")
        found = self._prompt(name)
        if found is None:
            return await call_next(ctx)
        return await self._bring(ctx, found[0], {"name": found[1]})

    async def _complete(self, ctx: RequestContext, call_next: CallNext) -> Any:
        ref = as_mapping(as_mapping(ctx.params).get("ref"))
        if isinstance(uri := ref.get("uri"), str):
            route = self._route(uri)
            if route is not None:
                return await self._bring(ctx, route.upstream, {"ref": {**ref, "uri": route.uri}})
        elif (found := self._prompt(ref.get("name"))) is not None:
            return await self._bring(ctx, found[0], {"ref": {**ref, "name": found[1]}})
        return await call_next(ctx)

    async def _bring(self, ctx: RequestContext, upstream: Upstream, named: Json) -> Json:
        """Bring a request to an upstream, in its own names."""
        exchange = self._exchange(ctx)
        result = await self._relay.bring(upstream, ctx.method, named, exchange)
        return result_for_client(ctx.method, result, ctx.protocol_version)

    async def _subscribe(self, ctx: RequestContext, call_next: CallNext) -> Json:
        return await self._watch(ctx, call_next, self.watching.subscribe)

    async def _unsubscribe(self, ctx: RequestContext, call_next: CallNext) -> Json:
        return await self._watch(ctx, call_next, self.watching.unsubscribe)

    async def _watch(
        self, ctx: RequestContext, call_next: CallNext, change: Callable[[Route, Exchange], Awaitable[None]]
    ) -> Json:
        uri = as_mapping(ctx.params).get("uri")
        route = self._route(uri) if isinstance(uri, str) else None
        if route is None:
            return await self._or_not_found(ctx, call_next, uri)
        try:
            await change(route, self._exchange(ctx))
        except TooManyWatchedError:
            raise MCPError(types.INVALID_PARAMS, "You watch as many resources as one client may.") from None
        except (RelayError, ToolError, TimeoutError) as error:
            raise protocol_error_for(error, route.upstream.alias) from None
        return {}

    async def _listen(self, ctx: RequestContext, call_next: CallNext) -> Any:
        wanted = as_mapping(as_mapping(ctx.params).get("notifications")).get("resourceSubscriptions")
        uris = cast("list[Any]", wanted) if isinstance(wanted, list) else []
        exchange = self._exchange(ctx)
        async with self.watching.watched(list(self._watchable(uris)), exchange):
            with self._bus.stream(exchange):
                return await call_next(ctx)

    def _watchable(self, uris: list[Any]) -> Iterator[Route]:
        """Where resources are; of what means none the client hears nothing, and a stream has no errors to tell so."""
        for uri in uris:
            try:
                if isinstance(uri, str) and (route := self._route(uri)) is not None:
                    yield route
            except MCPError as error:
                logger.info("a client cannot listen to a resource: %s", visible_line(error.error.message))

    async def _set_level(self, ctx: RequestContext, call_next: CallNext) -> Json:
        del call_next
        level = as_mapping(ctx.params).get("level")
        if level not in LEVELS:
            raise MCPError(types.INVALID_PARAMS, f"The level has to be one of {', '.join(LEVELS)}.")
        if self._tasks is not None:
            await self._relay.set_level(str(level), self._exchange(ctx), self._tasks)
        return {}

    def _route(self, uri: str) -> Route | None:
        """Where a resource of an upstream is.

        Raises:
            MCPError: Several upstreams may mean something by this URI, or it is of one that is switched off.
        """
        if not (self._own.has(uri) or uri in self.routes.known):
            self._refuse_denied(uri.partition("+")[0], uri, RESOURCES, TEMPLATES)
        try:
            return self.routes.find(uri)
        except SharedUriError as error:
            names = error.names[:MOST_NAMED]
            message = (
                "More than one server may mean something by this URI, so it is asked of none. "
                f"Name the one that you mean: {' or '.join(visible_line(name) for name in names)}."
            )
            raise MCPError(types.INVALID_PARAMS, message, {"uri": uri, "names": names}) from None

    def _prompt(self, name: Any) -> tuple[Upstream, str] | None:
        origin = self.prompts.find(name) if isinstance(name, str) else None
        if origin is None:
            if isinstance(name, str) and name not in self._own.prompts:
                self._refuse_denied(name.partition(BETWEEN)[0], name, PROMPTS)
            return None
        upstream = self._relay.pool.by_alias(origin.alias)
        return None if upstream is None else (upstream, origin.name)

    def _refuse_denied(self, alias: str, name: str, *kinds: Kind) -> None:
        """Refuse what is of an upstream that is switched off: by its alias, or since only that lists it.

        Raises:
            MCPError: It is.
        """
        by_alias = self._relay.pool.by_alias
        for denied, why in self.denied.items():
            offer = upstream.offer if (upstream := by_alias(denied)) is not None else Offer()
            if denied == alias or any(item[kind.key] == name for kind in kinds for item in offer.of(kind)):
                raise MCPError(types.INVALID_PARAMS, f"{why} Go on without it; the operator can change the rule.")

    @property
    def denied(self) -> Mapping[str, str]:
        """The upstreams of which nothing is there, and by which rule."""
        if self._denied is None:
            every = ((each.alias, self._why_denied(each.alias)) for each in self._relay.pool.upstreams)
            self._denied = {alias: why for alias, why in every if why}
        return self._denied

    @property
    def open_upstreams(self) -> list[Upstream]:
        """Those that are not switched off."""
        return [each for each in self._relay.pool.upstreams if each.alias not in self.denied]

    @property
    def routes(self) -> ResourceRoutes:
        """Where every resource is."""
        if self._routes is None:
            upstreams = self.open_upstreams
            is_alone = len(upstreams) == 1 and not self._own.has_resources
            aliases = {upstream.alias for upstream in self._relay.pool.upstreams}
            self._routes = ResourceRoutes(upstreams, aliases, self._own.has, is_alone=is_alone)
        return self._routes

    @property
    def prompts(self) -> NameMap:
        """What every name of a prompt means."""
        if self._prompts is None:
            denied = self.denied
            listed = [
                Listed(
                    upstream.alias,
                    tuple(prompt["name"] for prompt in upstream.offer.of(PROMPTS) if upstream.alias not in denied),
                    upstream.entry.prefix == "alias",
                )
                for upstream in self._relay.pool.upstreams
            ]
            self._prompts = name_map(listed, self._own.prompts, self._budget)
        return self._prompts
