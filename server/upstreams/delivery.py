"""A client's request, delivered to the right session of an upstream; and calls of tools, as tools of ours run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.inbound import mcp_param_headers

from server.exchange import Exchange
from server.json_rpc import Json
from server.upstreams.catalog.resources import with_links
from server.upstreams.catalog.tools import DiscoveredMCPTool
from server.upstreams.connection import Upstream
from server.upstreams.pool import UpstreamPool, side_by_side
from server.upstreams.session.relay import (
    Relay,
    Request,
    StaleStateError,
    as_protocol_error,
    is_result_of_call,
    to_protocol_error,
    told_to_models,
)
from server.upstreams.session.session import UpstreamSession
from server.upstreams.wire.peer import ConnectionLostError, RelayError, UnusableAnswerError, UpstreamError
from tools.call.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.results import ToolResult

_OF_ROUNDS = frozenset({"requestState", "inputResponses"})
"""What belongs to a round with us."""

STALE: Json = {
    "code": types.INVALID_PARAMS,
    "message": (
        "The requestState is not valid: it is forged, too old, used already, belongs to another request, or what it "
        "belongs to has changed since. Send the request again without it."
    ),
}
"""What a client is told whose state cannot be gone on with."""


@dataclass(slots=True)
class KeptError:
    """Keeps the error that an upstream answered a call with, so that the client gets it whole."""

    error: Json | None = None


@dataclass(frozen=True, slots=True)
class CallContext(ToolContext):
    """What a call of an upstream's tool acts in.

    Args:
        exchange: The client's request.
        protocol_error: Takes the error that the upstream answers with.
    """

    exchange: Exchange | None = None
    protocol_error: KeptError = field(default_factory=KeptError)


class Delivery:
    """Delivers requests.

    Args:
        pool: The upstreams.
        relay: Brings a request to a session.
    """

    def __init__(self, pool: UpstreamPool, relay: Relay) -> None:
        self.pool = pool
        self.published: Callable[[Upstream, str, bool], str] = lambda _upstream, uri, _is_sought: uri
        """The URI under which clients know a resource of an upstream (`links.Published`)."""
        self._relay = relay

    def resumed(self, method: str, exchange: Exchange) -> Exchange:
        """The exchange as one that goes on with an earlier round, if its state says so.

        Raises:
            MCPError: The state is forged, late, used already, or belongs to something else.
        """
        try:
            return self._relay.resumed(method, exchange)
        except StaleStateError:
            raise as_protocol_error(STALE) from None

    async def session_of(self, upstream: Upstream, exchange: Exchange) -> UpstreamSession:
        """The session in which a client's requests are brought to an upstream.

        Raises:
            ToolError: There is no connection.
        """
        sessions = self.pool.sessions_with(upstream)
        if sessions is None or self.pool.by_alias(upstream.alias) is not upstream:
            raise upstream.unavailable()
        return await sessions.of(exchange)

    async def bring(self, upstream: Upstream, method: str, named: Json, exchange: Exchange) -> Json:
        """Bring a request to an upstream.

        Args:
            upstream: Whose it is.
            method: The method.
            named: Parameters in the upstream's own names, in place of those that the client sent.
            exchange: The client's request.

        Raises:
            MCPError: It failed.
        """
        request = Request(method, _own(exchange, named), _patience(upstream), target=str(upstream.serial))
        try:
            return await self._brought(upstream, request, exchange)
        except StaleStateError:
            raise as_protocol_error(STALE) from None
        except (RelayError, ToolError, TimeoutError) as error:
            raise to_protocol_error(error, upstream.alias) from None

    async def call(
        self, upstream: Upstream, tool: DiscoveredMCPTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult:
        """Call a tool.

        Args:
            upstream: Whose it is.
            tool: The tool.
            arguments: As they came.
            context: Of the call.

        Raises:
            ToolError: It failed on the way; or the upstream answered with an error, which the context keeps.
        """
        if not isinstance(context, CallContext) or context.exchange is None:
            raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, "Only a client can call a tool of another server.")
        exchange, name = context.exchange, tool.upstream_name
        named: Json = {"name": name} | ({"arguments": dict(arguments)} if "arguments" in exchange.params else {})
        headers = mcp_param_headers(repeated, arguments) if (repeated := tool.repeated) else None
        target = f"{upstream.serial} {tool.version}"
        request = Request("tools/call", _own(exchange, named), _patience(upstream), headers, target=target)
        try:
            result = await self._brought(upstream, request, exchange)
            if not is_result_of_call(result):
                raise UnusableAnswerError("what it sent is no result of a tool")
        except StaleStateError:
            context.protocol_error.error = STALE
            raise ToolError(ToolErrorType.MCP_TOOL_ERROR, STALE["message"]) from None
        except (RelayError, TimeoutError) as error:
            if isinstance(error, UpstreamError):
                context.protocol_error.error = error.error
            raise told_to_models(error, upstream.alias, f"the call of {name}") from None
        return ToolResult(verbatim=self.with_links(upstream, "tools/call", result))

    def with_links(self, upstream: Upstream, method: str, result: Json) -> Json:
        """A result whose links to resources are spelled as clients know them."""
        return with_links(method, result, partial(self.published, upstream))

    async def _brought(self, upstream: Upstream, request: Request, exchange: Exchange) -> Json:
        session = await self.session_of(upstream, exchange)
        # A parked call that goes on has kept its place.
        if upstream.places is None or "parked" in exchange.carried:
            return await self._relay.bring(session, request, exchange)
        began = anyio.current_time()
        place = await upstream.places.take(request.patience)
        try:
            waited = anyio.current_time() - began
            session = await self.session_of(upstream, exchange)  # the one of before may have been lost meanwhile
            placed = replace(request, place=place, waited=waited)
            return await self._relay.bring(session, placed, exchange)
        finally:
            if not place.is_kept:
                place.leave()

    async def set_level(self, level: str, exchange: Exchange, tasks: TaskGroup) -> None:
        """Tell the upstreams which log messages a client wants, those that it uses already; others hear it later."""
        exchange.choose_level(level)

        async def tell(session: UpstreamSession) -> None:
            with suppress(ConnectionLostError):
                await session.set_level(level)

        await side_by_side(tasks, [partial(tell, session) for session in self.pool.opened_by(exchange)])

    def forget(self, client_key: str) -> None:
        """A client is gone: its sessions are closed and its parked calls cancelled."""
        self._relay.parked.forget(client_key)
        self.pool.forget(client_key)

    def is_parked(self, session: UpstreamSession) -> bool:
        """Whether a call of this session waits for an answer of its client."""
        return self._relay.parked.is_used(session)


def _patience(upstream: Upstream) -> float:
    return upstream.entry.timeout / 1000


def _own(exchange: Exchange, named: Json) -> Json:
    """The parameters as they came, but for names of ours and what belongs to rounds."""
    own = {**exchange.params, **named}
    for name in _OF_ROUNDS & own.keys():
        del own[name]
    return own
