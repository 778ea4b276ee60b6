"""The MCP server around the tools: transports, clients, consent by elicitation, upstream servers."""

VERSION = "0.1.0"  # also in the package metadata, which takes too long to read at startup
