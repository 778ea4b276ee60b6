"""Upstreams without a server around them."""

from __future__ import annotations

from collections.abc import Mapping

from server.settings import UpstreamSettings
from server.upstreams.catalog.upstream_tool import UpstreamCall
from server.upstreams.connections.connection import Audience, Upstream
from server.upstreams.connections.pool import UpstreamPool
from tools.call.tool_registry import ToolRegistry
from tools.contract.tool_results import ToolResult


async def no_folders(_: object) -> tuple[str, ...]:
    """The client has opened nothing."""
    return ()


ONE_CLIENT = Audience({}, None, is_one=True, is_modern=False, question_seconds=1, folders_of=no_folders)


def quiet_pool(
    entries: Mapping[str, UpstreamSettings], first_list_wait_seconds: float = 0, registry: ToolRegistry | None = None
) -> UpstreamPool:
    """Return a pool of upstreams that receives no calls."""
    return UpstreamPool(entries, registry or ToolRegistry(), first_list_wait_seconds, 48, refuse_calls)


def refuse_calls(upstream: Upstream) -> UpstreamCall:
    """Return a call function that refuses every call."""

    async def refuse(*_: object) -> ToolResult:
        raise upstream.unavailable()

    return refuse
