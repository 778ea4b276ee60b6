"""The tool system: what a tool is, the tools themselves, and the code that runs every call.

It depends on neither MCP nor the `server` package, which builds on it.
"""
