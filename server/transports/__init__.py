"""The transports: stdio, Streamable HTTP and SSE.

`run_server`, the terminal commands, the dashboard and the upstream wire import this package. The package does not
depend on the application that it serves.
"""
