"""The relayed protocol extensions (SEP-2133), and their declarations to clients and upstreams.

Only these extensions are declared to clients and upstreams, because messages of other extensions would not be relayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from server.protocol.json_rpc import Json, as_mapping

APPS = "io.modelcontextprotocol/ui"  # SEP-1865
SKILLS = "io.modelcontextprotocol/skills"  # SEP-2640
TASKS = "io.modelcontextprotocol/tasks"  # SEP-2663: a call may return a task, whose result is fetched later


@dataclass(frozen=True, slots=True)
class Extension:
    """The settings of an extension, as declared to clients and to upstreams."""

    announced: Json = field(default_factory=dict[str, Any])  # declared to clients
    declared: Json = field(default_factory=dict[str, Any])  # declared to upstreams, in a session for many clients


RELAYED_EXTENSIONS: Mapping[str, Extension] = {
    APPS: Extension(declared={"mimeTypes": ["text/html;profile=mcp-app"]}),
    SKILLS: Extension(announced={"directoryRead": True}),
    TASKS: Extension(),
}


def with_relayed_extensions(capabilities: Json) -> Json:
    """Return a client's capabilities, without extensions that are not relayed."""
    if "extensions" not in capabilities:
        return capabilities
    declared = as_mapping(capabilities["extensions"])
    relayed = {name: declared[name] for name in declared if name in RELAYED_EXTENSIONS}
    others = {name: capabilities[name] for name in capabilities if name != "extensions"}
    return {**others, "extensions": relayed} if relayed else others


def declares(capabilities: Mapping[str, Any], extension: str) -> bool:
    return extension in as_mapping(capabilities.get("extensions"))
