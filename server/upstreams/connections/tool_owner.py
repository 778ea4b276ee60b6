"""Finds the upstream that a call belongs to, such as `github` for `github__create_issue`."""

from __future__ import annotations

from typing import Any

import anyio

from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.connections.connection import Upstream
from server.upstreams.connections.pool import UpstreamPool
from server.upstreams.session.list_reader import TOOLS
from tools.call.base_tool import BaseTool
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.permissions.tool_names import BETWEEN


def owner_of(pool: UpstreamPool, tool_name: str) -> Upstream | None:
    """Return the upstream that a name belongs to, even if the tool is unknown.

    An unknown name without a prefix may belong to any server without prefixes that has not sent a current list.
    """
    if (tool := pool.registry.find(tool_name)) is not None:
        return owner_of_tool(pool, tool)
    alias = _alias_of(pool, tool_name)
    if alias is not None:
        return pool.by_alias.get(alias)
    return next(filter(pool.is_unlisted, pool.upstreams), None)


def owner_of_tool(pool: UpstreamPool, tool: BaseTool[Any]) -> Upstream | None:
    """Return the upstream of a tool in the registry; `None` for one of this server's own tools."""
    return pool.by_alias.get(tool.alias) if isinstance(tool, DiscoveredMCPTool) else None


def _alias_of(pool: UpstreamPool, tool_name: str) -> str | None:
    """Return the alias of the upstream that a name belongs to, even if it does not list the tool."""
    origin = pool.catalog.names.find(tool_name)
    if origin is not None:
        return origin.alias
    alias, between, _ = tool_name.partition(BETWEEN)
    return alias if between and alias in pool.by_alias else None


def why_not_used(pool: UpstreamPool, tool_name: str) -> ToolError | None:
    """Return the error for a tool whose server is configured but not used."""
    alias, between, _ = tool_name.partition(BETWEEN)
    reason = pool.left_out.get(alias) if between else None
    if reason is None:
        return None
    message = f"The server {alias} is not used here, so its tools are not available. {reason} Continue without it."
    return ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, message)


async def wait_for_owner(pool: UpstreamPool, tool_name: str, owner: Upstream) -> Upstream:
    """Return the owner of a name, once every possible owner has made its first connection attempt.

    If several servers without prefixes offer the same tool name, the first one in the configuration owns it,
    however long it takes to start. Apps may call a tool by its bare name as long as no other tool has that name. A
    client may know a tool from an earlier run, and many servers take longer to start than a list should wait. A
    call therefore waits for each possible owner, up to that server's timeout.
    """
    awaited_upstreams: set[Upstream] = set()
    while True:
        is_found = _alias_of(pool, tool_name) is not None
        # Whether this may be a bare name used by an app. Any server may own such a name.
        is_bare = not is_found and owner.entry.prefix == "alias"
        is_unprefixed = owner.entry.prefix == "none" and not tool_name.startswith(f"{owner.alias}{BETWEEN}")
        if owner.tried.is_set() and not (is_bare or is_unprefixed):
            break
        # Servers configured before the owner may also have the name; later ones matter only if no owner is known.
        last = pool.upstreams.index(owner) if is_found and owner in pool.upstreams else len(pool.upstreams)
        for candidate in pool.upstreams[: last + 1]:
            may_own = candidate is owner or pool.is_unlisted(candidate)
            may_own = may_own or (is_bare and TOOLS.field not in candidate.offer.lists)
            if may_own and not candidate.tried.is_set() and candidate not in awaited_upstreams:
                break
        else:
            break
        awaited_upstreams.add(candidate)
        if pool.has_started:
            with anyio.move_on_after(candidate.entry.timeout / 1000):
                await candidate.tried.wait()
        owner = owner_of(pool, tool_name) or owner
    return owner
