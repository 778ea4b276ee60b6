"""The commands for a person at a terminal: list the tools, make one call and answer its question."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from server.app import App
from server.console.filling import fill_in
from server.console.tool_listing import listing_as_json, listing_as_text
from server.exit_codes import EXIT_FAILED
from server.exposure import DISPLAY_KEY
from server.serving import until_signal
from server.settings import SettingsReport
from tools.contract.context import ApprovalMode
from tools.display import visible, visible_line

LAUNCHER = Path(__file__).resolve().parent.parent / "coretools_mcp.py"
"""Stands beside the packages, in a checkout and in an installation alike."""

RED, GREEN, CYAN, RESET = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"


class UsageError(Exception):
    """The arguments of the command are wrong; the message says how to write them."""


def show_tools(report: SettingsReport, *, as_json: bool) -> int:
    """Print the tools that a client would see. Exit code 1 if an upstream, or the custom tools, could not be had."""
    return anyio.run(until_signal, partial(_show_tools, report, as_json))


async def _show_tools(report: SettingsReport, as_json: bool) -> int:
    app = App(report, "stdio")
    async with app.running():
        app.start_upstreams()
        await app.registry.discover_all_tools()
        settings = report.settings
        plans, shows_forms = settings.approval_mode is ApprovalMode.PLAN, settings.confirmation.style == "form"
        tools = app.tools.offered_tools(plans=plans, shows_forms=shows_forms)
        names = app.pool.catalog.names
        _print(listing_as_json(tools, names) if as_json else listing_as_text(tools, names))
        missing = [upstream for upstream in app.pool.upstreams if not upstream.is_connected]
        for upstream in missing:
            how = f"{upstream.standing.state}, {visible_line(upstream.standing.problem)}"
            sys.stderr.write(f"coretools-mcp: upstream {upstream.alias}: {how}\n")
        custom = app.custom_tools.state
        problem = custom.problem if custom is not None else ""
        if problem:
            sys.stderr.write(f"coretools-mcp: custom tools: {visible_line(problem)}\n")
    return EXIT_FAILED if missing or problem else 0


def read_arguments(pairs: Sequence[str], as_json: str | None) -> dict[str, Any]:
    """The arguments of a call from `key=value` pairs and a JSON object; a pair wins.

    Raises:
        UsageError: A pair has no `=`, or the JSON is no object.
    """
    given: dict[str, Any] = {}
    if as_json is not None:
        try:
            parsed: Any = json.loads(as_json)
        except (ValueError, RecursionError):
            raise UsageError("--arguments is not valid JSON. Quote it as one word of the shell.") from None
        if not isinstance(parsed, dict):
            raise UsageError('--arguments has to be an object, for example \'{"path": "src"}\'.')
        given.update(cast("dict[str, Any]", parsed))
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"'{pair}' is not of the form key=value.")
        if not _is_text(pair):
            raise UsageError(f"The argument {key} holds bytes that are no UTF-8 text, and JSON can only carry text.")
        given[key] = value
    return given


def _is_text(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def make_call(tool: str, arguments: Mapping[str, Any], server_options: Sequence[str]) -> int:
    """Make one call through a server of its own over stdio, and show what a person should see."""
    try:
        return anyio.run(_make_call, tool, dict(arguments), list(server_options))
    except* MCPError:
        sys.stderr.write("coretools-mcp: the server for this call ended too early; what it wrote is above.\n")
    return EXIT_FAILED


async def _make_call(tool: str, arguments: dict[str, Any], server_options: list[str]) -> int:
    server = StdioServerParameters(
        command=sys.executable, args=["-P", str(LAUNCHER), "serve", *server_options], cwd=Path.cwd()
    )
    async with Client(server, mode="legacy", elicitation_callback=_ask_at_terminal, cache=None) as client:
        try:
            result = await client.call_tool(tool, arguments)
        except MCPError as error:
            sys.stderr.write(f"coretools-mcp: {visible(error.error.message)}\n")
            return EXIT_FAILED
    _print_result(result)
    return EXIT_FAILED if result.is_error else 0


def _print_result(result: types.CallToolResult) -> None:
    display = (result.meta or {}).get(DISPLAY_KEY)
    if isinstance(display, dict):
        diff = str(cast("dict[str, Any]", display).get("fileDiff") or "")
        if diff:
            _print(_coloured(visible(diff)))
            return
    for block in result.content:
        annotations = block.annotations
        if annotations is not None and annotations.audience == ["user"]:
            continue
        _print(visible(block.text) if isinstance(block, types.TextContent) else f"[{block.type}]")


def _coloured(diff: str) -> str:
    if not sys.stdout.isatty():
        return diff
    colours = {"+": GREEN, "-": RED, "@": CYAN}
    return "\n".join(f"{colours[line[0]]}{line}{RESET}" if line[:1] in colours else line for line in diff.splitlines())


async def _ask_at_terminal(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    if not sys.stdin.isatty():
        sys.stderr.write(f"\n{visible(params.message)}\n")
        sys.stderr.write("Nobody can answer here (standard input is no terminal), so this is refused.\n")
        return types.ElicitResult(action="decline")
    content = await fill_in(params.message, params.requested_schema)
    if content is None:
        return types.ElicitResult(action="cancel")
    return types.ElicitResult(action="accept", content=content)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
