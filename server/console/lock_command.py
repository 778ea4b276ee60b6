"""`lock`: writes the approved upstreams and tools to `mcp.lock.json`, and shows differences from that file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal

from server.app import App
from server.console import EXIT_FAILED, EXIT_USAGE, CommandFailure, UsageError
from server.console.terminal import confirm, note, show, show_json
from server.console.upstream_messages import connect, quiet_log, show_failure
from server.console.user_files import replace_content
from server.protocol.json_rpc import Json
from server.run_server import run_in_app
from server.settings import SettingsReport
from server.settings.load import LockContent
from server.settings.rule_names import did_you_mean
from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.blocked_tools import BlockedMCPTool
from server.upstreams.catalog.lock_file import (
    COMMAND,
    Difference,
    Lock,
    differences,
    executable_hash,
    lock_text,
    read_lock,
    server_entry,
    tool_entry,
    write_approved,
)
from server.upstreams.catalog.suspicious_tools import labels_of
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.connections.connection import Upstream
from server.upstreams.connections.tool_owner import owner_of_tool
from server.upstreams.session.list_reader import TOOLS
from tools.contract.display import visible, visible_line, without_gaps
from tools.contract.tool_errors import ToolError
from tools.machine.threads import THREADS

LockAction = Literal["write", "diff", "check"]


def lock(report: SettingsReport, action: LockAction, names: Sequence[str], *, as_json: bool, is_sure: bool) -> int:
    """Connect to the servers, show how they differ from the lock file, and update the file if `action` is "write".

    If `names` lists tools and servers to approve, all other entries stay unchanged. The exit code is 1 if a server is
    unavailable, and 2 if there is no usable lock file but one is needed. For a check, it is 1 if a tool is blocked, and
    otherwise 2 if there is no usable lock file or a server is unavailable.
    """
    if report.lock is None:
        raise CommandFailure(f"there is no home folder, so there is no place for {LOCK_NAME}. Use --config FILE.")
    source, lock_file = report.lock, read_lock(report.lock, report.command_options)
    if action != "write" or names:
        if lock_file is None or lock_file.problem:
            problem = "does not exist" if lock_file is None else f"cannot be used: {lock_file.problem}"
            command = f"{COMMAND}{report.command_options}"
            note(f"{visible_line(source.path)} {problem}. {command} writes a new one, with all current tools.")
            return EXIT_USAGE
    elif source.problem:
        message = f"{visible_line(source.path)}: {source.problem}, so it was left unchanged"
        raise CommandFailure(f"{message}. Remove it and try again.")
    quiet_log("error")  # this command reports warnings itself

    async def compare(app: App) -> int:
        servers = [app.pool.by_alias[name] for name in names if name in app.pool.by_alias]
        tools = [name for name in names if name not in app.pool.by_alias]
        await connect(app, app.pool.upstreams if tools or not names else servers)
        code, only = 0, servers or None
        for tool in app.registry.get_all_tools():
            if isinstance(tool, BlockedMCPTool) and not as_json and tool.alias in {server.alias for server in servers}:
                show(visible(without_gaps(tool.words)), "")
        if servers or not names:
            code = await compare_servers(app, source, lock_file, only, action, as_json=as_json, is_sure=is_sure)
        return await approve_tools(app, source.path, tools, is_sure=is_sure) or code if tools else code

    return run_in_app(report, compare)


async def compare_servers(
    app: App,
    source: LockContent,
    lock_file: Lock | None,
    only: Sequence[Upstream] | None = None,
    action: LockAction = "write",
    *,
    as_json: bool = False,
    is_sure: bool = False,
) -> int:
    """Show how the servers in `only`, or all servers, differ from the lock file.

    If `action` is "write", update the file. Ask the user first if the update approves something that is blocked, or
    replaces a damaged file.
    """
    servers: dict[str, Json] = {}
    missing: list[Upstream] = []
    approved_entries: Mapping[str, Json] = lock_file.servers if lock_file is not None else {}
    upstreams = app.pool.upstreams if only is None else only
    for upstream in upstreams:
        if upstream.live_session is None:
            missing.append(upstream)
        else:
            servers[upstream.alias] = await THREADS.run(lambda upstream=upstream: entry_of(app, upstream))
    unknown = {*app.pool.left_out, *(upstream.alias for upstream in missing)}
    # Keep the entries of servers that are unavailable or were not requested.
    kept_aliases = unknown if only is None else unknown | (approved_entries.keys() - servers.keys())
    servers |= {alias: entry for alias, entry in approved_entries.items() if alias in kept_aliases}
    all_differences = [
        difference
        for alias in sorted({*servers, *approved_entries})
        for difference in differences(alias, approved_entries.get(alias), servers.get(alias))
    ]
    stops_any = any(difference.stops for difference in all_differences)
    show_differences(
        all_differences, source.path, as_json=as_json, is_first=lock_file is None, is_whole=not missing and only is None
    )
    tools_by_alias = {upstream.alias: upstream.offer.items(TOOLS) for upstream in upstreams}
    for (alias, name), labels in (await THREADS.run(lambda: labels_of(tools_by_alias))).items():
        for label in labels:
            note(f"check {visible_line(f'tool {name} of {alias}: it {label}')}")
    for upstream in missing:
        show_failure(f"upstream {upstream.alias}", upstream)
    if action == "check":
        return EXIT_FAILED if stops_any else EXIT_USAGE if missing else 0
    try:
        new_content = lock_text(servers)
    except ValueError as error:
        message = f"nothing was changed in {visible_line(source.path)}: {visible_line(str(error))}."
        raise CommandFailure(message) from None
    if action == "write" and new_content != source.content:
        if lock_file is not None and (lock_file.problem or stops_any) and not is_sure:
            await confirm(f"Approve all these differences in {LOCK_NAME}?", "nothing was changed")
        await THREADS.run(lambda: replace_content(source.path, source.content, new_content))
        note(f"wrote {visible_line(source.path)}")
    return EXIT_FAILED if missing else 0


def entry_of(app: App, upstream: Upstream) -> Json:
    """Return the entry for the lock file that describes a server in its current state. This call blocks."""
    era = upstream.era
    entry_settings = app.pool.written.get(upstream.alias, upstream.entry)
    info, instructions = (era.server_info, era.instructions) if era is not None else ({}, "")
    entry = server_entry(entry_settings, info, instructions, upstream.offer.lists)
    executable = executable_hash(upstream.entry)
    return {**entry, "executable": executable} if executable else entry


def show_differences(
    all_differences: Sequence[Difference], path: str, *, as_json: bool, is_first: bool, is_whole: bool
) -> None:
    if as_json:
        show_json({"file": path, "differences": [asdict(difference) for difference in all_differences]})
        sys.stdout.flush()
        return
    tools_by_difference: dict[Difference, list[str]] = {}  # tools with the same difference share a line
    for difference in all_differences:
        tools_by_difference.setdefault(replace(difference, tool=difference.tool and "..."), []).append(difference.tool)
    for difference, tools in tools_by_difference.items():
        text = str(replace(difference, tool=tools[0]))
        if len(tools) > 1:
            field = f", {difference.field}" if difference.field else ""
            text = f"{difference.server}: {len(tools)} tools ({', '.join(tools)}){field}: {difference.change}"
        effect = " (blocks these tools)" if len(tools) > 1 else " (blocks the tool)"
        show(f"{visible_line(text)}{effect if difference.stops and not is_first else ''}")
    if not all_differences and not is_first:
        show(f"{'Everything' if is_whole else 'Everything that could be checked'} matches {visible_line(path)}.")
    sys.stdout.flush()


async def approve_tools(app: App, path: str, names: Iterable[str], *, is_sure: bool) -> int:
    """Approve the current definitions of the tools with these published names, after showing the blocked ones."""
    tools: dict[str, DiscoveredMCPTool] = {}
    by_alias: dict[str, dict[str, Json]] = {}
    for name in dict.fromkeys(names):
        tool = app.registry.find(name)
        upstream = owner_of_tool(app.pool, tool) if tool is not None else None
        if upstream is None or upstream.is_login_offered or not isinstance(tool, DiscoveredMCPTool):
            candidates = [other.name for other in app.registry.get_all_tools() if isinstance(other, DiscoveredMCPTool)]
            hint = did_you_mean(name, candidates, " Run coretools-mcp tools to list them.")
            raise UsageError(f"no server currently has a tool '{name}'.{hint}")
        tools[name] = tool
        definition = next(item for item in upstream.offer.items(TOOLS) if item["name"] == tool.upstream_name)
        by_alias.setdefault(tool.alias, {})[tool.upstream_name] = tool_entry(definition)
        if isinstance(tool, BlockedMCPTool):
            show(visible(without_gaps(tool.words)), "")
    if not is_sure:
        await confirm("Approve the current version of each tool?", "nothing was changed")
    for alias, entries in by_alias.items():
        try:
            await THREADS.run(lambda alias=alias, entries=entries: write_approved(path, alias, entries))
        except ToolError as error:
            raise CommandFailure(error.message) from None
    for name, tool in tools.items():
        standing = app.pool.catalog.standing(tool.alias, tool.upstream_name)
        show(visible_line(f"{name} is approved as it is now; it was {standing}."))
    return 0
