"""How the person behind a client is asked, and how an answer is parsed.

Clients, requests and the dashboard import it; it depends on the protocol and the store, but on no tool.
"""
