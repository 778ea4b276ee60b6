"""Relays client requests to upstreams, and returns results, questions, tasks and changes.

The router, the requests and `app` import it; it builds on the other packages of `upstreams`.
"""
