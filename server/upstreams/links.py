"""Links to resources in results: spelled as clients know them, where two upstreams have the same URI."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, cast

from server.json_rpc import Json, as_mapping

MOST_SOUGHT = 1_000
"""Links of one result that are compared with templates of resources (ours): some ten milliseconds."""

Published = Callable[[str, bool], str]
"""The URI under which clients know a resource of an upstream; whether templates are compared with it."""


class _Spelling:
    """How the links of one result are spelled, each URI once.

    Args:
        published: Spells a URI of the upstream that gave the result.
    """

    __slots__ = ("_names", "_published")

    def __init__(self, published: Published) -> None:
        self._published = published
        self._names: dict[str, str] = {}

    def of(self, uri: str) -> str:
        name = self._names.get(uri)
        if name is None:
            name = self._names[uri] = self._published(uri, len(self._names) < MOST_SOUGHT)
        return name


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


def _with_blocks(result: Json, name: str, published: Published, spell: Callable[[Json, _Spelling], Json]) -> Json:
    blocks = result.get(name)
    if not isinstance(blocks, list):
        return result
    before = cast("list[Any]", blocks)
    spelling = _Spelling(published)
    after = [spell(cast("Json", each), spelling) if isinstance(each, dict) else each for each in before]
    if all(map(is_, before, after)):
        return result
    return {**result, name: after}


def _message(message: Json, spelling: _Spelling) -> Json:
    content = as_mapping(message.get("content"))
    spelled = _block(content, spelling)
    return message if spelled is content else {**message, "content": spelled}


def _block(block: Json, spelling: _Spelling) -> Json:
    match block.get("type"):
        case "resource_link":
            return _spelled(block, spelling)
        case "resource":
            resource = as_mapping(block.get("resource"))
            spelled = _spelled(resource, spelling)
            return block if spelled is resource else {**block, "resource": spelled}
        case _:
            return block


def _spelled(item: Json, spelling: _Spelling) -> Json:
    uri = item.get("uri")
    if not isinstance(uri, str) or (name := spelling.of(uri)) == uri:
        return item
    return {**item, "uri": name}
