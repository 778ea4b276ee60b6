"""How messages travel: standard input and output, Streamable HTTP, SSE."""
