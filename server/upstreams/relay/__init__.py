"""Relays client requests to upstreams, and returns results, questions, tasks and changes.

The router, `requests` and `app` import this package; it builds on the other packages of `upstreams`.
"""
