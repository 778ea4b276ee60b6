"""How messages travel: standard input and output, Streamable HTTP, SSE.

`run_server`, the commands, the dashboard and the upstream wire import it; it is independent of what is served.
"""
