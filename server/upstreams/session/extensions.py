"""The relayed protocol extensions (SEP-2133), and their declarations to clients and upstreams.

Only these extensions are declared to clients and upstreams, because messages of other extensions would not be relayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.protocol.json_rpc import Json, as_mapping

APPS = "io.modelcontextprotocol/ui"  # SEP-1865
SKILLS = "io.modelcontextprotocol/skills"  # SEP-2640
TASKS = "io.modelcontextprotocol/tasks"  # SEP-2663: a call may return a task, whose result is fetched later

ANNOUNCED_EXTENSIONS: Mapping[str, Json] = {APPS: {}, SKILLS: {"directoryRead": True}, TASKS: {}}
"""The relayed extensions with their settings, as declared to clients."""

DECLARED_EXTENSIONS: Json = {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}, SKILLS: {}, TASKS: {}}
"""The same extensions, as declared to upstreams in a session for many clients."""


def with_relayed_extensions(capabilities: Json) -> Json:
    """Return a client's capabilities, without extensions that are not relayed."""
    if "extensions" not in capabilities:
        return capabilities
    declared = as_mapping(capabilities["extensions"])
    relayed = {name: declared[name] for name in declared if name in ANNOUNCED_EXTENSIONS}
    others = {name: capabilities[name] for name in capabilities if name != "extensions"}
    return {**others, "extensions": relayed} if relayed else others


def declares(capabilities: Mapping[str, Any], extension: str) -> bool:
    return extension in as_mapping(capabilities.get("extensions"))
