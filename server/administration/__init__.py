"""A server that runs, as its operator sees and changes it: its logs, settings that change, and what commands ask it.

The dashboard, the commands and `app` import it; the tools and the upstreams do not.
"""
