"""`tools`: each tool under its published name, and whose it is where the name does not say so."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import anyio

from server.app import App
from server.console import EXIT_FAILED
from server.protocol_mapping import tool_to_wire
from server.run_server import until_signal
from server.settings import SettingsReport
from server.upstreams.catalog.names import NameMap
from server.upstreams.catalog.tools import DiscoveredMCPTool
from tools.call.base_tool import BaseTool
from tools.contract.display import visible_line
from tools.contract.limits import ApprovalMode

SENTENCE_CHARS = 160  # characters of what a tool says of itself in the table; those of other servers may be long (ours)
LEGEND = "* may change something; coretools-mcp permissions explain tells what would be asked before a call"


def show_tools(report: SettingsReport, *, as_json: bool) -> int:
    """Print the tools that a client would see. Exit code 1 if an upstream, or the custom tools, cannot be reached."""

    async def show() -> int:
        app = App(report, "stdio")
        async with app.running():
            app.start_upstreams()
            await app.registry.discover_all_tools()
            settings = report.settings
            plans, shows_forms = settings.approval_mode is ApprovalMode.PLAN, settings.confirmation.style == "form"
            tools = app.tools.offered_tools(plans=plans, shows_forms=shows_forms)
            names = app.pool.catalog.names
            sys.stdout.write((listing_as_json(tools, names) if as_json else listing_as_text(tools, names)) + "\n")
            missing = [upstream for upstream in app.pool.upstreams if upstream.live_session is None]
            for upstream in missing:
                how = f"{upstream.status.state}, {visible_line(upstream.status.problem)}"
                sys.stderr.write(f"coretools-mcp: upstream {upstream.alias}: {how}\n")
            discovery = app.custom_tools.discovery
            problem = discovery.state.problem if discovery is not None else ""
            if problem:
                sys.stderr.write(f"coretools-mcp: custom tools: {visible_line(problem)}\n")
        return EXIT_FAILED if missing or problem else 0

    return anyio.run(until_signal, show)


def listing_as_json(tools: Sequence[BaseTool[Any]], names: NameMap) -> str:
    """The tools as a client is given them, the names that were changed, and what is not listed because of its name."""

    def about(entry: Any, **more: str | None) -> dict[str, str | None]:
        origin = entry.origin
        return {"name": entry.name, "server": origin.alias, "tool": origin.name, "fullName": origin.full_name, **more}

    changed = [about(entry, change=entry.change.value) for entry in names.changed]
    hidden = [about(entry, holder=entry.holder, reachedAs=entry.way_out or None) for entry in names.hidden]
    return json.dumps({"tools": [tool_to_wire(tool) for tool in tools], "changed": changed, "hidden": hidden}, indent=2)


def listing_as_text(tools: Sequence[BaseTool[Any]], names: NameMap) -> str:
    width = max((len(tool.name) for tool in tools), default=0)
    lines: list[str] = []
    for tool in tools:
        mark = "  " if tool.behaviour.read_only else "* "
        sentence = re.split(r"(?<=[.:])\s", tool.description.strip(), maxsplit=1)[0].rstrip(".:")
        about = textwrap.shorten(visible_line(sentence), SENTENCE_CHARS, placeholder=" ...")
        lines.append(f"{mark}{tool.name:<{width}}  {about}")
        if isinstance(tool, DiscoveredMCPTool) and tool.aliases:  # its name is not the usual `alias__tool`
            change = next((entry.change for entry in names.changed if entry.name == tool.name), None)
            origin = f"{tool.upstream_name} of the server {tool.alias}"
            said = visible_line(origin if change is None else f"{origin}; {change}")
            lines.append(f"  {'':<{width}}  = {said}")
    lines += ["", LEGEND]
    if names.hidden:
        lines += ["", "Not listed:", *(f"  {hidden}" for hidden in names.hidden)]
    return "\n".join(lines)
