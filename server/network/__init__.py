"""Requests to other servers: proxies, the causes of failures, and secrets kept out of messages.

`transports` and `upstreams` import this package; it depends only on the protocol.
"""
