"""MCP around the tools: transports, clients, consent by elicitation, upstream servers."""

VERSION = "0.1.0"  # of the package, which knows it too: its metadata takes longer to read than a start may take
