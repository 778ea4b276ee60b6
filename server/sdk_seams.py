"""The parts of the SDK that it keeps to itself and that we cannot do without.

A relay sends what the SDK has no model for, and has to know when a client's connection ends. What else is private is
known to `transports/request_dispatcher.py`, `transports/stdio.py` and `upstreams/wire/http.py` alone.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.transport_context import TransportContext

from tools.contract.display import visible_line

__all__ = [
    "Connection",
    "Outbound",
    "ReadStream",
    "RequestContext",
    "WriteStream",
    "client_name",
    "connection_of",
    "is_open",
    "outbound_of",
    "sse_session",
]

MAX_NAME_CHARS = 100  # of the name that a client gives itself, and its version
RequestContext = ServerRequestContext[Any, Any]
Outbound = DispatchContext[TransportContext]


def connection_of(session: ServerSession) -> Connection:
    """What lives as long as the client's connection; in the 2026-07-28 revision, as long as the request."""
    return session._connection  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


def client_name(ctx: RequestContext) -> str:
    """How the client of a request calls itself, with its version; empty where it does not."""
    params = ctx.session.client_params
    return visible_line(f"{params.client_info.name} {params.client_info.version}"[:MAX_NAME_CHARS]) if params else ""


def outbound_of(session: ServerSession) -> Outbound:
    """The way back to who sent a request, for as long as that is open, which takes any message."""
    return cast("Outbound", session._request_outbound)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


def is_open(ctx: RequestContext) -> bool:
    """Whether this is a request of a client that has introduced itself; others are refused by the SDK."""
    return ctx.request_id is not None and ctx.session._connection.initialize_accepted  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


def sse_session(named: str | None) -> str:
    """The session over SSE that a request names, in whichever way it is written; `ValueError` if it names none."""
    return UUID(hex=named or "").hex
