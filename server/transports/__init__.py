"""How messages travel: standard input and output, Streamable HTTP, SSE.

`run_server`, the commands, the dashboard and the wire of upstreams import it; it knows nothing of what is served.
"""
