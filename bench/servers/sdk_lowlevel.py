"""The reference: the SDK's low-level server with one tool and its standard stdio transport, as in its documentation."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    tool = types.Tool(name="hello", input_schema={"type": "object", "properties": {"name": {"type": "string"}}})
    return types.ListToolsResult(tools=[tool])


async def call_tool(_ctx: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="hello")])


async def serve() -> None:
    server = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve)
