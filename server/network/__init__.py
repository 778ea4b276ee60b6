"""Requests to other servers: by which proxy, why one failed, and how secrets stay out of what is said about it.

The transports and the upstreams import it; it knows the protocol alone.
"""
