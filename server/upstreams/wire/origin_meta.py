"""This server's own keys in `_meta`: the origin of items, and facts about results. Nobody else may set them.

Each running coretools-mcp server has a random id. The server sends it in the `_meta` of requests to upstreams and of
lists to other coretools-mcp servers. List items carry the ids of the coretools-mcp servers that they came through. An
item is not listed again to a server that it came through, so lists stop growing even in a loop of servers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from pydantic_core import to_json

from server.protocol.json_rpc import Json, as_list, as_mapping
from tools.contract.tool_errors import ToolError, ToolErrorType

OWN_KEYS = "coretools-mcp/"  # the prefix of this server's keys in `_meta` and in questions; clients may trust them
UPSTREAM_KEY = "coretools-mcp/upstream"  # the `_meta` key that names the server of an item
FACTS_KEY = "coretools-mcp/facts"  # the `_meta` key for machine-readable facts about a result
CHAIN_KEY = "coretools-mcp/chain"  # the `_meta` key with the ids of the servers that a request or a list came through

THIS_SERVER = secrets.token_hex(8)
OF_THIS_SERVER: Json = {CHAIN_KEY: [THIS_SERVER]}  # the `_meta` of this server's own requests

MAX_HOPS = 8  # maximum number of coretools-mcp servers that a request may pass through; more are treated as a loop

_OWN_NAME = OWN_KEYS.rstrip("/")

_DATA_KEYS = frozenset({"structuredContent", "input", "data", "inputSchema", "outputSchema", "requestedSchema"})
"""Keys whose values may be large, and are traversed only if their JSON contains this server's prefix."""

# The protocol's keys in a message's `_meta`, each with a check of its value. If a value is invalid, some clients wait
# for a response forever.
_PROTOCOL_KEYS: Mapping[str, Callable[[Any], bool]] = {
    "progressToken": lambda token: type(token) in (str, int),
    "io.modelcontextprotocol/related-task": lambda task: type(as_mapping(task).get("taskId")) is str,
}
_COMPOUND = frozenset({dict, list})
_ITEM_DEPTH = 2  # the depth of list items in a response


def remove_own_keys(message: Json, *, is_list: bool = False) -> None:
    """Remove this server's keys, in place, from every `_meta` of an upstream's message.

    Protocol keys that some clients cannot read are removed too. A list and its items keep the ids of the
    coretools-mcp servers that they came through (`CHAIN_KEY`).
    """
    parts: list[Any] = [message]
    depth = 0
    while parts:
        children: list[Any] = []
        for part in parts:
            if type(part) is list:
                children += cast("list[Any]", part)
                continue
            # Fast path: a result may have very many blocks, mostly text without `_meta`.
            fields = as_mapping(part)
            if _COMPOUND.isdisjoint(map(type, fields.values())):
                continue
            if meta := as_mapping(fields.get("_meta")):
                kept_key = CHAIN_KEY if is_list and depth <= _ITEM_DEPTH else ""
                own_keys = [key for key in meta if key != kept_key and f"{key.lower()}/".startswith(OWN_KEYS)]
                if not depth:
                    own_keys += [key for key, is_ok in _PROTOCOL_KEYS.items() if key in meta and not is_ok(meta[key])]
                for key in own_keys:
                    del meta[key]
                # Remove `_meta` only if it has become empty here: one that was already empty may be a schema.
                if own_keys and not meta:
                    del fields["_meta"]
            for name, value in fields.items():
                if type(value) not in _COMPOUND:
                    continue
                if name in _DATA_KEYS:
                    # Searching the JSON text is much faster than traversing the value.
                    with suppress(ValueError):
                        if _OWN_NAME.encode() not in to_json(value, inf_nan_mode="null").lower():
                            continue
                children.append(value)
        parts, depth = children, depth + 1


def with_origin(item: Mapping[str, Any], alias: str, **extra: str) -> Json:
    """Add the upstream's alias, and `extra`, to the `_meta` of an item or question from that upstream."""
    return {**item, "_meta": {**as_mapping(item.get("_meta")), UPSTREAM_KEY: {"server": alias, **extra}}}


def chain_of(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of the coretools-mcp servers in `_meta`; empty if `_meta` comes from another program."""
    chain = as_list(meta.get(CHAIN_KEY))[: MAX_HOPS * 8]
    return tuple(server_id for server_id in chain if isinstance(server_id, str))


def chained(meta: Mapping[str, Any], alias: str) -> Json:
    """Return the `_meta` entries of a request to pass on. Raises a `ToolError` after a loop, or too many servers."""
    chain = chain_of(meta)
    if THIS_SERVER in chain or len(chain) >= MAX_HOPS:
        raise ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The call was not passed on to the server {alias}, because it has come through too many coretools-mcp "
            f"servers ({len(chain)}), or through this one before. Call the tool by its shortest name.",
        )
    return {CHAIN_KEY: [*chain, THIS_SERVER]}


def has_passed_here(item: Mapping[str, Any]) -> bool:
    """Return whether a listed item has come through this server itself, or through too many servers."""
    chain = chain_of(as_mapping(item.get("_meta")))
    return THIS_SERVER in chain or len(chain) >= MAX_HOPS


def listed_for(meta: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Adapt a list to its receiver.

    Another coretools-mcp server gets no items that passed through it or through too many servers. Other clients get no
    server ids.
    """
    client_chain = set(chain_of(meta))
    new_items: list[Json] = []
    for item in items:
        item_meta = as_mapping(item.get("_meta"))
        chain = chain_of(item_meta)
        if client_chain and (len(chain) >= MAX_HOPS or client_chain.intersection(chain)):
            continue
        if not client_chain and CHAIN_KEY not in item_meta:
            new_items.append(dict(item))
            continue
        new_meta = {key: value for key, value in item_meta.items() if key != CHAIN_KEY}
        if client_chain:
            new_meta[CHAIN_KEY] = [THIS_SERVER, *chain]
        new_item = {key: value for key, value in item.items() if key != "_meta"}
        new_items.append({**new_item, "_meta": new_meta} if new_meta else new_item)
    return new_items


def list_meta(meta: Mapping[str, Any]) -> Json:
    """Return the `_meta` of a list: this server's id if the client is a coretools-mcp server, otherwise nothing."""
    return {"_meta": OF_THIS_SERVER} if chain_of(meta) else {}
