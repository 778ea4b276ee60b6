"""What the command `tools` prints: each tool under its published name, and whose it is where that does not say so."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from server.exposure import tool_to_wire
from server.upstreams.discovered_mcp_tool import DiscoveredMCPTool
from server.upstreams.names import NameMap
from tools.contract.base import BaseTool
from tools.display import visible_line

SENTENCE_CHARS = 160
"""Characters of what a tool says of itself in the table; those of other servers may be long (ours)."""

LEGEND = "* may change something; coretools-mcp permissions explain tells what would be asked before a call"


def listing_as_json(tools: Sequence[BaseTool[Any]], names: NameMap) -> str:
    """The tools as a client is given them, the names that were changed, and what is not listed because of its name."""
    changed = [{"name": entry.name, **_origin(entry.origin), "change": entry.change.value} for entry in names.changed]
    hidden = [
        {"name": entry.name, **_origin(entry.origin), "holder": entry.holder, "reachedAs": entry.way_out or None}
        for entry in names.hidden
    ]
    return json.dumps({"tools": [tool_to_wire(tool) for tool in tools], "changed": changed, "hidden": hidden}, indent=2)


def _origin(origin: Any) -> dict[str, str]:
    return {"server": origin.alias, "tool": origin.name, "fullName": origin.full_name}


def listing_as_text(tools: Sequence[BaseTool[Any]], names: NameMap) -> str:
    """The same for a person."""
    width = max((len(tool.name) for tool in tools), default=0)
    lines: list[str] = []
    for tool in tools:
        mark = "  " if tool.behaviour.read_only else "* "
        lines.append(f"{mark}{tool.name:<{width}}  {_first_sentence(tool.description)}")
        lines += (f"  {'':<{width}}  = {origin}" for origin in _origin_of(tool, names))
    lines += ["", LEGEND]
    if names.hidden:
        lines += ["", "Not listed:", *(f"  {hidden}" for hidden in names.hidden)]
    return "\n".join(lines)


def _origin_of(tool: BaseTool[Any], names: NameMap) -> Iterator[str]:
    """Whose tool it is, where its name is not the usual `alias__tool`."""
    if not isinstance(tool, DiscoveredMCPTool) or not tool.aliases:
        return
    change = next((entry.change for entry in names.changed if entry.name == tool.name), None)
    said = f"{tool.upstream_name} of the server {tool.alias}"
    yield visible_line(said if change is None else f"{said}; {change}")


def _first_sentence(description: str) -> str:
    sentence = re.split(r"(?<=[.:])\s", description.strip(), maxsplit=1)[0].rstrip(".:")
    return textwrap.shorten(visible_line(sentence), SENTENCE_CHARS, placeholder=" ...")
