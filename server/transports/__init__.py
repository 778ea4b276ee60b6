"""How messages travel: standard input and output, Streamable HTTP, SSE.

Only `run_server`, the dashboard and the wire of upstreams import it; it knows nothing of what is served.
"""
