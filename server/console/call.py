"""`call`: one call through a server of its own, with its question answered at the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from server.console import EXIT_FAILED, UsageError
from server.console.prompts import fill_in
from server.protocol_mapping import DISPLAY_KEY
from tools.contract.display import visible

LAUNCHER = Path(__file__).resolve().parents[2] / "coretools_mcp.py"  # also in an installation
COLOURS, RESET = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}, "\x1b[0m"


def read_arguments(pairs: Sequence[str], as_json: str | None) -> dict[str, Any]:
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
        try:
            pair.encode()
        except UnicodeEncodeError:
            said = f"The argument {key} holds bytes that are not UTF-8 text, and JSON can only carry text."
            raise UsageError(said) from None
        given[key] = value
    return given


def make_call(tool: str, arguments: Mapping[str, Any], server_options: Sequence[str]) -> int:
    """Make one call through a server of its own over stdio, and show what a person should see."""
    options = ["-P", str(LAUNCHER), "serve", *server_options]
    server = StdioServerParameters(command=sys.executable, args=options, cwd=Path.cwd())

    async def call() -> int:
        async with Client(server, mode="legacy", elicitation_callback=_ask_at_terminal, cache=None) as client:
            try:
                result = await client.call_tool(tool, dict(arguments))
            except MCPError as error:
                sys.stderr.write(f"coretools-mcp: {visible(error.error.message)}\n")
                return EXIT_FAILED
        display = (result.meta or {}).get(DISPLAY_KEY)
        diff = visible(str(cast("dict[str, Any]", display).get("fileDiff") or "")) if isinstance(display, dict) else ""
        if diff and sys.stdout.isatty():
            lines = diff.splitlines()
            diff = "\n".join(f"{COLOURS[line[0]]}{line}{RESET}" if line[:1] in COLOURS else line for line in lines)
        if diff:
            sys.stdout.write(f"{diff}\n")
        for block in [] if diff else result.content:
            if block.annotations is None or block.annotations.audience != ["user"]:
                text = visible(block.text) if isinstance(block, types.TextContent) else f"[{block.type}]"
                sys.stdout.write(f"{text}\n")
        return EXIT_FAILED if result.is_error else 0

    try:
        return anyio.run(call)
    except* MCPError:
        sys.stderr.write("coretools-mcp: the server for this call ended too early; what it wrote is above.\n")
    return EXIT_FAILED


async def _ask_at_terminal(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    if not sys.stdin.isatty():
        sys.stderr.write(f"\n{visible(params.message)}\n")
        sys.stderr.write("Nobody can answer here (standard input is not a terminal), so this is refused.\n")
        return types.ElicitResult(action="decline")
    content = await fill_in(params.message, params.requested_schema)
    if content is None:
        return types.ElicitResult(action="cancel")
    return types.ElicitResult(action="accept", content=content)
