"""Relays client requests to upstreams, and passes back results, questions, tasks and change notifications.

The router, `requests` and `app` import this package; it builds on the other packages of `upstreams`.
"""
