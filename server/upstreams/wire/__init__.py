"""The transports to an upstream (stdio, Streamable HTTP, SSE), and JSON-RPC over them.

`session` imports this package, which does not depend on `catalog` or on clients.
"""
