"""An upstream server whose only tool waits forever, and creates a file when it begins and when it is cancelled.

python waiting_upstream.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TOOLS: list[dict[str, Any]] = [
    {"name": "wait", "description": "Waits.", "inputSchema": {"type": "object", "properties": {}}}
]


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult.model_validate({"tools": TOOLS})


async def call_tool(_ctx: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
    (FOLDER / "began").touch()
    try:
        await anyio.sleep_forever()
    finally:
        (FOLDER / "cancelled").touch()
    raise AssertionError


async def main() -> None:
    server = Server("waiting", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    anyio.run(main)
