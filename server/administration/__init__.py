"""Operating a running server: logs, changed settings, and queries from commands.

The dashboard, the commands and `app` import this package; the tools and the upstreams do not.
"""
