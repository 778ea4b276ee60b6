"""The transports: stdio, Streamable HTTP, SSE.

`run_server`, the commands, the dashboard and the upstream wire import it; it does not depend on what is served.
"""
