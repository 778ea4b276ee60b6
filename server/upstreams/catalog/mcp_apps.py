"""MCP Apps (SEP-1865): which resource a tool is shown by, and which tools the page that is in it may call.

A client takes the address of an app from `_meta` of a tool, so what is read by another URI here has to be named by
that there too. What a page calls it calls by the name that its own server uses, since it knows of no other server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from server.protocol.json_rpc import Json, as_mapping
from server.upstreams.wire.own_meta import chain_of
from tools.permissions.tool_names import BETWEEN

FLAT_KEY = "ui/resourceUri"  # under this `_meta` key servers say so that follow a draft of the extension


def app_links(tool: Mapping[str, Any]) -> Iterator[str]:
    """The URIs by which a tool names its app: one, and perhaps the same under the key of the draft."""
    meta = as_mapping(tool.get("_meta"))
    for uri in (as_mapping(meta.get("ui")).get("resourceUri"), meta.get(FLAT_KEY)):
        if isinstance(uri, str):
            yield uri


def with_app_links(tool: Json, published: Callable[[str], str]) -> Json:
    """A tool whose links lead to its own app under the URIs that clients know; all else of its `_meta` stays."""
    changed = {uri: name for uri in app_links(tool) if (name := published(uri)) != uri}
    if not changed:
        return tool
    meta = dict(as_mapping(tool.get("_meta")))
    if isinstance(uri := as_mapping(meta.get("ui")).get("resourceUri"), str):
        meta["ui"] = {**meta["ui"], "resourceUri": changed.get(uri, uri)}
    if isinstance(uri := meta.get(FLAT_KEY), str):
        meta[FLAT_KEY] = changed.get(uri, uri)
    return {**tool, "_meta": meta}


def name_in_apps(tool: Mapping[str, Any]) -> str:
    """By what name apps of its server call a tool: without the aliases that servers like this one put before it."""
    return tool["name"].split(BETWEEN, len(chain_of(as_mapping(tool.get("_meta")))))[-1]


def is_for_apps(tool: Mapping[str, Any]) -> bool:
    """Whether the apps of its server may call a tool; those that do not say for whom they are are for all."""
    return _is_for("app", tool)


def is_for_models(tool: Mapping[str, Any]) -> bool:
    """Whether models may call a tool, and not only the apps of its server."""
    return _is_for("model", tool)


def _is_for(whom: str, tool: Mapping[str, Any]) -> bool:
    visibility: Any = as_mapping(as_mapping(tool.get("_meta")).get("ui")).get("visibility")
    return whom in cast("list[Any]", visibility) if isinstance(visibility, list) else True
