"""The connections to upstreams: each is owned by one task, and all are in one pool.

`relay` builds on this package, and this package on `session`, `login`, `catalog` and `wire`.
"""
