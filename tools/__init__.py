"""The tool system: what a tool is, the tools themselves, and the code that runs every call.

It knows neither MCP nor the server. The `server` package builds on it, never the other way round.
"""
