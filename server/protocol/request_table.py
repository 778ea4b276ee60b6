"""Requests and notifications from clients, and the table of their handlers, independent of the transport.

Nearly all parameters have one of a few simple forms, which are recognised here. All others are validated with the
models of `mcp_types`, whose import takes longer than all the other work for a first tool list.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from server import VERSION
from server.protocol.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Json,
    MCPError,
    RequestId,
    as_mapping,
)
from server.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    negotiated_revision,
)
from tools.contract.display import visible_line
from tools.machine.unlocked_cached_property import cached_property

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

logger = logging.getLogger(__name__)

MAX_NAME_CHARS = 100  # how many characters of the client's name and version together are used
HANDSHAKE, MODERN = frozenset(HANDSHAKE_PROTOCOL_VERSIONS), frozenset(MODERN_PROTOCOL_VERSIONS)
BEFORE_HANDSHAKE = frozenset({"initialize", "ping"})  # allowed before a client has initialized
WRONG_PARAMS = "Invalid request parameters"
OUR_TITLE = "Core tools"
NEVER_CACHED: Json = {"ttlMs": 0, "cacheScope": "private"}
"""Cache hints that forbid caching, because results may change at any time and depend on the operator's settings."""
LINKS_SINCE = "2025-06-18"  # the first revision whose results may have resource links
_CACHEABLE = frozenset({"server/discover", "resources/read", "resources/directory/read", "skills/get"})
_OF_2026 = frozenset({"resultType", "ttlMs", "cacheScope"})  # keys that handshake-era results do not have
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LISTED: Mapping[str, type] = {"cursor": str}
_PARAMETERS: Mapping[str, Mapping[str, type]] = {
    "ping": {},
    "server/discover": {},
    "tools/list": _LISTED,
    "prompts/list": _LISTED,
    "resources/list": _LISTED,
    "resources/templates/list": _LISTED,
    "tools/call": {"name": str, "arguments": dict},
    "prompts/get": {"name": str},
    "resources/read": {"uri": str},
}
_REQUIRED = frozenset({"name", "uri"})  # a method that has one of these parameters requires it
_KNOWN_CAPABILITIES = frozenset({"elicitation", "sampling", "roots", "experimental", "extensions"})
_FLAGS = frozenset({"listChanged"})  # the fields of capabilities that are booleans; all other fields are objects


class Outbound(Protocol):
    """Sends messages to a client: within one of its open requests, or outside of its requests."""

    async def request(self, method: str, params: Json | None) -> Json:
        """Send a request to the client and wait for the result.

        Raises `MCPError` if the client cannot receive the request, leaves before it answers, or answers with an error
        or a malformed response.
        """
        ...

    async def notify(self, method: str, params: Json | None) -> None:
        """Send a notification to the client; it is dropped if the client is gone."""


class RequestOutbound(Outbound, Protocol):
    """Sends messages to a client within one of its requests.

    This is an `Incoming`; over HTTP in the 2026-07-28 revision, a `_ModernRequest`; or, for the command `call`, a
    `TerminalOutbound`. A `ProgressOutbound` or a `_TaskStream` may wrap any of them.
    """

    def person_is_asked(self) -> AbstractContextManager[None]:
        """Return a context manager to enter while a person is asked without a request to the client."""
        ...


class NoOutbound:
    """The outbound of a 2026-07-28 client outside of its requests: refuses requests to it, and drops notifications."""

    async def request(self, method: str, params: Json | None) -> Json:
        del params
        raise MCPError(INVALID_REQUEST, f"A client of this revision cannot receive {method} requests.")

    async def notify(self, method: str, params: Json | None) -> None:
        """Drop the notification."""


NO_OUTBOUND = NoOutbound()


