"""Operating a running server: logs, changed settings, and queries from terminal commands.

The dashboard, the terminal commands and `app` import this package; the tools and the upstreams do not.
"""
