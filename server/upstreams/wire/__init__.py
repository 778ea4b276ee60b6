"""The transports to an upstream (stdio, Streamable HTTP, SSE), and JSON-RPC over them."""
