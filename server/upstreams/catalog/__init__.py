"""The offers of upstreams, under the names that clients see, and the approvals of tools by a person.

`connections` and `relay` import this package; it opens no session.
"""
