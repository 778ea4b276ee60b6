"""Results that a custom tool prints in the shape of MCP: passed through where every block is what it should be."""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from typing import Any, cast

from tools.execution.command import OUTPUT_CHARS

MAX_BLOCKS = 1_000
"""Blocks of one result."""

_MEMBERS = frozenset({"content", "structuredContent", "isError", "_meta"})


def mcp_result(printed: Mapping[str, Any], rest: str) -> dict[str, Any] | None:
    """The result in wire shape, or `None` if it is an ordinary object.

    Text is cut where there is more of it than one result shows. Of each block only what the protocol names is kept.

    Args:
        printed: The object that the tool has printed.
        rest: Where the whole of it is, as a phrase; stands where text is cut.
    """
    content = printed.get("content")
    if not isinstance(content, list) or not printed.keys() <= _MEMBERS:
        return None
    structured, is_error = printed.get("structuredContent"), printed.get("isError", False)
    entries = cast("list[Any]", content)
    if not isinstance(is_error, bool) or not (structured is None or isinstance(structured, dict)):
        return None
    if len(entries) > MAX_BLOCKS or not (entries or structured):
        return None
    blocks = [_block(entry) for entry in entries]
    if None in blocks:
        return None
    _cut([block for block in blocks if block is not None], rest)
    result: dict[str, Any] = {"content": blocks}
    if is_error:
        result["isError"] = True
    elif structured is not None and len(json.dumps(structured)) <= OUTPUT_CHARS:
        result["structuredContent"] = structured
    return result


def _block(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    match given.get("type"):
        case "text":
            return _with_texts(given, ("text",), ())
        case "image" | "audio":
            return _with_texts(given, ("data", "mimeType"), ()) if _is_base64(given.get("data")) else None
        case "resource_link":
            return _with_texts(given, ("uri", "name"), ("title", "description", "mimeType"))
        case "resource":
            return _resource(given.get("resource"))
        case _:
            return None


def _with_texts(given: Mapping[str, Any], needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any] | None:
    """The type and these members, or `None` if one of them is no text."""
    named = [key for key in (*needed, *optional) if key in needed or given.get(key) is not None]
    if not all(isinstance(given.get(key), str) for key in named):
        return None
    return {key: given[key] for key in ("type", *named) if key in given}


def _resource(entry: Any) -> dict[str, Any] | None:
    given: Mapping[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    body = "text" if isinstance(given.get("text"), str) else "blob"
    if body == "blob" and not _is_base64(given.get("blob")):
        return None
    resource = _with_texts(given, ("uri", body), ("mimeType",))
    return None if resource is None else {"type": "resource", "resource": resource}


def _is_base64(data: Any) -> bool:
    if not isinstance(data, str):
        return False
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True


def _cut(blocks: list[dict[str, Any]], rest: str) -> None:
    """Keep all text together within what one result shows."""
    room = OUTPUT_CHARS
    for block in blocks:
        holder: dict[str, Any] = block.get("resource", block)
        text = holder.get("text")
        if not isinstance(text, str):
            continue
        if len(text) > room:
            holder["text"] = f"{text[:room]}\n[... cut here, {rest} ...]"
        room = max(room - len(text), 0)
