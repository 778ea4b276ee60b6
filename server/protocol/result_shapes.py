"""Parts that many results have, and this server's own name and version."""

from __future__ import annotations

from functools import cache

from server import VERSION
from server.protocol.json_rpc import Json

OUR_TITLE = "Core tools"
NEVER_CACHED: Json = {"ttlMs": 0, "cacheScope": "private"}
"""Cache hints that forbid caching, because results may change at any time and depend on the operator's settings."""
LINKS_SINCE = "2025-06-18"  # the first revision whose results may have resource links


@cache
def our_name() -> Json:
    return {"name": "coretools-mcp", "version": VERSION}


def input_required(requests: Json, state: str) -> Json:
    """Return a result with questions, for the 2026-07-28 revision.

    The client repeats its request with the answers and this state.
    """
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}
