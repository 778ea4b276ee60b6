"""MCP around the tools: transports, clients, consent by elicitation, upstream servers."""

VERSION = "0.1.0"  # the package metadata has the version too, but reading it at start takes too long
