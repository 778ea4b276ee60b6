"""`tools`: lists each tool by its published name, with its server and whether the user is asked before a call."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from server.app import App
from server.console import EXIT_FAILED
from server.console.terminal import Spinner, note, show, show_json, show_table
from server.console.upstream_waits import connect, quiet_log, show_failure
from server.requests.protocol_mapping import tool_to_wire
from server.run_server import until_signal
from server.settings import SettingsReport
from server.upstreams.catalog.published_names import NameMap, full_name
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tools.call.base_tool import BaseTool
from tools.contract.display import visible_line
from tools.contract.limits import ApprovalMode
from tools.permissions.verdict import Verdict

SENTENCE_CHARS = 160  # maximum length of a tool's description in the table
ASKED = {Verdict.ASK: "yes", Verdict.ALLOW: "no", Verdict.DENY: "refused"}
LEGEND = "Rules and arguments can change whether you are asked. For one call: coretools-mcp permissions explain CALL."


def show_tools(report: SettingsReport, *, as_json: bool) -> int:
    """Print the tools that a client would see.

    Return exit code 1 if a server or the custom tools are unavailable, or if the lock file cannot be used.
    """
    quiet_log(report.settings.log.level)

    async def list_tools() -> int:
        app = App(report, "stdio")
        async with app.running():
            await connect(app, app.pool.upstreams)
            async with Spinner().running("waiting for the custom tools"):
                await app.registry.discover_all_tools()
            settings = report.settings
            plans, shows_forms = settings.approval_mode is ApprovalMode.PLAN, settings.confirmation.style == "form"
            tools = app.tools.offered_tools(plans=plans, shows_forms=shows_forms)
            catalog = app.pool.catalog
            standings = {  # the lock status of tools by name; empty without a lock file
                tool.name: standing
                for tool in tools
                if isinstance(tool, DiscoveredMCPTool)
                and (standing := catalog.standing(tool.alias, tool.upstream_name))
            }
            if as_json:
                show_json(listing(tools, catalog.names, standings))
            else:
                asked = {tool.name: (await app.running_server.permission_of(tool)).verdict for tool in tools}
                show_listing(tools, asked, catalog.names, standings)
            sys.stdout.flush()
            missing = [upstream for upstream in app.pool.upstreams if upstream.live_session is None]
            for upstream in missing:
                show_failure(f"upstream {upstream.alias}", upstream)
            lock = catalog.lock
            if lock is not None and lock.problem:
                note(f"{visible_line(lock.path)}: {lock.why_closed}")
            discovery = app.custom_tools.discovery
            problem = discovery.state.problem if discovery is not None else ""
            if problem:
                note(f"custom tools: {problem}")
        return EXIT_FAILED if missing or problem or (lock is not None and lock.problem) else 0

    return anyio.run(until_signal, list_tools)


def listing(tools: Sequence[BaseTool[Any]], names: NameMap, standings: Mapping[str, str]) -> dict[str, Any]:
    """Return the tools as a client sees them, the changed names, and the tools that are hidden because of their names.

    With a lock file, each tool also has its lock status.
    """

    def about(entry: Any, **more: str | None) -> dict[str, str | None]:
        origin = entry.origin
        return {"name": entry.name, "server": origin.alias, "tool": origin.name, "fullName": origin.full_name, **more}

    changed = [about(entry, change=entry.change.value) for entry in names.changed]
    hidden = [about(entry, holder=entry.holder, reachedAs=entry.way_out or None) for entry in names.hidden]
    listed = {"tools": [tool_to_wire(tool) for tool in tools], "changed": changed, "hidden": hidden}
    return {**listed, **({"approval": dict(standings)} if standings else {})}


def show_listing(
    tools: Sequence[BaseTool[Any]], asked: Mapping[str, Verdict], names: NameMap, standings: Mapping[str, str]
) -> None:
    rows: list[tuple[str, str, str]] = []
    for tool in tools:
        sentence = re.split(r"(?<=[.:])\s", tool.description.strip(), maxsplit=1)[0].rstrip(".:")
        about = textwrap.shorten(visible_line(sentence), SENTENCE_CHARS, placeholder=" ...")
        rows.append((tool.name, ASKED[asked[tool.name]], about))
        if standing := standings.get(tool.name):
            rows.append(("", "", f"= {visible_line(standing)}"))
        if isinstance(tool, DiscoveredMCPTool) and tool.name != full_name(tool.alias, tool.upstream_name):
            change = next((entry.change for entry in names.changed if entry.name == tool.name), None)
            origin = f"{tool.upstream_name} of the server {tool.alias}"
            rows.append(("", "", "= " + visible_line(origin if change is None else f"{origin}; {change}")))
    show_table(("tool", "asked first", "what it does"), rows)
    show("", LEGEND)
    if names.hidden:
        show("", "Not listed:", *(f"  {visible_line(str(hidden))}" for hidden in names.hidden))
