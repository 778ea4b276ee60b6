"""What this server says, and lets nobody else say, under keys of its own in `_meta`: where something comes from.

Each server like this one has a number for as long as it runs, which it says in `_meta` of what it asks of the servers
behind it, and of its lists where one of its like asks for them. What is listed carries the numbers of the servers that
it has come through, and is not listed to one of these again: so the lists of servers in a ring settle.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from pydantic_core import to_json

from server.protocol.json_rpc import Json, as_mapping
from tools.contract.tool_errors import ToolError, ToolErrorType

OWN_KEYS = "coretools-mcp/"
"""Our keys begin so, in `_meta` and in questions: clients may take what stands there for our word."""

UPSTREAM_KEY = "coretools-mcp/upstream"  # under this `_meta` key stands which server something came from

FACTS_KEY = "coretools-mcp/facts"  # under this `_meta` key of a result stand small facts for programs

CHAIN_KEY = "coretools-mcp/chain"
"""Under this `_meta` key stand the numbers of the servers that a request has passed, or that a list comes through."""

THIS_SERVER = secrets.token_hex(8)
OF_THIS_SERVER: Json = {CHAIN_KEY: [THIS_SERVER]}  # what `_meta` of requests of our own says

MOST_HOPS = 8  # servers like this one that a request may pass; more look like a ring

_OWN_NAME = OWN_KEYS.rstrip("/")

_DATA = frozenset({"structuredContent", "input", "data", "inputSchema", "outputSchema", "requestedSchema"})
"""What holds data of tools and schemas, which may be large: it is looked through only where our name is in it."""

_OF_PROTOCOL: Mapping[str, Callable[[Any], bool]] = {
    "progressToken": lambda token: type(token) in (str, int),
    "io.modelcontextprotocol/related-task": lambda task: type(as_mapping(task).get("taskId")) is str,
}
"""What `_meta` of a whole message means to clients: where it is something else, some wait for an answer for ever."""

_COMPOUND = frozenset({dict, list})
_LISTED = 2  # how deep the items of an answer to a list lie in it


def remove_own_keys(said: Json, *, is_list: bool = False) -> None:
    """Take our keys out of every `_meta` of what an upstream has said; changed in place, since nobody else has it yet.

    So go keys of the protocol that some client cannot read.
    An answer to a list and its items keep the servers like this one through which they came.
    """
    parts: list[Any] = [said]
    depth = 0
    while parts:
        within: list[Any] = []
        for part in parts:
            if type(part) is list:
                within += cast("list[Any]", part)
                continue
            # Most blocks have texts alone, and so no `_meta`: a result may hold very many.
            fields = as_mapping(part)
            if _COMPOUND.isdisjoint(map(type, fields.values())):
                continue
            if meta := as_mapping(fields.get("_meta")):
                kept = CHAIN_KEY if is_list and depth <= _LISTED else ""
                ours = [key for key in meta if key != kept and f"{key.lower()}/".startswith(OWN_KEYS)]
                if not depth:
                    ours += [key for key, is_right in _OF_PROTOCOL.items() if key in meta and not is_right(meta[key])]
                for key in ours:
                    del meta[key]
                # An empty one that was so may be a schema.
                if ours and not meta:
                    del fields["_meta"]
            for name, value in fields.items():
                if type(value) not in _COMPOUND:
                    continue
                if name in _DATA:
                    # In whatever case: a search in JSON costs a fraction of a look at each part.
                    with suppress(ValueError):
                        if _OWN_NAME.encode() not in to_json(value, inf_nan_mode="null").lower():
                            continue
                within.append(value)
        parts, depth = within, depth + 1


def with_origin(item: Mapping[str, Any], alias: str, **more: str) -> Json:
    """Something of an upstream, an item of a list or a question, with where it comes from."""
    return {**item, "_meta": {**as_mapping(item.get("_meta")), UPSTREAM_KEY: {"server": alias, **more}}}


def chain_of(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """The servers like this one that `_meta` names; none where a request comes from another kind of client."""
    chain: Any = meta.get(CHAIN_KEY)
    if not isinstance(chain, list):
        return ()
    return tuple(each for each in cast("list[Any]", chain)[: MOST_HOPS * 8] if isinstance(each, str))


def chained(meta: Mapping[str, Any], alias: str) -> Json:
    """What `_meta` of a request says that goes one server further, to this one.

    Nothing goes in a ring: a `ToolError` where the request has passed this server before, or too many.
    """
    chain = chain_of(meta)
    if THIS_SERVER in chain or len(chain) >= MOST_HOPS:
        raise ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The call was not passed on to the server {alias}: it has come through {len(chain)} servers like this "
            "one, which stand in a ring. Call the tool by its shortest name.",
        )
    return {CHAIN_KEY: [*chain, THIS_SERVER]}


def has_passed_here(item: Mapping[str, Any]) -> bool:
    """Whether something that is listed to us has come through this very server, or through too many."""
    passed = chain_of(as_mapping(item.get("_meta")))
    return THIS_SERVER in passed or len(passed) >= MOST_HOPS


def listed_for(meta: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> list[Json]:
    """A list as it is given to anyone who asks: clients do not see chains, servers like this one no way in a ring."""
    asker = set(chain_of(meta))
    found: list[Json] = []
    for item in items:
        own = as_mapping(item.get("_meta"))
        passed = chain_of(own)
        if asker and (len(passed) >= MOST_HOPS or asker.intersection(passed)):
            continue
        if not asker and CHAIN_KEY not in own:
            found.append(dict(item))
            continue
        marked = {key: value for key, value in own.items() if key != CHAIN_KEY}
        if asker:
            marked[CHAIN_KEY] = [THIS_SERVER, *passed]
        listed = {key: value for key, value in item.items() if key != "_meta"}
        found.append({**listed, "_meta": marked} if marked else listed)
    return found


def list_meta(meta: Mapping[str, Any]) -> Json:
    """What a list says of itself to anyone who asks: to servers like this one, who it is."""
    return {"_meta": OF_THIS_SERVER} if chain_of(meta) else {}
