"""Servers like this one in a row: how many a request has passed, and whether one of them is this very server.

Each server has a number of its own for as long as it runs. It says so in `_meta` of what it asks of the servers behind
it, and of its lists where one of its like asks for them. What is listed carries the numbers of the servers that it has
come through, and is not listed to one of these again: so the lists of servers in a ring settle.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, cast

from server.json_rpc import Json, as_mapping
from tools.contract.errors import ToolError, ToolErrorType

CHAIN_KEY = "coretools-mcp/chain"
"""Under this `_meta` key stand the numbers of the servers that a request has passed, or that a list comes through."""

THIS_SERVER = secrets.token_hex(8)

MOST_HOPS = 8
"""Servers like this one that a request may pass (ours); more look like a ring."""


def chain_of(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """The servers that `_meta` names."""
    chain: Any = meta.get(CHAIN_KEY)
    if not isinstance(chain, list):
        return ()
    return tuple(each for each in cast("list[Any]", chain)[: MOST_HOPS * 8] if isinstance(each, str))


def chained(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What `_meta` of a request says that goes one server further."""
    return {CHAIN_KEY: [*chain_of(meta), THIS_SERVER]}


def is_asked_by_its_like(meta: Mapping[str, Any]) -> bool:
    """Whether a request comes from a server like this one."""
    return bool(chain_of(meta))


def listed_for(meta: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A list as it is given to whoever asks: clients see nothing of chains, servers like this one no way in a ring.

    Args:
        meta: `_meta` of the request.
        items: What there is; from servers like this one with their numbers.
    """
    asker = chain_of(meta)
    if not asker:
        return [_marked(item, ()) if CHAIN_KEY in _meta_of(item) else dict(item) for item in items]
    found: list[dict[str, Any]] = []
    for item in items:
        passed = chain_of(_meta_of(item))
        if len(passed) < MOST_HOPS and not set(passed) & set(asker):
            found.append(_marked(item, (THIS_SERVER, *passed)))
    return found


def list_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a list says of itself to whoever asks: to servers like this one, who it is."""
    return {"_meta": {CHAIN_KEY: [THIS_SERVER]}} if is_asked_by_its_like(meta) else {}


def has_passed_here(item: Mapping[str, Any]) -> bool:
    """Whether something that is listed to us has come through this very server, or through too many."""
    passed = chain_of(_meta_of(item))
    return THIS_SERVER in passed or len(passed) >= MOST_HOPS


def _meta_of(item: Mapping[str, Any]) -> Json:
    return as_mapping(item.get("_meta"))


def _marked(item: Mapping[str, Any], passed: tuple[str, ...]) -> dict[str, Any]:
    meta = {key: value for key, value in _meta_of(item).items() if key != CHAIN_KEY}
    if passed:
        meta[CHAIN_KEY] = list(passed)
    unmarked = {key: value for key, value in item.items() if key != "_meta"}
    return {**unmarked, "_meta": meta} if meta else unmarked


def check_hops(meta: Mapping[str, Any], alias: str) -> None:
    """Refuse to go in a ring.

    Raises:
        ToolError: The request has passed this server before, or too many.
    """
    chain = chain_of(meta)
    if THIS_SERVER in chain or len(chain) >= MOST_HOPS:
        raise ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The call was not passed on to the server {alias}: it has come through {len(chain)} servers like this "
            "one, which stand in a ring. Call the tool by its shortest name.",
        )
