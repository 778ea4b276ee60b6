"""What upstreams offer, under the names that clients see, and the approvals of tools by a person.

`connections` and `relay` import this package. It does not open sessions.
"""
