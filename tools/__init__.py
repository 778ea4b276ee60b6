"""The tool system: what a tool is, the tools themselves, and the one flow that runs them.

Knows neither MCP nor the server; `server` stands on this package, never the other way round.
"""
