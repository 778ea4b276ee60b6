"""The keys of `_meta` that are ours: what an upstream says under one of them is taken out where it comes in."""

from __future__ import annotations

from typing import Any, cast

from pydantic_core import to_json

from server.json_rpc import Json
from server.upstreams.chain import CHAIN_KEY

OWN_KEYS = "coretools-mcp/"
"""Our keys begin so, in `_meta` and in questions: clients may take what stands there for our word."""

_OWN_NAME = OWN_KEYS.rstrip("/")

_DATA = frozenset({"structuredContent", "input", "data", "inputSchema", "outputSchema", "requestedSchema"})
"""What holds data of tools and schemas, which may be large: it is looked through only where our name is in it."""

_LISTED = 2
"""How deep the items of an answer to a list lie in it."""


def remove_own_keys(said: Json, *, is_list: bool = False) -> None:
    """Take our keys out of every `_meta` of what an upstream has said; changed in place, since nobody else has it yet.

    Args:
        said: The result, the parameters or the error of its message.
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
                if (type(value) is dict or type(value) is list) and (name not in _DATA or _names_us(value)):
                    within.append(value)
        parts, depth = within, depth + 1


def _may_hold_keys(item: Any) -> bool:
    # Most blocks have texts alone, and so no `_meta`: a result may hold very many.
    return any(map(_is_compound, cast("Json", item).values())) if type(item) is dict else type(item) is list


def _is_compound(value: Any) -> bool:
    return type(value) is dict or type(value) is list


def _names_us(data: Any) -> bool:
    """Whether our name is in it, in whatever case: a search in JSON costs a fraction of a look at each part."""
    try:
        return _OWN_NAME.encode() in to_json(data, inf_nan_mode="null").lower()
    except ValueError:
        return True


def _is_ours(key: str) -> bool:
    folded = key.lower()
    return folded.startswith(OWN_KEYS) or folded == _OWN_NAME


def _clean(fields: Json, kept: str) -> None:
    meta: Json = fields["_meta"]
    ours = [key for key in meta if _is_ours(key) and key != kept]
    for key in ours:
        del meta[key]
    # An empty one that was so may be a schema.
    if ours and not meta:
        del fields["_meta"]
