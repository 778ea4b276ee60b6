"""Asks the person behind a client, and parses the answer.

`clients`, `requests` and `dashboard` import this package; it depends on the protocol and the store, but not on any
tool.
"""
