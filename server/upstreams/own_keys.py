"""The keys of `_meta` that are ours: what an upstream says under one of them is taken out where it comes in."""

from __future__ import annotations

from typing import Any, cast

from server.json_rpc import Json
from server.upstreams.chain import CHAIN_KEY

OWN_KEYS = "coretools-mcp/"
"""Our keys begin so, in `_meta` and in questions: clients may take what stands there for our word."""

_DATA = frozenset({"structuredContent", "input", "data", "inputSchema", "outputSchema", "requestedSchema"})
"""What holds data of tools and schemas, which are theirs; a `_meta` in there has no meaning in the protocol."""

_PLAIN = frozenset({"type", "text", "data", "mimeType"})
"""Most blocks have nothing else, and so no `_meta`: a result may hold very many."""

_LISTED = 2
"""How deep the items of an answer to a list lie in it."""


def remove_own_keys(said: Json, *, is_list: bool = False) -> None:
    """Take our keys out of every `_meta` of what an upstream has said; changed in place, since nobody else has it yet.

    Args:
        said: The result or the parameters of its message.
        is_list: Whether it is an answer to a list: it and its items say through which servers like this one they came.
    """
    parts: list[Any] = [said]
    depth = 0
    while parts:
        within: list[Any] = []
        for part in parts:
            if type(part) is list:
                within += [each for each in cast("list[Any]", part) if _may_hold_keys(each)]
                continue
            fields = cast("Json", part)
            if isinstance(fields.get("_meta"), dict):
                _clean(fields, kept=CHAIN_KEY if is_list and depth <= _LISTED else "")
            for name, value in fields.items():
                if (type(value) is dict or type(value) is list) and name not in _DATA:
                    within.append(value)
        parts, depth = within, depth + 1


def _may_hold_keys(item: Any) -> bool:
    return not item.keys() <= _PLAIN if type(item) is dict else type(item) is list


def _clean(fields: Json, kept: str) -> None:
    meta: Json = fields["_meta"]
    for key in [key for key in meta if key.startswith(OWN_KEYS) and key != kept]:
        del meta[key]
    if not meta:
        del fields["_meta"]
