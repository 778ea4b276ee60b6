"""Servers like this one in a row: how many a request has passed, and whether one of them is this very server.

Each server has a number of its own for as long as it runs. It says so in `_meta` of what it asks of the servers behind
it, and of its lists, so that a ring of servers is seen where it closes.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, cast

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
