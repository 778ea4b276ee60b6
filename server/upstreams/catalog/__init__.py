"""What upstreams offer, under the names that clients see, and people's approvals of tools.

`connections` and `relay` import this package. It does not open sessions.
"""
