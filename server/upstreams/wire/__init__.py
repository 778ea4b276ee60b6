"""The ways to an upstream: standard input and output, Streamable HTTP, SSE, and the JSON-RPC on them.

The sessions import it; it knows no catalog and no client.
"""
