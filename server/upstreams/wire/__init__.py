"""The transports to an upstream (standard input and output, Streamable HTTP, SSE), and JSON-RPC over them.

The sessions import it; it depends on no catalog and no client.
"""
