"""The SDK's server for the one client of a wire, in the era that its first request opens."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data, serve_one
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from server.json_rpc import Json
from server.transports.dispatcher import WireDispatcher

logger = logging.getLogger(__name__)

Params = Mapping[str, Any] | None
Incoming = DispatchContext[TransportContext]

MOST_EARLY = 8
"""Notifications before the first request that are kept for it (the SDK's number)."""


async def serve_one_client(server: Server[Any], dispatcher: WireDispatcher) -> None:
    """Serve until the client is gone.

    Args:
        server: Answers.
        dispatcher: The client's wire.
    """
    async with server.lifespan(server) as state:
        client = _Client(server, dispatcher, state)
        try:
            await dispatcher.run(client.on_request, client.on_notify)
        finally:
            await aclose_shielded(client.connection)


class _Client:
    """The client, whose first request says how it speaks.

    Args:
        server: Answers.
        dispatcher: The client's wire.
        state: The server's.
    """

    def __init__(self, server: Server[Any], dispatcher: WireDispatcher, state: Any) -> None:
        self.connection = Connection.for_loop(dispatcher)
        self._server = server
        self._dispatcher = dispatcher
        self._state = state
        self._handshake = ServerRunner(
            server, self.connection, state, init_options=server.create_initialization_options()
        )
        self._notified_only = NotifyOnlyOutbound(dispatcher)
        self._is_modern: bool | None = None
        self._early: list[tuple[Incoming, str, Params]] = []

    async def on_request(self, incoming: Incoming, method: str, params: Params) -> Json:
        """Answer a request."""
        if self._is_modern is None:
            self._is_modern = method != "initialize" and _has_envelope(params)
            self._dispatcher.may_ask = not self._is_modern
            early, self._early = self._early, []
            for notification in early:
                await self.on_notify(*notification)
        if self._is_modern:
            return await self._answer_modern(incoming, method, params)
        if method != "initialize" and _has_envelope(params):
            message = "This connection was opened with the handshake, so requests of 2026-07-28 are not taken on it."
            raise MCPError(types.INVALID_REQUEST, message)
        return await self._handshake.on_request(incoming, method, params)

    async def _answer_modern(self, incoming: Incoming, method: str, params: Params) -> Json:
        if method == "initialize":
            message = "This connection speaks 2026-07-28, which has no initialize."
            asked = (params or {}).get("protocolVersion")
            data: Json = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
            if isinstance(asked, str):
                data["requested"] = asked
            raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, message, data)
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities, outbound=self._notified_only
        )
        try:
            return await serve_one(
                self._server, incoming, method, params, connection=connection, lifespan_state=self._state
            )
        except (MCPError, ValidationError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to the wire
            told = modern_error_data(error)
            raise MCPError(told.code, told.message, told.data) from None

    async def on_notify(self, incoming: Incoming, method: str, params: Params) -> None:
        """Take in a notification."""
        if self._is_modern is None:
            if len(self._early) < MOST_EARLY:
                self._early.append((incoming, method, params))
        elif self._is_modern:
            connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._notified_only)
            try:
                await ServerRunner(self._server, connection, self._state).on_notify(incoming, method, params)
            finally:
                await aclose_shielded(connection)
        else:
            await self._handshake.on_notify(incoming, method, params)


def _has_envelope(params: Params) -> bool:
    """Whether a request says of itself that it is of the revision without a handshake."""
    meta = (params or {}).get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta
