"""A tiny MCP server over stdio, as an upstream for the demo: `echo` and `add`."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("demo")


@server.tool()
def echo(text: str) -> str:
    """Say the text again."""
    return text


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
