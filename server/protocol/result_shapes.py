"""Adapts results to the client's revision, and defines this server's own name and version."""

from __future__ import annotations

from functools import cache

from server import VERSION
from server.protocol.json_rpc import Json, as_mapping
from server.protocol.revisions import MODERN_PROTOCOL_VERSIONS, SERVER_INFO_META_KEY

OUR_TITLE = "Core tools"
NEVER_CACHED: Json = {"ttlMs": 0, "cacheScope": "private"}
"""Cache hints that forbid caching, because results may change at any time and depend on the operator's settings."""
LINKS_SINCE = "2025-06-18"  # the first revision whose results may have resource links
_CACHEABLE = frozenset({"server/discover", "resources/read", "resources/directory/read", "skills/get"})
_OF_2026 = frozenset({"resultType", "ttlMs", "cacheScope"})
"""Keys that handshake-era results do not have."""


@cache
def our_name() -> Json:
    """Return this server's name and version."""
    return {"name": "coretools-mcp", "version": VERSION}


def input_required(requests: Json, state: str) -> Json:
    """Return a result with questions, for the 2026-07-28 revision.

    The client repeats its request with the answers and this state.
    """
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def result_for_client(method: str, result: Json, version: str) -> Json:
    """Convert a result from this server or an upstream to the client's revision.

    Only keys that the client's revision does not have are removed.
    """
    is_modern = version in MODERN_PROTOCOL_VERSIONS
    given = as_mapping(result.get("_meta"))
    if result.get("_meta", given) is None:  # some servers write null, which no client accepts
        result = {name: value for name, value in result.items() if name != "_meta"}
    if not is_modern:
        if SERVER_INFO_META_KEY not in given and _OF_2026.isdisjoint(result):
            return result
        meta = {key: value for key, value in given.items() if key != SERVER_INFO_META_KEY}
        kept = {key: value for key, value in result.items() if key not in _OF_2026 and key != "_meta"}
        return {**kept, "_meta": meta} if meta else kept
    base: Json = {"resultType": "complete"}
    if method in _CACHEABLE and result.get("resultType", "complete") == "complete":
        base |= NEVER_CACHED
    return {**base, **result, "_meta": {**given, SERVER_INFO_META_KEY: our_name() | {"title": OUR_TITLE}}}