@dataclass(eq=False, slots=True)
class McpConnection:
    """The state of a client during its connection (in the 2026-07-28 revision, during the request)."""

    outbound: Outbound  # sends messages to the client outside of its requests
    protocol_version: str = LATEST_HANDSHAKE_VERSION
    is_open: bool = False  # whether the client has initialized; until then, most of its requests are refused
    client_info: Json = field(default_factory=dict[str, Any])  # the client's name and version, as received
    capabilities: Json | None = None  # the client's declared capabilities
    state: Json = field(default_factory=dict[str, Any])  # data kept until the connection ends
    client_name: str = ""  # the client's name and version for display; empty if it does not give them
    is_modern: bool = False  # whether it uses the 2026-07-28 revision
    _at_end: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    def at_end(self, callback: Callable[[], object]) -> None:
        """Register a callback for the end of the connection; callbacks run in reverse order of registration."""
        self._at_end.append(callback)

    def close(self) -> None:
        while self._at_end:
            try:
                self._at_end.pop()()
            except Exception:
                logger.exception("a callback for the end of a connection failed")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request or notification from a client, with an `outbound` for messages to the client while it is handled."""

    method: str
    params: Json | None
    request_id: RequestId | None  # `None` for a notification
    connection: McpConnection
    outbound: RequestOutbound  # usable while the request is open
    http_request: HttpRequest | None = None  # the HTTP request that carried this message

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if (token := progress_token(self.params)) is None:
            return
        fields = {"progress": progress, "total": total, "message": message}
        params = {"progressToken": token, **{name: value for name, value in fields.items() if value is not None}}
        await self.outbound.notify("notifications/progress", params)


Handler = Callable[[RequestContext], Awaitable[Mapping[str, Any]]]
NotificationHandler = Callable[[RequestContext], Awaitable[None]]
CallNext = Callable[[RequestContext], Awaitable[Any]]


class Middleware(Protocol):
    """Gets a request before its handler does, and passes the request on with `call_next`."""

    def __call__(self, ctx: RequestContext, call_next: CallNext) -> Awaitable[Any]: ...


class RequestTable:
    """The handlers of requests, keyed by method, each with the revisions that it serves.

    Middlewares get each request before its handler does, in the order of the list `middleware`. `capabilities` returns
    the capabilities to declare.
    """

    def __init__(self, capabilities: Callable[[], Json] | None = None) -> None:
        self.instructions: str | None = None  # for clients that connect from now on
        # Set in `App._make_table`. `RecentCalls` and `report_waiting` see a tool call; `ToolRequests.dispatch` runs it.
        self.middleware: list[Middleware] = []
        self._capabilities = capabilities or self.own_capabilities
        self._notifications: dict[str, NotificationHandler] = {}
        self._requests: dict[str, tuple[frozenset[str], Handler]] = {}
        self.add("initialize", self._initialize, HANDSHAKE)
        self.add("ping", self._ping, HANDSHAKE)
        self.add("server/discover", self._discover, MODERN)

    def add(self, method: str, handler: Handler, versions: frozenset[str] = HANDSHAKE | MODERN) -> None:
        self._requests[method] = versions, handler

    def add_notification(self, method: str, handler: NotificationHandler) -> None:
        self._notifications[method] = handler

    def own_capabilities(self) -> Json:
        """Return the capabilities that have handlers in the table. `listChanged` is true only for tools."""
        capabilities_by_method: Json = {
            "tools/list": ("tools", {"listChanged": True}),
            "prompts/list": ("prompts", {"listChanged": False}),
            "resources/list": ("resources", {"subscribe": False, "listChanged": False}),
            "completion/complete": ("completions", {}),
        }
        return dict(entry for method, entry in capabilities_by_method.items() if method in self._requests)

    async def answer(self, ctx: RequestContext) -> Json:
        """Return the result of a request, in the form of the client's revision.

        A result for a handshake-era client loses the keys that the revision does not have. A result for a 2026-07-28
        client gets the keys that this revision requires. Raises `MCPError` to respond with an error.
        """
        result: Json = dict(await self._chain(ctx))
        connection = ctx.connection
        if ctx.method == "initialize":
            params = ctx.params or {}
            connection.protocol_version = negotiated_revision(params.get("protocolVersion"))
            connection.client_info = as_mapping(params.get("clientInfo"))
            connection.client_name = display_name(connection.client_info)
            connection.capabilities = capabilities_of(params.get("capabilities"))
            connection.is_open = True
        result_meta = as_mapping(result.get("_meta"))
        if result.get("_meta", result_meta) is None:  # some servers write null, which no client accepts
            del result["_meta"]
        if not connection.is_modern:
            if SERVER_INFO_META_KEY not in result_meta and _OF_2026.isdisjoint(result):
                return result
            meta = {key: value for key, value in result_meta.items() if key != SERVER_INFO_META_KEY}
            fields = {key: value for key, value in result.items() if key not in _OF_2026 and key != "_meta"}
            return {**fields, "_meta": meta} if meta else fields
        base: Json = {"resultType": "complete"}
        if ctx.method in _CACHEABLE and result.get("resultType", "complete") == "complete":
            base |= NEVER_CACHED
        return {**base, **result, "_meta": {**result_meta, SERVER_INFO_META_KEY: our_name() | {"title": OUR_TITLE}}}

    @cached_property
    def _chain(self) -> CallNext:
        """The middlewares around the handler. They are fixed once the first request is answered."""
        call: CallNext = self._handle
        for middleware in reversed(self.middleware):
            call = partial(middleware, call_next=call)
        return call

    async def take_notification(self, ctx: RequestContext) -> None:
        """Handle a notification; one that is malformed, unknown, too early or of revision 2026-07-28 is dropped."""
        is_malformed = not isinstance(as_mapping(ctx.params).get("_meta", {}), dict)
        if is_malformed or ctx.connection.is_modern:
            logger.debug("a notification was dropped")
            return
        if ctx.method == "notifications/initialized":
            ctx.connection.is_open = True
        if ctx.connection.is_open and (handler := self._notifications.get(ctx.method)) is not None:
            await handler(ctx)

    async def _handle(self, ctx: RequestContext) -> Mapping[str, Any]:
        versions, handler = self._requests.get(ctx.method, (frozenset[str](), None))
        if handler is None or ctx.connection.protocol_version not in versions:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        check_params(ctx.method, ctx.connection.protocol_version, ctx.params)
        if not ctx.connection.is_open and ctx.method not in BEFORE_HANDSHAKE:
            raise MCPError(INVALID_PARAMS, WRONG_PARAMS, "")
        return await handler(ctx)

    async def _initialize(self, ctx: RequestContext) -> Json:
        return {
            "protocolVersion": negotiated_revision((ctx.params or {}).get("protocolVersion")),
            "capabilities": self._capabilities(),
            "serverInfo": {**our_name(), "title": OUR_TITLE},
            **({"instructions": self.instructions} if self.instructions is not None else {}),
        }

    async def _ping(self, _: RequestContext) -> Json:
        return {}

    async def _discover(self, _: RequestContext) -> Json:
        return {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self._capabilities(),
            **({"instructions": self.instructions} if self.instructions is not None else {}),
        }


@cache
def our_name() -> Json:
    return {"name": "coretools-mcp", "version": VERSION}


def input_required(requests: Json, state: str) -> Json:
    """Return a result with questions (2026-07-28); the client repeats its request with the answers and this state."""
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def display_name(client_info: Json) -> str:
    """Return a client's name and version for display; empty if it does not give them."""
    name, version = client_info.get("name"), client_info.get("version")
    # In the 2026-07-28 revision, this runs before the parameters are validated.
    if not isinstance(name, str) or not isinstance(version, str):
        return ""
    return visible_line(f"{name} {version}"[:MAX_NAME_CHARS])


