"""The connections to upstreams: one task owns each connection, and a pool finds it by tool name.

`relay` imports this package; it builds on `session`, `catalog` and `wire`.
"""
