"""What the settings name: each check tries it within a limit, with what to do where it does not work."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

import anyio

from server.commands import Commands
from server.console.findings import Finding, Health
from server.custom_tools import CustomTools
from server.settings import SettingsReport
from server.settings.errors import KeyPath
from server.settings.files import real_path
from server.settings.layers import FileState
from server.settings.resolution import HINT
from server.upstreams.connection import Audience, Upstream
from server.upstreams.discovered_mcp_tool import UpstreamCall
from server.upstreams.names import NameMap
from server.upstreams.pool import UpstreamPool
from server.upstreams.proxy import EVERYTHING
from server.upstreams.state import WAYS_TO_AUTHENTICATE, UpstreamState
from tools.builtins import builtin_tools
from tools.contract.result import ToolResult
from tools.contract.threads import THREADS
from tools.discovery.discovery import DiscoveryStatus
from tools.execution.environment import command_environment
from tools.filesystem.programs import find_configured
from tools.registry import ToolRegistry
from tools.web.search_settings import SETUP

UPSTREAM_SECONDS = 35.0
"""How long an upstream is waited for; its own connectTimeout, 30 s by default, usually ends first (ours)."""

DISCOVERY_SECONDS = 35.0
"""How long the discovery command is waited for, whatever tools.discoveryTimeout says (ours)."""

NO_VARIABLE = "an environment variable that it names is not set"


async def check_search(report: SettingsReport) -> Sequence[Finding]:
    """Who searches the web; no key is looked at beyond whether there is one."""
    search = report.settings.web.search
    providers = search.configured
    if search.default is not None and search.default not in providers:
        text = f"web.search.default is {search.default}, which has no key or no address"
        return [Finding("web search", Health.BROKEN, text, f"set web.search.{search.default}, or another default")]
    if not providers:
        remedy = f"set one of: {'; '.join(SETUP.values())}"
        return [Finding("web search", Health.ABSENT, "no provider is configured", remedy)]
    return [Finding("web search", Health.OK, f"{', '.join(providers)}; asked first: {search.default or providers[0]}")]


async def check_discovery(report: SettingsReport) -> Sequence[Finding]:
    """The custom tools, by running the discovery command."""
    subject = "tools.discoveryCommand"
    if report.settings.tools.discovery_command is None:
        return _without_variable(report, ("tools", "discoveryCommand"), subject)
    registry, commands = ToolRegistry(), Commands(report)
    for tool in builtin_tools():
        registry.register_tool(tool)
    custom = CustomTools(report.settings, commands, registry)
    try:
        with anyio.move_on_after(DISCOVERY_SECONDS):
            async with anyio.create_task_group() as group:
                custom.start(group)
                await custom.wait_until_known()
    finally:
        await commands.aclose(())
    state = custom.state
    if state is None or state.status not in (DiscoveryStatus.DONE, DiscoveryStatus.FAILED):
        text = f"it did not end within {DISCOVERY_SECONDS:g} s"
        return [Finding(subject, Health.BROKEN, text, "run it by hand to see why")]
    if state.status is DiscoveryStatus.FAILED:
        return [Finding(subject, Health.BROKEN, state.problem, "mend it, then: coretools-mcp tools")]
    left = f"; {len(state.warnings)} warnings, which the log has" if state.warnings else ""
    return [Finding(subject, Health.OK, f"{len(state.tools)} tools in {state.seconds:.1f} s{left}")]


async def check_programs(report: SettingsReport) -> Sequence[Finding]:
    """The programs of the call command and of the agents: whether they are there for what runs them."""
    found = await THREADS.run(lambda: _programs(report))
    found += _without_variable(report, ("tools", "callCommand"), "tools.callCommand")
    named = dict.fromkeys(given.path[1] for given in report.given if given.path[0] == "agents" and given.path[1:])
    left_out = [name for name in named if name not in report.settings.agents]
    return [*found, *(Finding(f"agent {name}", Health.BROKEN, f"left out: {NO_VARIABLE}", HINT) for name in left_out)]


def _programs(report: SettingsReport) -> list[Finding]:
    """Each program as it is looked for when it is run. Blocking: files are looked at."""
    settings = report.settings
    roots = [real_path(root) for root in settings.workspace.roots]
    found: list[Finding] = []

    def look(subject: str, command: str, environment: Mapping[str, str], folder: str | None) -> None:
        program = find_configured(command, environment.get("PATH", ""), folder, roots)
        if program is None:
            text = f"its program '{command}' was not found, or cannot be run"
            found.append(Finding(subject, Health.BROKEN, text, "install it, or give its whole path"))
        else:
            found.append(Finding(subject, Health.OK, program))

    if settings.tools.call_command:
        folder = roots[0] if roots else os.getcwd()
        look(
            "tools.callCommand",
            settings.tools.call_command[0],
            command_environment(settings.shell.env, os.environ),
            folder,
        )
    for name, agent in settings.agents.items():
        look(f"agent {name}", agent.command or "", agent.for_tools(name).environment(os.environ), None)
    return found


def _without_variable(report: SettingsReport, path: KeyPath, subject: str) -> list[Finding]:
    """A command that is given and yet not used: only a variable that is not set brings that about."""
    is_given = any(given.path == path and given.value for given in report.given)
    command = getattr(report.settings.tools, "discovery_command" if path[-1] == "discoveryCommand" else "call_command")
    return [Finding(subject, Health.BROKEN, f"not used: {NO_VARIABLE}", HINT)] if is_given and not command else []


async def check_files(report: SettingsReport) -> Sequence[Finding]:
    """The places where settings may stand."""
    found: list[Finding] = []
    for place in report.candidates:
        match place.state:
            case FileState.READ:
                found.append(Finding("settings", Health.OK, place.path))
            case FileState.ABSENT:
                pass
            case FileState.UNTRUSTED | FileState.CHANGED:
                folder = os.path.dirname(os.path.dirname(place.path))
                remedy = f"look at it, then: coretools-mcp trust {shlex.quote(folder)}"
                found.append(Finding("settings", Health.ABSENT, f"{place.path}: {place.state}, not read", remedy))
            case FileState.UNUSABLE:
                remedy = "coretools-mcp config check says why"
                found.append(Finding("settings", Health.BROKEN, f"{place.path}: {place.state}, not read", remedy))
    if not found:
        found.append(Finding("settings", Health.OK, "no file; everything has its default"))
    return found


def _no_call(upstream: Upstream) -> UpstreamCall:
    """Nothing is called while it is only looked at."""

    async def refuse(*_: object) -> ToolResult:
        raise upstream.unavailable()

    return refuse


async def check_upstreams(report: SettingsReport) -> Sequence[Finding]:
    """The servers behind this one, each connected."""
    registry = ToolRegistry()
    for tool in builtin_tools() if report.settings.tools.built_in else ():
        registry.register_tool(tool)  # their names are taken
    pool = UpstreamPool(report.upstreams, registry, 0, report.settings.proxy.name_budget, _no_call)
    left_out = [
        Finding(f"server {entry.alias}", Health.BROKEN, f"left out: {entry.left_out}", HINT)
        if entry.lacks_variable
        else Finding(f"server {entry.alias}", Health.ABSENT, f"left out: {entry.left_out}")
        for entry in report.entries
        if entry.left_out is not None
    ]
    found: list[Finding] = []
    seconds: dict[str, float] = {}

    async def wait(upstream: Upstream) -> None:
        begun = anyio.current_time()
        with anyio.move_on_after(UPSTREAM_SECONDS):
            await upstream.known.wait()
        seconds[upstream.alias] = anyio.current_time() - begun

    async with anyio.create_task_group() as group:
        pool.start(group, Audience(EVERYTHING, None, is_one=True, is_modern=True, question_seconds=0))
        async with anyio.create_task_group() as waiting:
            for upstream in pool.upstreams:
                waiting.start_soon(wait, upstream)
        # Only now: a server that came late may have taken a name.
        found += [_reached(each, seconds[each.alias], pool.catalog.names) for each in pool.upstreams]
        group.cancel_scope.cancel()
    hidden = [Finding(f"server {entry.origin.alias}", Health.ABSENT, str(entry)) for entry in pool.catalog.names.hidden]
    return [*found, *hidden, *left_out]


def _reached(upstream: Upstream, seconds: float, names: NameMap) -> Finding:
    """How one server stands."""
    subject, took = f"server {upstream.alias}", f"{seconds:.1f} s"
    if upstream.is_connected:
        count = sum(origin.alias == upstream.alias for origin in names.published.values())
        return Finding(subject, Health.OK, f"connected in {took}, {count} {'tool' if count == 1 else 'tools'}")
    why = upstream.standing.problem or "it did not answer"
    return Finding(subject, Health.BROKEN, f"{upstream.standing.state} after {took}: {why}", _remedy(upstream))


def _remedy(upstream: Upstream) -> str:
    """What to do about a server that is not connected."""
    key = f"mcpServers.{upstream.alias}"
    if upstream.standing.state is UpstreamState.NEEDS_AUTHENTICATION:
        return f"look at {key}. {WAYS_TO_AUTHENTICATE}"
    if upstream.entry.transport == "stdio":
        return f"look at {key}; what it wrote is on standard error"
    return f"look at the address in {key}, and whether its server is running there"