def unsupported(version: str) -> MCPError:
    data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": version}
    return MCPError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)


def opened_by(params: Json | None) -> McpConnection:
    """Return the connection that a request of revision 2026-07-28 describes in its `_meta`."""
    fields = as_mapping(as_mapping(params).get("_meta"))
    if missing := [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in fields]:
        raise MCPError(INVALID_PARAMS, f"params._meta must be an object with {' and '.join(missing)}.")
    version = fields[PROTOCOL_VERSION_META_KEY]
    if not isinstance(version, str):
        raise MCPError(INVALID_PARAMS, f"{PROTOCOL_VERSION_META_KEY} must be a string.")
    if version not in MODERN:
        raise unsupported(version)
    info = as_mapping(fields.get(CLIENT_INFO_META_KEY))
    capabilities = capabilities_of(fields[CLIENT_CAPABILITIES_META_KEY])
    return McpConnection(NO_OUTBOUND, version, True, info, capabilities, client_name=display_name(info), is_modern=True)


def check_params(method: str, version: str, params: Json | None) -> None:
    """Raise `MCPError` if a request's parameters do not match its method's schema in the revision `version`."""
    fields = params or {}
    if method == "initialize":
        if (
            fields.keys() <= {"protocolVersion", "capabilities", "clientInfo", "_meta"}
            and isinstance(fields.get("protocolVersion"), str)
            and _is_plain_name(fields.get("clientInfo"))
            and _are_plain_capabilities(fields.get("capabilities"))
            and _is_plain_meta(fields.get("_meta", {}))
        ):
            return
    elif (kinds := _PARAMETERS.get(method)) is not None:
        for name, value in fields.items():
            # The SDK's models validate a request with other parameters. A plain `_meta` is accepted without them.
            if type(value) is not kinds.get(name) and not (name == "_meta" and _is_plain_meta(value)):
                break
        else:
            if fields.keys() >= kinds.keys() & _REQUIRED:
                return
    from mcp_types.methods import validate_client_request  # noqa: PLC0415 - not loaded for simple parameters

    try:
        validate_client_request(method, version, params)
    except (ValueError, KeyError):
        raise MCPError(INVALID_PARAMS, WRONG_PARAMS, "") from None


