"""The MCP server around the tools: transports, clients, consent by elicitation, upstream servers."""

VERSION = "0.1.0"  # repeats the package metadata, which would take too long to read at startup
