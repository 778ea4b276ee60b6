"""MCP Apps (SEP-1865): the page that is a tool's user interface, and the tools that this page may call.

Clients take the page's URI from the tool's `_meta`, which must therefore contain the published URI. A page calls tools
by the names that its own server uses, because it knows no other server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from server.protocol.json_rpc import Json, as_mapping
from server.upstreams.wire.own_meta import chain_of
from tools.permissions.tool_names import BETWEEN

FLAT_KEY = "ui/resourceUri"  # the `_meta` key in a draft of the extension


def app_links(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield the URIs with which a tool refers to its app: one, possibly repeated under the draft's key."""
    meta = as_mapping(tool.get("_meta"))
    for uri in (as_mapping(meta.get("ui")).get("resourceUri"), meta.get(FLAT_KEY)):
        if isinstance(uri, str):
            yield uri


def with_app_links(tool: Json, published: Callable[[str], str]) -> Json:
    """Return a tool with published URIs in its app links; the rest of its `_meta` is unchanged."""
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
    """Return the name that a server's apps use for a tool, without the aliases of coretools-mcp servers in between."""
    return tool["name"].split(BETWEEN, len(chain_of(as_mapping(tool.get("_meta")))))[-1]


def is_for_apps(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool may be called by its server's apps; the default is yes."""
    return _is_for("app", tool)


def is_for_models(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool may be called by models, not only by its server's apps."""
    return _is_for("model", tool)


def _is_for(whom: str, tool: Mapping[str, Any]) -> bool:
    visibility: Any = as_mapping(as_mapping(tool.get("_meta")).get("ui")).get("visibility")
    return whom in cast("list[Any]", visibility) if isinstance(visibility, list) else True