def capabilities_of(capabilities: Any) -> Json | None:
    """Return the known capabilities among those that a client declares; `None` if they are malformed."""
    if not _are_plain_capabilities(capabilities):
        from mcp_types import ClientCapabilities  # noqa: PLC0415 - not loaded for simple capabilities

        try:
            model = ClientCapabilities.model_validate(capabilities, by_name=False)
        except ValueError:
            return None
        capabilities = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    # `tasks` is omitted, because the tasks of revision 2025-11-25 are not relayed.
    return {name: value for name, value in capabilities.items() if name in _KNOWN_CAPABILITIES}


def elicits(capabilities: Json | None, mode: str) -> bool:
    """Return whether a client supports an elicitation mode, `form` or `url`. If it names no mode, it supports forms."""
    elicitation = (capabilities or {}).get("elicitation")
    if not isinstance(elicitation, dict):
        return False
    modes = cast("Json", elicitation)
    has_url = modes.get("url") is not None
    return has_url if mode == "url" else mode == "form" and (modes.get("form") is not None or not has_url)


def progress_token(params: Any) -> str | int | None:
    token = as_mapping(as_mapping(params).get("_meta")).get("progressToken")
    return token if type(token) in (str, int) else None


def _is_plain_meta(meta: Any) -> bool:
    if type(meta) is not dict:
        return False
    fields = cast("Json", meta)
    return (
        type(fields.get("progressToken", "")) in (str, int)
        and isinstance(fields.get(PROTOCOL_VERSION_META_KEY, ""), str)
        and (CLIENT_INFO_META_KEY not in fields or _is_plain_name(fields[CLIENT_INFO_META_KEY]))
        and _are_plain_capabilities(fields.get(CLIENT_CAPABILITIES_META_KEY, {}))
        and fields.get(LOG_LEVEL_META_KEY, LEVELS[0]) in LEVELS
    )


def _is_plain_name(info: Any) -> bool:
    """Return whether client info consists of a name, a version and possibly a title."""
    if type(info) is not dict:
        return False
    fields = cast("Json", info)
    return {"name", "version"} <= fields.keys() <= {"name", "version", "title"} and all(
        isinstance(value, str) for value in fields.values()
    )


def _are_plain_capabilities(capabilities: Any) -> bool:
    if type(capabilities) is not dict:
        return False
    fields = cast("Json", capabilities)
    return fields.keys() <= _KNOWN_CAPABILITIES and all(
        type(value) is dict
        and all(type(part) is (bool if name in _FLAGS else dict) for name, part in cast("Json", value).items())
        for value in fields.values()
    )
