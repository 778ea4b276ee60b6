"""One session with an upstream: its revision, lists, questions and subscriptions.

`connections` and `relay` import this package; it builds on `wire`.
"""
