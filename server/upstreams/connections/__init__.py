"""The connections to upstreams: one task owns each connection, and a pool finds the upstream for a tool name.

`relay` imports this package, which builds on `session`, `catalog` and `wire`.
"""
