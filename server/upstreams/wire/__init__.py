"""The ways to an upstream: standard input and output, Streamable HTTP, SSE."""
