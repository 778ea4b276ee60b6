"""`tools` lists the tools and says which need consent; `permissions explain` shows how a call would be decided."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from server.app import App
from server.console import EXIT_FAILED, UsageError
from server.console.call_command import RawArguments, read_arguments
from server.console.terminal import Spinner, note, show, show_json, show_table
from server.console.upstream_messages import connect, quiet_log, show_failure
from server.requests.wire_results import tool_to_wire
from server.run_server import run_in_app, until_signal
from server.settings import SettingsReport
from server.settings.rule_names import did_you_mean
from server.transports.configured_secrets import rights_for
from server.upstreams.catalog.published_names import NameMap, Origin, full_name
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.connections.tool_owner import owner_of
from tools.builtin.all_tools import builtin_tools
from tools.call.base_tool import BaseTool
from tools.call.consent import Judgement
from tools.contract.call_options import ApprovalMode
from tools.contract.display import visible, visible_line, without_gaps
from tools.contract.tool_errors import ToolError
from tools.contract.tool_results import FunctionCall
from tools.permissions.permission_policy import ALL_RIGHTS
from tools.permissions.tool_names import BETWEEN, FETCHING, GROUPS, SHELL, one_meaning
from tools.permissions.verdict import Verdict

SENTENCE_CHARS = 160  # maximum length of a tool's description in the table
ASKED = {Verdict.ASK: "yes", Verdict.ALLOW: "no", Verdict.DENY: "refused"}
LEGEND = "Rules and arguments can change whether you are asked. For one call: coretools-mcp permissions explain CALL."
_RULE_LIKE = re.compile(r"([\w-]+)\((.*)\)", re.DOTALL)

_CALLS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "run_shell_command": ("command", {}),
    "read_file": ("file_path", {}),
    "write_file": ("file_path", {"content": ""}),
    "notebook_edit": ("notebook_path", {"edit_mode": "insert", "new_source": ""}),
    "web_fetch": ("url", {"prompt": ""}),
    "task": ("subagent_type", {"prompt": "", "description": ""}),
    "grep_search": ("path", {"pattern": "x"}),
    "glob": ("path", {"pattern": "*"}),
    "list_directory": ("path", {}),
}
"""For each tool whose calls can be written like rules: the parameter whose value is in the parentheses, and values for
the other parameters that a valid call needs.
"""

MAX_PART_CHARS = 48  # maximum number of characters shown for each part of a command


def show_tools(report: SettingsReport, *, as_json: bool) -> int:
    """Print the tools that a client would see. Return 1 if a server, the custom tools or the lock file is unusable."""
    quiet_log(report.settings.log.level)

    async def list_tools(app: App) -> int:
        await connect(app, app.pool.upstreams)
        with Spinner("waiting for the custom tools", announces=True):
            await app.registry.discover_all_tools()
        settings = report.settings
        plans, shows_forms = settings.approval_mode is ApprovalMode.PLAN, settings.confirmation.style == "form"
        # The list is the one for clients whose user can be asked, which also get `enter_plan_mode`.
        tools = app.tools.offered_tools(plans=plans, may_plan=not plans, shows_forms=shows_forms)
        catalog = app.pool.catalog
        standings = {  # the lock status of tools by name; empty without a lock file
            tool.name: standing
            for tool in tools
            if isinstance(tool, DiscoveredMCPTool) and (standing := catalog.standing(tool.alias, tool.upstream_name))
        }
        if as_json:
            show_json(listing(tools, catalog.names, standings))
        else:
            verdicts = {tool.name: (await app.running_server.permission_of(tool)).verdict for tool in tools}
            show_listing(tools, verdicts, catalog.names, standings)
        sys.stdout.flush()
        missing = [upstream for upstream in app.pool.upstreams if upstream.live_session is None]
        for upstream in missing:
            show_failure(f"upstream {upstream.alias}", upstream)
        if missing and not all(upstream.wants_login for upstream in missing):
            note("coretools-mcp doctor checks each server; coretools-mcp config disable NAME leaves one out")
        lock = catalog.lock
        if lock is not None and lock.problem:
            note(f"{visible_line(lock.path)}: {lock.why_closed}")
        discovery = app.custom_tools.discovery
        problem = discovery.state.problem if discovery is not None else ""
        if problem:
            note(f"custom tools: {problem}")
        return EXIT_FAILED if missing or problem or (lock is not None and lock.problem) else 0

    return run_in_app(report, list_tools)


def listing(tools: Sequence[BaseTool[Any]], names: NameMap, standings: Mapping[str, str]) -> dict[str, Any]:
    """Return the tools as a client sees them, the tool names that were changed, and the tools hidden by name conflicts.

    If there is a lock file, the result also contains the lock status of upstream tools, keyed by name.
    """

    def name_entry(name: str, origin: Origin, **details: str | None) -> dict[str, str | None]:
        return {"name": name, "server": origin.alias, "tool": origin.name, "fullName": origin.full_name, **details}

    result: dict[str, Any] = {
        "tools": [tool_to_wire(tool) for tool in tools],
        "changed": [
            name_entry(name, names.published[name], change=change.value) for name, change in names.changed.items()
        ],
        "hidden": [
            name_entry(entry.name, entry.origin, holder=entry.holder, reachedAs=entry.way_out or None)
            for entry in names.hidden
        ],
    }
    return result | ({"approval": dict(standings)} if standings else {})


def show_listing(
    tools: Sequence[BaseTool[Any]], verdicts: Mapping[str, Verdict], names: NameMap, standings: Mapping[str, str]
) -> None:
    rows: list[tuple[str, str, str]] = []
    for tool in tools:
        sentence = re.split(r"(?<=[.:])\s", tool.description.strip(), maxsplit=1)[0].rstrip(".:")
        summary = textwrap.shorten(visible_line(sentence), SENTENCE_CHARS, placeholder=" ...")
        rows.append((tool.name, ASKED[verdicts[tool.name]], summary))
        if standing := standings.get(tool.name):
            rows.append(("", "", f"= {visible_line(standing)}"))
        if isinstance(tool, DiscoveredMCPTool) and tool.name != full_name(tool.alias, tool.upstream_name):
            change = names.changed.get(tool.name)
            origin = f"{tool.upstream_name} of the server {tool.alias}"
            rows.append(("", "", "= " + visible_line(origin if change is None else f"{origin}; {change}")))
    show_table(("tool", "asked first", "what it does"), rows)
    show("", LEGEND)
    if names.hidden:
        show("", "Not listed:", *(f"  {visible_line(str(hidden_name))}" for hidden_name in names.hidden))


def read_call(tool: str, pairs: list[str], as_json: str | None) -> tuple[str, RawArguments]:
    """Parse the name and arguments of a call, which may be written like a rule."""
    like_rule = _RULE_LIKE.fullmatch(tool)
    names = {name: tool.name for tool in builtin_tools() for name in (tool.name, *tool.aliases)}
    if like_rule is None:
        if re.match(r"[\w-]+\(", tool) is not None:
            if tool.count("(") > tool.count(")"):
                raise UsageError(f"'{tool}' has no closing parenthesis. Did you mean '{tool})'?")
            raise UsageError(f"'{tool}' does not end with the closing parenthesis of the call.")
        if any(map(str.isspace, tool.strip())):
            hint = f"For a shell command, write 'Bash({tool})'."
            if (first_word := tool.split(maxsplit=1)[0]) in names:
                hint = f"Give the arguments as separate words: {first_word} key=value."
            raise UsageError(f"there is no tool '{tool}'. {hint}")
        return one_meaning(tool), read_arguments(pairs, as_json)
    if pairs or as_json is not None:
        raise UsageError("give the arguments either in parentheses or as key=value, not both.")
    possible_names = GROUPS.get(like_rule[1], {names.get(like_rule[1], "")})
    name = next((name for name in _CALLS if name in possible_names), None)
    if name is None:
        raise UsageError(f"'{like_rule[1]}(...)' is not a known form. Use Bash, Read, Edit, ..., or TOOL key=value.")
    (parameter, other_arguments), text = _CALLS[name], like_rule[2].strip()
    if name == SHELL and text.endswith(":*"):
        text = f"{text[:-2]} *"
    elif name == FETCHING and "://" not in text:
        text = f"https://{text.removeprefix('domain:').strip().removeprefix('*.')}/"
    elif "path" in parameter:
        text = os.path.expanduser(text[1:] if text.startswith("//") else text)
    return name, RawArguments({}, {parameter: text, **other_arguments})


def explain_call(
    report: SettingsReport, name: str, raw_arguments: RawArguments, principal: str = "", *, as_json: bool
) -> int:
    """Print what would be decided about a call. Return exit code 1 if the call cannot be judged."""
    quiet_log(report.settings.log.level)
    rights, http = ALL_RIGHTS, report.settings.http
    if principal:
        own = http.tokens.get(principal) or http.oauth.principals.get(principal)
        if own is None:
            hint = did_you_mean(principal, [*http.tokens, *http.oauth.principals])
            raise UsageError(f"--as: neither http.tokens nor http.oauth.principals has '{principal}'.{hint}")
        section = "http.tokens" if principal in http.tokens else "http.oauth.principals"
        rights = rights_for(f"{section}.{principal}", own)

    async def explain() -> int:
        app = App(report, "stdio")
        async with app.running():
            owner = owner_of(app.pool, name)
            if owner is not None:
                await connect(app, [owner])  # do not wait for other servers, because they may be slow
            tool = app.registry.find(name)
            is_upstream_tool = isinstance(tool, DiscoveredMCPTool)
            arguments = raw_arguments.typed(tool.parameter_schema) if is_upstream_tool else raw_arguments.as_text()
            try:
                if tool is None and owner is None:
                    similar_names, hint = ", ".join(app.registry.not_registered(name).nearest), ""
                    if BETWEEN not in name and name not in _CALLS:
                        hint = f" Did you mean {f'{similar_names}, or ' if similar_names else ''}'Bash({name})'?"
                    raise UsageError(f"there is no tool '{name}'.{hint} coretools-mcp tools lists the tools.")
                judgement = await app.running_server.judge(FunctionCall(name, arguments), rights)
            except ToolError as error:
                # If the server is unavailable, say so, because the tool may exist.
                reason = error if owner is None or owner.live_session is not None else owner.unavailable()
                sys.stderr.write(f"coretools-mcp: {visible(reason.message)}\n")
                return EXIT_FAILED
        if not as_json:
            sys.stdout.write(_as_text(judgement))
            return 0
        permission = judgement.permission
        result = {
            "verdict": permission.verdict.value,
            "reason": permission.reason,
            "view": dict(permission.view.facts) if permission.view is not None else None,
            "parts": [
                {"part": part.source, "verdict": part.verdict.value, "reason": part.reason} for part in permission.parts
            ],
            "answers": [
                {"answer": choice.decision.value, "title": choice.title, "rules": list(choice.rules)}
                for choice in judgement.choices
            ],
        }
        show_json(result)
        return 0

    return anyio.run(until_signal, explain)


def _as_text(judgement: Judgement) -> str:
    permission = judgement.permission
    lines = [f"{permission.verdict}: {visible(permission.reason)}"]
    part_texts = [visible_line(without_gaps(part.source)) or "(the whole command)" for part in permission.parts]
    part_texts = [part if len(part) <= MAX_PART_CHARS else f"{part[: MAX_PART_CHARS - 3]}..." for part in part_texts]
    if part_texts:
        width = max(map(len, part_texts))
        lines.append("")
        for source, part in zip(part_texts, permission.parts, strict=True):
            lines.append(f"  {part.verdict:<5}  {source:<{width}}  {visible_line(part.reason)}")
    if permission.view is not None:
        lines.append("")
        for name, value in permission.view.facts.items():
            text = value if isinstance(value, str) else ", ".join(value)
            lines.append(f"  {name + ':':<9}{visible_line(text)}")
    if judgement.choices:
        width = max(len(choice.decision) for choice in judgement.choices)
        lines += ["", "The answers on offer, and the rules that they would add:"]
        for choice in judgement.choices:
            lines.append(f"  {choice.decision:<{width}}  {visible_line(choice.title)}")
            lines += [f"  {'':<{width}}    {visible_line(rule)}" for rule in choice.rules]
    return "\n".join(lines) + "\n"
