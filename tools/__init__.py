"""The tools, and the code that runs every call. Depends on neither MCP nor the `server` package."""
