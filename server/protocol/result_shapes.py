"""Results in the shape of the revision that a client speaks, and who we say that we are."""

from __future__ import annotations

from functools import cache

from server import VERSION
from server.protocol.json_rpc import Json, as_mapping
from server.protocol.revisions import MODERN_PROTOCOL_VERSIONS, SERVER_INFO_META_KEY

OUR_TITLE = "Core tools"
NEVER_CACHED: Json = {"ttlMs": 0, "cacheScope": "private"}
"""Lists may change at any time, and depend on what the operator configured."""
LINKS_SINCE = "2025-06-18"  # the revision since which a result may have links to resources
_CACHEABLE = frozenset({"server/discover", "resources/read", "resources/directory/read", "skills/get"})
_OF_2026 = frozenset({"resultType", "ttlMs", "cacheScope"})
"""What results of the handshake era do not have."""


@cache
def our_name() -> Json:
    """How we introduce ourselves."""
    return {"name": "coretools-mcp", "version": VERSION}


def input_required(requests: Json, state: str) -> Json:
    """A result that asks (2026-07-28): the client sends its request again, with the answers and this state."""
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def result_for_client(method: str, result: Json, version: str) -> Json:
    """A result, ours or an upstream's, in the shape of the client's revision; nothing of it is lost."""
    is_modern = version in MODERN_PROTOCOL_VERSIONS
    given = as_mapping(result.get("_meta"))
    if result.get("_meta", given) is None:  # which some write where there is nothing, and no client takes
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
