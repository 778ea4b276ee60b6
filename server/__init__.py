"""MCP around the tools: transports, clients, consent by elicitation, upstream servers."""

VERSION = "0.1.0"  # also in the package metadata, but reading that at startup takes too long
