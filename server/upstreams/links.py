"""Links to resources in results: spelled as clients know them, where two upstreams have the same URI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from server.json_rpc import Json, as_mapping

Published = Callable[[str], str]
"""The URI under which clients know a resource of an upstream."""


def with_links(method: str, result: Json, published: Published) -> Json:
    """A result whose links reach the upstream that gave it; the very same where none has to be changed.

    Args:
        method: What was asked for.
        result: As the upstream gave it.
        published: Spells a URI of this upstream.
    """
    if method == "tools/call":
        return _with_blocks(result, "content", published, _block)
    if method == "prompts/get":
        return _with_blocks(result, "messages", published, _message)
    return result


def _with_blocks(result: Json, name: str, published: Published, spell: Callable[[Json, Published], Json]) -> Json:
    blocks = result.get(name)
    if not isinstance(blocks, list):
        return result
    before = cast("list[Any]", blocks)
    after = [spell(cast("Json", each), published) if isinstance(each, dict) else each for each in before]
    if all(one is other for one, other in zip(before, after, strict=True)):
        return result
    return {**result, name: after}


def _message(message: Json, published: Published) -> Json:
    content = as_mapping(message.get("content"))
    spelled = _block(content, published)
    return message if spelled is content else {**message, "content": spelled}


def _block(block: Json, published: Published) -> Json:
    match block.get("type"):
        case "resource_link":
            return _spelled(block, published)
        case "resource":
            resource = as_mapping(block.get("resource"))
            spelled = _spelled(resource, published)
            return block if spelled is resource else {**block, "resource": spelled}
        case _:
            return block


def _spelled(item: Json, published: Published) -> Json:
    uri = item.get("uri")
    if not isinstance(uri, str) or (name := published(uri)) == uri:
        return item
    return {**item, "uri": name}
