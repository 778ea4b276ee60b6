"""Which arguments of a tool a request over HTTP has to repeat as headers (2026-07-28), by the tool's schema.

Without being told, the SDK makes the whole list of tools for each call to find out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import X_MCP_HEADER_KEY

from tools.registry import ToolRegistry


class ParameterHeaders:
    """Looks schemas up and remembers what it found, until the tools change.

    Args:
        registry: Where the tools are.
    """

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._schemas: dict[str, Mapping[str, Any] | None] = {}
        registry.on_change(self._schemas.clear)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool that asks for headers; `None` where there is nothing to compare."""
        if name not in self._schemas:
            if not self._registry.knows(name):
                return None
            schema = self._registry.get_tool(name).parameter_schema
            self._schemas[name] = schema if X_MCP_HEADER_KEY in json.dumps(schema) else None
        return self._schemas[name]
