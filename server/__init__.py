"""MCP around the tools: transports, clients, consent by elicitation, upstream servers."""
