"""A running server as its operator sees and changes it: logs, changed settings, and queries by commands.

The dashboard, the commands and `app` import it; the tools and the upstreams do not.
"""
