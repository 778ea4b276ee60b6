"""Where something comes from, as `_meta` tells clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.upstreams.peer import Json, as_mapping

UPSTREAM_KEY = "coretools-mcp/upstream"
"""Under this `_meta` key stands which server something came from."""


def with_origin(item: Mapping[str, Any], alias: str, **more: str) -> Json:
    """Something of a server, with where it comes from.

    Args:
        item: An item of a list, or the parameters of a question.
        alias: The server's name in our configuration.
        more: What else to tell of its origin.
    """
    return {**item, "_meta": {**as_mapping(item.get("_meta")), UPSTREAM_KEY: {"server": alias, **more}}}
