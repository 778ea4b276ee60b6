"""Requests to other servers: proxies, the causes of failures, and secrets kept out of messages.

The transports and the upstreams import it; it depends only on the protocol.
"""
