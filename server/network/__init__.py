"""Requests to other servers: proxies, the causes of failures, and secrets kept out of messages.

`transports` and `upstreams` import this package. From `server`, it imports only the protocol.
"""
