"""What upstreams offer, under the names that clients see, and people's approvals of tools.

`connections`, `relay` and packages outside of `upstreams` import this package. It does not open sessions.
"""
