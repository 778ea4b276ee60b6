"""Asks the person behind a client, and parses the answer.

Clients, requests and the dashboard import it; it depends on the protocol and the store, but not on any tool.
"""
