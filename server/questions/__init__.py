"""Asks the person behind a client, and parses the answer.

Among others, `clients`, `requests` and `dashboard` import this package. It depends on the protocol and the store, but
not on any tool.
"""
