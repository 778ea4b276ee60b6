"""The transports to an upstream (stdio, Streamable HTTP, SSE), and JSON-RPC over them.

The sessions import it; it does not depend on the catalog or clients.
"""
