"""Where something comes from, as `_meta` tells clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.json_rpc import Json, as_mapping
from tools.contract.display import visible_line

UPSTREAM_KEY = "coretools-mcp/upstream"
"""Under this `_meta` key stands which server something came from."""


def log_of(alias: str, params: Json) -> Json:
    """A log message of a server, whose logger begins with its alias, so that it cannot speak as us or as another one.

    Args:
        alias: The server's name in our configuration.
        params: As the server gave them.
    """
    named = params.get("logger")
    return {**params, "logger": f"{alias}/{visible_line(named)}" if isinstance(named, str) and named else alias}


def with_origin(item: Mapping[str, Any], alias: str, **more: str) -> Json:
    """Something of a server, with where it comes from.

    Args:
        item: An item of a list, or the parameters of a question.
        alias: The server's name in our configuration.
        more: What else to tell of its origin.
    """
    return {**item, "_meta": {**as_mapping(item.get("_meta")), UPSTREAM_KEY: {"server": alias, **more}}}
