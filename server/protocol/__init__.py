"""The protocol on the server side: revisions, errors and requests.

Everything in `server` may import this package; it does not depend on transports or tools.
"""
